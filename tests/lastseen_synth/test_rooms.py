import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import ndimage

from lastseen.errors import SynthError
from lastseen_synth.assets import AssetLibrary
from lastseen_synth.floor_plan import WALL_THICKNESS_M, Footprint, draw_floor_plan, free_space
from lastseen_synth.geometry import Cameras, look_at
from lastseen_synth.rooms import furnish, light_changes, shadows_of
from lastseen_synth.shade import render
from lastseen_synth.simplify import simplified
from lastseen_synth.support_grid import surface_points
from lastseen_synth.visibility import visible_boxes

pytestmark = pytest.mark.usefixtures("one_thread")

SEEDS = (1, 2)
SMALL = ("object", "small")
TRIANGLES = 24_000  # half of what rooms usually have, and quick


@pytest.fixture(scope="module")
def things(train_library):
    return tuple(asset for asset in train_library.kind("object") if asset.name.endswith("a"))[::9][:3]


@pytest.fixture(scope="module")
def rooms(train_library, things):
    return [
        furnish(train_library, np.random.default_rng(seed), things=things, max_triangles=TRIANGLES)
        for seed in SEEDS
    ]


def placed(room, *kinds):
    return [p for p in room.placed if p.asset.kind in kinds]


def box_of(item):
    """Footprint, lowest and highest z of something that was turned by quarters and about z."""
    low, high = np.array(item.asset.lo_m), np.array(item.asset.hi_m)
    axes = item.transform[:3, :3].numpy()
    middle = axes @ ((low + high) / 2) + item.transform[:3, 3].numpy()
    size = np.abs(axes[2] @ np.diag(high - low)).sum()
    level = [k for k in range(3) if abs(axes[2, k]) < 1e-6]
    assert len(level) == 2, "things stand upright"
    x_axis = axes[:2, level[0]]
    footprint = Footprint(
        x_m=middle[0],
        y_m=middle[1],
        half_x_m=(high - low)[level[0]] / 2,
        half_y_m=(high - low)[level[1]] / 2,
        yaw_rad=math.atan2(x_axis[1], x_axis[0]),
    )
    return footprint, middle[2] - size / 2, middle[2] + size / 2


def points_on(some_room, instance, spacing_m=0.02):
    geometry = some_room.scene.geometry
    f0, f1 = geometry.face_start[instance : instance + 2]
    return surface_points(geometry.positions_m.T[geometry.faces[:, f0:f1].T].numpy(), spacing_m)


def test_nothing_intersects(rooms):
    for room in rooms:
        for kinds in (SMALL, ("furniture", "person", "animal")):
            boxes = [box_of(item) for item in placed(room, *kinds)]
            for number, (place, low, high) in enumerate(boxes):
                for other, other_low, other_high in boxes[:number]:
                    apart_in_height = low >= other_high - 1e-4 or other_low >= high - 1e-4
                    assert apart_in_height or not place.grown(-1e-4).overlaps(other)


def test_no_furniture_goes_through_what_rests_on_it(rooms):
    for room in rooms:
        solid = np.concatenate([points_on(room, p.instance) for p in placed(room, "furniture", "person")])
        for item in placed(room, *SMALL):
            place, low, high = box_of(item)
            near = solid[(solid[:, 2] > low + 0.003) & (solid[:, 2] < high - 0.003)]
            assert (place.grown(-0.003).distance_m(near[:, :2]) > 0).all(), item.asset.name


def surfaces(some_room):
    """Every flat place: its four corners and its height."""
    for p in some_room.placed:
        (x0, y0, _), (x1, y1, top) = p.asset.lo_m, p.asset.hi_m
        tops = [(s.x0_m, s.y0_m, s.x1_m, s.y1_m, s.z_m) for s in p.asset.supports]
        if p.asset.kind in SMALL:
            tops.append((x0, y0, x1, y1, top))
        for ax, ay, bx, by, z in tops:
            yaw = math.atan2(p.transform[1, 0], p.transform[0, 0])
            middle = p.transform.numpy() @ [(ax + bx) / 2, (ay + by) / 2, z, 1]
            place = Footprint(
                x_m=middle[0], y_m=middle[1], half_x_m=(bx - ax) / 2, half_y_m=(by - ay) / 2, yaw_rad=yaw
            )
            yield p.instance, place, middle[2]
    for zone in some_room.plan.zones:
        size = (zone.x1_m - zone.x0_m) / 2, (zone.y1_m - zone.y0_m) / 2
        middle = (zone.x1_m + zone.x0_m) / 2, (zone.y1_m + zone.y0_m) / 2
        yield 0, Footprint(x_m=middle[0], y_m=middle[1], half_x_m=size[0], half_y_m=size[1]), 0.0


def test_everything_rests_on_a_surface_and_within_its_edges(rooms):
    for room in rooms:
        places = list(surfaces(room))
        on_furniture = 0
        for item in placed(room, *SMALL):
            place, low, _ = box_of(item)
            drawn = points_on(room, item.instance)
            assert drawn[:, 2].min() == pytest.approx(low, abs=0.002)
            corners = np.array(place.corners())
            under = [
                owner
                for owner, surface, z in places
                if owner != item.instance
                and abs(z - low) <= 0.002
                and (surface.distance_m(corners) < 0.001).all()
            ]
            assert under, f"{item.asset.name} floats at {low:.3f} m"
            on_furniture += 0 not in under
        assert on_furniture >= 8


