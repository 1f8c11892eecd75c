import numpy as np
import pytest

from lastseen_synth.assets import Support
from lastseen_synth.capsules import ball, blended_surface, bounds, capsule
from lastseen_synth.shapes import Part, box, disc, merged, revolved, rotation, smooth_normals, tube
from lastseen_synth.supports import covered_share, shelf_boards


def joined(parts):
    mesh = merged(parts)
    return mesh.positions_m.double().numpy(), mesh.triangles.numpy(), mesh.normals.double().numpy()


def volume(positions, triangles):
    a, b, c = (positions[triangles[:, k]] for k in range(3))
    return float((a * np.cross(b, c)).sum() / 6)


def faces_agree_with_normals(positions, triangles, normals):
    a, b, c = (positions[triangles[:, k]] for k in range(3))
    across = np.cross(b - a, c - a)
    large = np.linalg.norm(across, axis=1) > 1e-12
    return float(((across * normals[triangles].mean(1)).sum(1) > 0)[large].mean())


def cylinder(segments=64):
    return [revolved([(0.5, 0), (0.5, 2)], segments=segments), disc(0.5, 2, segments=segments),
            disc(0.5, 0, up=False, segments=segments)]  # fmt: skip


SOLIDS = {
    "box": (box((0, 0, 0), (1, 2, 3)), 6.0),
    "rounded box": (box((0, 0, 0), (1, 2, 3), edge_m=0.1, steps=4), 5.95),
    "cylinder": (cylinder(), np.pi * 0.25 * 2),
    "cone": ([revolved([(0, 0), (1, 0), (0, 1)], segments=96)], np.pi / 3),
    "bar": ([tube([(0, 0, 0), (0, 0.5, 0), (0, 1, 0)], 0.1, sides=48)], np.pi * 0.01),
    "ball": ([blended_surface([ball((1, 2, 3), 0.5)], cell_m=0.05, blend_m=0.01)], 4 / 3 * np.pi * 0.125),
    "mirrored ball": (
        [blended_surface([ball((1, 2, 3), 0.5)], cell_m=0.05, blend_m=0.01).mirrored()],
        0.5236,
    ),
    "tiled box": ([p.tiled(0.3) for p in box((0, 0, 0), (1, 2, 3))], 6.0),
}


@pytest.mark.parametrize("name", SOLIDS)
def test_a_solid_is_closed_faces_outwards_and_has_unit_normals(name):
    parts, expected = SOLIDS[name]
    positions, triangles, normals = joined(parts)
    assert volume(positions, triangles) == pytest.approx(expected, rel=0.02)
    assert faces_agree_with_normals(positions, triangles, normals) == 1.0
    assert np.linalg.norm(normals, axis=1) == pytest.approx(1.0, abs=1e-5)


def test_pictures_on_a_box_are_upright_and_not_mirrored_seen_from_outside():
    for part in box((-1, -1, -1), (1, 1, 1), edge_m=0.1):
        positions, outward = part.positions, part.normals.mean(0)
        centred = positions - positions.mean(0)
        u_way, v_way = (centred.T @ (part.uv[:, k] - part.uv[:, k].mean()) for k in (0, 1))
        assert np.cross(u_way, v_way) @ outward > 0
        if abs(outward[2]) < 0.5:
            assert v_way[2] > 0.9 * np.linalg.norm(v_way)
        assert part.uv.min() == pytest.approx(0, abs=0.05) and part.uv.max() == pytest.approx(1, abs=0.05)


def test_a_label_around_a_can_has_its_middle_at_the_front_and_reads_to_the_right():
    can = revolved([(1, 0), (1, 1)], segments=64)
    middle = np.abs(can.uv[:, 0] - 0.5) < 1e-9
    assert np.allclose(can.positions[middle][:, :2], [0, -1])
    right_of_it = (can.uv[:, 0] > 0.5) & (can.uv[:, 0] < 0.6)
    assert (can.positions[right_of_it][:, 0] > 0).all()
    assert np.array_equal(can.uv[:, 1], can.positions[:, 2])


def test_a_flat_lid_seen_from_below_is_not_mirrored():
    lid = disc(1.0, 0.0, up=False)
    assert np.allclose(lid.positions[:, 0], 2 * lid.uv[:, 0] - 1)
    assert np.allclose(lid.positions[:, 1], 1 - 2 * lid.uv[:, 1])


