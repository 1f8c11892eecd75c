import numpy as np
import pytest

from lastseen_synth.cutouts import Cutout, Outline, matte_inside, trace


def test_a_traced_outline_has_the_area_of_its_shape():
    y, x = np.mgrid[:33, :33] / 32
    points, triangles = trace(0.35 - np.hypot(x - 0.5, y - 0.5))
    a, b, c = (points[triangles[:, i]] for i in range(3))
    areas = ((b - a)[:, 1] * (c - a)[:, 0] - (b - a)[:, 0] * (c - a)[:, 1]) / 2
    assert (areas > 0).all()  # counter-clockwise with y up
    assert areas.sum() == pytest.approx(np.pi * 0.35**2, rel=0.01)
    assert np.hypot(*(points - 0.5).T).max() < 0.355


def test_every_random_outline_is_inside_its_picture_and_large_enough():
    rng = np.random.default_rng(0)
    for _ in range(50):
        outline = Outline.draw(rng)
        for drawn in (outline, outline.varied(rng)):
            inside = drawn.inside(16, 16) > 0
            assert 0.1 < inside.mean() < 0.9
            assert not inside[[0, -1]].any() and not inside[:, [0, -1]].any()


def test_a_thing_before_a_plain_border_is_cut_out_along_its_edge():
    y, x = np.mgrid[:120, :160]
    disc = np.hypot(x - 80, y - 60) < 40
    image = np.where(disc[..., None], np.array([180, 40, 60]), 245).astype(np.uint8)
    cut = Cutout.draw(image, np.random.default_rng(0))
    assert cut.outline is None and cut.varied(np.random.default_rng(1)) is cut
    assert (cut.inside > 0).mean() == pytest.approx(disc.mean(), rel=0.12)
    mesh = cut.card(0.3, bend=0.2)
    width, depth, height = (mesh.positions_m.amax(0) - mesh.positions_m.amin(0)).tolist()
    assert max(width, height) == pytest.approx(0.3) and width == pytest.approx(height, rel=0.05)
    assert 0 < depth < 0.05 and mesh.positions_m[:, 2].min() == 0
    colours = image[((1 - mesh.uv[:, 1]) * 120).long(), (mesh.uv[:, 0] * 160).long()]
    assert (colours[:, 0] == 180).mean() > 0.97  # nothing of the border came along


def test_a_photograph_without_a_plain_border_is_not_matted():
    assert matte_inside(np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)) is None
    assert matte_inside(np.full((32, 64, 3), 90, np.uint8)) is None  # nothing in it