def test_free_space_is_connected_and_clear(rooms):
    for room in rooms:
        free = room.free
        assert ndimage.label(free.open)[1] == 1 and free.area_m2 > 1.5
        cells = free.cells_m()
        assert free.holds(cells).all()
        for body in placed(room, "furniture", "person"):
            place, low, _ = box_of(body)
            assert low > 1.2 or place.distance_m(cells).min() >= 0.25 - 1e-6
        for x, y in cells:
            in_a_room = any(z.x0_m <= x <= z.x1_m and z.y0_m <= y <= z.y1_m for z in room.plan.zones)
            in_a_passage = any(
                w.patch(h.from_m, h.to_m, -WALL_THICKNESS_M, 0.0).distance_m(np.array([x, y])) == 0
                for w, h in room.plan.holes("passage")
            )
            assert in_a_room or in_a_passage


def test_all_stays_within_the_walls(rooms):
    for room in rooms:
        zones, height = room.plan.zones, room.plan.height_m
        for item in placed(room, *SMALL, "furniture", "person", "animal"):
            place, low, high = box_of(item)
            assert any(zone.holds(place.corners()) for zone in zones), item.asset.name
            assert low >= -1e-6 and high <= height


def test_things_can_be_seen_from_where_one_can_stand(rooms, things):
    for here in rooms:
        assert [p.asset for p in here.placed if p.instance in here.things] == list(things)
        for number in here.things:
            item = next(p for p in here.placed if p.instance == number)
            place, low, high = box_of(item)
            assert 0.15 < low < 1.65
            target = np.array([place.x_m, place.y_m, (low + high) / 2])
            cells = here.free.cells_m()
            distance = np.hypot(*(cells - target[:2]).T)
            near = cells[(distance > 0.5) & (distance < 2.5)][::31]
            eyes = torch.tensor(np.column_stack([near, np.full(len(near), 1.6)]))
            cameras = Cameras.pinhole(
                look_at(eyes, torch.tensor(target).expand(len(eyes), 3)), 64, 64, horizontal_fov_deg=25
            )
            ids = render(here.scene, cameras, here.lights).instance
            assert visible_boxes(ids, [number])[1].max() >= 8


def test_there_are_a_dozen_free_spots(rooms):
    for room in rooms:
        assert len(room.spots) >= 12
        solid = np.concatenate([points_on(room, p.instance) for p in room.placed])
        for number, spot in enumerate(room.spots):
            x, y, z = spot.position_m
            away = np.hypot(*(solid[:, :2] - [x, y]).T)
            beside = (solid[:, 2] > z + 0.003) & (solid[:, 2] < z + min(spot.clearance_m, 0.6))
            assert (away[beside] > spot.radius_m - 0.002).all()
            assert ((away < 0.03) & (np.abs(solid[:, 2] - z) < 0.002)).any(), "a spot is on something"
            for other in room.spots[:number]:
                apart = np.abs(other.position_m - spot.position_m)
                assert apart[2] > 0.05 or np.hypot(*apart[:2]) > max(spot.radius_m, other.radius_m)


def test_twins_are_never_together_and_look_alikes_are(train_library, things):
    """a and b of every family are twins, c and d are not."""
    assets = tuple(
        replace(a, twin=sum(map(ord, a.family)) * 1000 + ord("a") if a.name[-1] in "ab" else None)
        if a.kind == "object"
        else a
        for a in train_library.assets
    )
    with_twins = AssetLibrary(assets=assets, surfaces=train_library.surfaces, pictures=train_library.pictures)
    asked = [a for a in with_twins.kind("object") if a.name == things[0].name]
    absent = [a for a in with_twins.kind("object") if a.name == things[1].name]
    here = furnish(with_twins, np.random.default_rng(5), things=asked, avoid=absent, max_triangles=15_000)
    twins = [p.asset.twin for p in placed(here, "object") if p.asset.twin is not None]
    assert len(set(twins)) == len(twins) > 3
    assert absent[0].twin not in twins
    assert any(p.asset.family == asked[0].family and p.asset is not asked[0] for p in here.placed)


def test_two_twins_cannot_be_asked_for(train_library, things):
    pair = [replace(thing, twin=7) for thing in things[:2]]
    with pytest.raises(SynthError, match="twins"):
        furnish(train_library, np.random.default_rng(0), things=pair)


def test_what_fits_nowhere_is_refused(train_library, things):
    wardrobe = replace(things[0], hi_m=(1.5, 1.0, 2.0))
    with pytest.raises(SynthError, match="found no room for"):
        furnish(train_library, np.random.default_rng(0), things=[wardrobe], max_triangles=4_000)