def test_a_sharp_corner_of_a_turned_body_stays_sharp_and_a_gentle_one_is_smooth():
    sharp = revolved([(1, 0), (1, 1), (0, 1)])
    assert {tuple(n) for n in np.abs(sharp.normals[:, 2]).round(6)[:, None]} == {(0.0,), (1.0,)}
    gentle = revolved([(1, 0), (1, 1), (0.9, 2)])
    at_corner = gentle.normals[np.isclose(gentle.positions[:, 2], 1)]
    assert np.ptp(at_corner[:, 2]) < 1e-9


def test_a_rotation_turns_counter_clockwise_as_seen_from_the_tip_of_its_axis():
    assert np.allclose(rotation("z", 90) @ [1, 0, 0], [0, 1, 0])
    assert np.allclose(rotation("x", 90) @ [0, 1, 0], [0, 0, 1])
    assert np.allclose(rotation("y", 90) @ [0, 0, 1], [1, 0, 0])


def test_large_faces_count_more_in_smooth_normals():
    positions = np.array([(0, 0, 0), (4, 0, 0), (0, 4, 0), (0, 0, 1.0)])
    normal = smooth_normals(positions, np.array([(0, 1, 2), (0, 3, 1)]))[0]
    assert normal[2] > abs(normal[1]) > 0


def test_bars_flow_into_one_skin_within_their_bounds():
    capsules = [capsule((0, 0, 0), (0.2, 0, 0), 0.05), ball((0.2, 0, 0.08), 0.06, (1.0, 0.5, 1.0))]
    part = blended_surface(capsules, cell_m=0.01, blend_m=0.005)
    low, high = bounds(capsules)
    assert np.allclose(part.positions.min(0), low, atol=0.006)
    assert np.allclose(part.positions.max(0), high, atol=0.006)
    edges = np.sort(part.triangles[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), 1)
    assert (np.unique(edges, axis=0, return_counts=True)[1] == 2).all()  # closed


def bookcase(front_closed=False):
    """80 cm wide, 30 deep, 120 high, boards of 2 cm at 40 and 80 cm, a floor and a top."""
    walls = [((-0.4, -0.15, 0), (-0.38, 0.15, 1.2)), ((0.38, -0.15, 0), (0.4, 0.15, 1.2)),
             ((-0.4, 0.13, 0), (0.4, 0.15, 1.2))]  # fmt: skip
    boards = [((-0.38, -0.15, z), (0.38, 0.13, z + 0.02)) for z in (0.0, 0.4, 0.8, 1.18)]
    doors = [((-0.4, -0.16, 0), (0.4, -0.15, 1.2))] if front_closed else []
    parts = [part for low, high in walls + boards + doors for part in box(low, high)]
    return joined(parts)[:2]


def test_the_boards_of_a_shelf_are_found_with_their_free_height():
    found = shelf_boards(*bookcase())
    assert [round(board.z_m, 2) for board in found] == [1.2, 0.82, 0.42, 0.02]
    for board in found[1:]:
        assert board.clearance_m == pytest.approx(0.38 if board.z_m < 0.8 else 0.36, abs=0.002)
        assert -0.39 < board.x0_m < -0.34 and 0.34 < board.x1_m < 0.39
        assert board.y1_m < 0.14


def test_boards_behind_a_door_are_no_places():
    assert [round(board.z_m, 2) for board in shelf_boards(*bookcase(front_closed=True))] == [1.2]


def test_winding_does_not_matter_to_boards():
    positions, triangles = bookcase()
    assert shelf_boards(positions, triangles[:, ::-1]) == shelf_boards(positions, triangles)


def test_a_place_under_a_cushion_is_covered():
    positions, triangles, _ = joined([*box((0, 0, 0), (1, 1, 0.3)), *box((0, 0, 0.3), (0.5, 1, 0.4))])
    place = Support(z_m=0.3, x0_m=0, y0_m=0, x1_m=1, y1_m=1)
    assert covered_share(place, positions, triangles, within_m=0.2) == pytest.approx(0.5, abs=0.05)
    free = Support(z_m=0.3, x0_m=0.55, y0_m=0, x1_m=1, y1_m=1)
    assert covered_share(free, positions, triangles, within_m=0.2) == 0.0


def test_tiles_have_the_right_size_on_every_side():
    for part in (p.tiled(0.5) for p in box((0, 0, 0), (1, 1, 1))):
        assert np.ptp(part.uv, axis=0) == pytest.approx([2, 2])
    assert isinstance(part, Part)