def test_an_empty_library_still_makes_a_room():
    here = furnish(AssetLibrary(), np.random.default_rng(0), things=())
    assert here.free.area_m2 > 3
    assert {p.asset.family for p in here.placed} <= {"wall_board"}


def test_the_same_seed_makes_the_same_room(rooms, train_library, things):
    again = furnish(
        train_library, np.random.default_rng(SEEDS[0]), things=things, device="cpu", max_triangles=TRIANGLES
    )
    first, other = rooms
    assert torch.equal(again.scene.geometry.positions_m, first.scene.geometry.positions_m)
    assert torch.equal(again.scene.textures.texels, first.scene.textures.texels)
    assert torch.equal(again.lights.lamp_colours, first.lights.lamp_colours)
    assert [p.asset.name for p in again.placed] == [p.asset.name for p in first.placed]
    assert not torch.equal(first.scene.geometry.positions_m[:, :8], other.scene.geometry.positions_m[:, :8])


def test_rooms_keep_to_their_triangles(rooms):
    for room in rooms:
        assert 8_000 < room.scene.geometry.faces.shape[1] <= TRIANGLES


def test_extras_wait_out_of_sight(train_library):
    hand = train_library.kind("hand")[0]
    here = furnish(train_library, np.random.default_rng(4), things=(), extras=[hand], max_triangles=6_000)
    assert len(here.extras) == 1
    assert points_on(here, here.extras[0])[:, 2].max() < -5


def test_light_is_finite_and_well_exposed(rooms):
    for here in rooms:
        cells = here.free.cells_m()
        eyes = torch.tensor(np.column_stack([cells, np.full(len(cells), 1.6)]))[[0, -1, len(cells) // 2]]
        corners = np.array([[z.x0_m, z.y0_m, z.x1_m, z.y1_m] for z in here.plan.zones])
        size = corners[:, 2:].max(0) - corners[:, :2].min(0)
        middle = torch.tensor([size[0] / 2, size[1] / 2, 1.0]).double()
        cameras = Cameras.pinhole(look_at(eyes, middle.expand(3, 3)), 48, 48, horizontal_fov_deg=95)
        rgb = render(here.scene, cameras, here.lights, shadows=shadows_of(here, size_px=128)).rgb
        assert rgb.isfinite().all()
        assert 0.06 < rgb.clamp(max=1).mean() < 0.5


def test_light_changes_with_time_and_starts_no_fire(rooms):
    here, times = rooms[0], np.arange(0, 60, 0.5)
    changing = [light_changes(here, times, np.random.default_rng(k)) for k in range(6)]
    for lights in changing:
        assert lights.lamp_colours.shape == (len(times), *here.lights.lamps_m.shape)
        assert lights.sky_colour.shape == lights.ground_colour.shape == (len(times), 3)
        assert lights.lamp_colours.isfinite().all() and (lights.sky_colour > 0).all()
        assert (lights.lamp_colours <= 1.2 * here.lights.lamp_colours + 1e-6).all()
    assert any(lights.sky_colour.std(0).max() > 0 for lights in changing)
    cameras = Cameras.pinhole(look_at(torch.zeros(1, 3), torch.ones(1, 3)), 8, 8, horizontal_fov_deg=90)
    assert render(here.scene, cameras, changing[0].frames(7, 8)).rgb.isfinite().all()


def test_footprints_overlap_if_they_share_a_point():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 81), np.linspace(-1, 1, 81)), 2).reshape(-1, 2)
    for _ in range(300):
        a, b = (
            Footprint(x_m=x, y_m=y, half_x_m=half_x, half_y_m=half_y, yaw_rad=yaw)
            for x, y, half_x, half_y, yaw in rng.uniform(
                [-0.4, -0.4, 0.05, 0.05, -4], [0.4, 0.4, 0.4, 0.4, 4], (2, 5)
            )
        )
        if ((a.distance_m(grid) == 0) & (b.distance_m(grid) == 0)).any():
            assert a.overlaps(b) and b.overlaps(a)
        if a.overlaps(b):
            assert (a.distance_m(grid) + b.distance_m(grid)).min() < 0.05


def test_two_rooms_are_joined_by_their_passage():
    plans = [draw_floor_plan(np.random.default_rng(seed)) for seed in range(30)]
    joined = [plan for plan in plans if len(plan.zones) == 2]
    assert 5 <= len(joined) <= 25
    for plan in joined:
        free = free_space(plan, [])
        for zone in plan.zones:
            middle = np.array([(zone.x0_m + zone.x1_m) / 2, (zone.y0_m + zone.y1_m) / 2])
            assert free.holds(middle)


def test_a_simplified_mesh_fills_the_same_box(train_library):
    mesh = next(a for a in train_library.kind("object") if a.type == "toy").load()[0]
    light = simplified(mesh, 300)
    assert 100 < len(light.triangles) <= 300
    assert torch.allclose(light.positions_m.amin(0), mesh.positions_m.double().amin(0), atol=1e-6)
    assert torch.allclose(light.positions_m.amax(0), mesh.positions_m.double().amax(0), atol=1e-6)
    assert simplified(light, 300) is light
