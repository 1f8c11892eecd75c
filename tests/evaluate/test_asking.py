"""Ways of asking, and what counts as plain and as small."""

import numpy as np
import pytest

from lastseen.box import Box
from lastseen.evaluate.asking import PLAIN_TEXTURE, asked_as, is_plain, is_small, texture
from lastseen.query import Query, View
from lastseen.track import ResponseTrack


def picture(height=120, width=160):
    return np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)


def query(box=Box(60, 40, 90, 60)):
    return Query.from_array(picture(), box, asked_at=3.0)


def box_of(view):
    x1, y1, x2, y2 = map(round, view.box.xyxy)
    return view.picture[y1:y2, x1:x2]


def test_a_photo_is_asked_as_it_is():
    asked = query()
    assert asked_as(asked, "photo") is asked


def test_a_margin_is_of_the_longer_side_and_on_every_side():
    (view,) = asked_as(query(), "margin").views
    assert view.picture.shape == (20 + 2 * 12, 30 + 2 * 12, 3)
    assert view.box == Box(12, 12, 42, 32)


def test_a_margin_ends_at_the_picture_and_the_box_still_holds_the_same_pixels():
    asked = query(Box(2, 100, 32, 118))
    (view,) = asked_as(asked, "margin").views
    assert view.box == Box(2, 12, 32, 30)
    assert view.picture.shape == (32, 44, 3)
    assert np.array_equal(box_of(view), box_of(asked.views[0]))


def test_a_crop_is_the_thing_and_nothing_else():
    asked = query()
    (view,) = asked_as(asked, "crop").views
    assert view.box == Box(0, 0, 30, 20)
    assert np.array_equal(view.picture, picture()[40:60, 60:90])


def test_a_crop_of_fractions_of_pixels_holds_them_whole():
    (view,) = asked_as(query(Box(60.4, 40.6, 89.2, 59.1)), "crop").views
    assert np.array_equal(view.picture, picture()[40:60, 60:90])


@pytest.mark.parametrize("way", ["margin", "crop"])
def test_the_tiniest_thing_in_a_corner_can_be_asked_every_way(way):
    (view,) = asked_as(query(Box(158, 118, 160, 120)), way).views
    assert min(view.picture.shape[:2]) >= 2


def test_time_and_all_views_are_kept():
    asked = Query.joined([query(), query(Box(0, 0, 10, 10))], asked_at=7.0)
    cropped = asked_as(asked, "crop")
    assert cropped.asked_at == 7.0
    assert [v.picture.shape[:2] for v in cropped.views] == [(20, 30), (10, 10)]


def test_another_way_is_a_mistake():
    with pytest.raises(ValueError, match="photo, margin, crop"):
        asked_as(query(), "sketch")


def grating(side, cycles):
    wave = 127 + 100 * np.sin(np.arange(side) / side * 2 * np.pi * cycles)
    return np.broadcast_to(wave[None, :, None], (side, side, 3)).astype(np.uint8)


def whole(image):
    return View(image, Box(0, 0, image.shape[1], image.shape[0]))


def test_a_uniform_thing_has_no_texture_and_is_plain():
    view = whole(np.full((80, 90, 3), 200, np.uint8))
    assert texture(view) == pytest.approx(0, abs=1e-9)
    assert is_plain(view)


def test_a_thing_with_more_detail_has_more_texture():
    assert texture(whole(grating(64, 1))) < PLAIN_TEXTURE < texture(whole(grating(64, 6)))
    assert not is_plain(whole(grating(64, 6)))


def test_texture_is_that_of_the_mean_gradient():
    ramp = np.broadcast_to(np.arange(64)[None, :, None] * 3, (40, 64, 3)).astype(np.uint8)
    assert texture(whole(ramp)) == pytest.approx(3.0)


def test_texture_hardly_depends_on_the_resolution():
    for side in (32, 512):
        assert texture(whole(grating(side, 3))) == pytest.approx(texture(whole(grating(64, 3))), rel=0.05)


def test_what_is_around_the_box_does_not_count():
    image = picture()
    image[40:60, 60:90] = 99
    assert texture(View(image, Box(60, 40, 90, 60))) == pytest.approx(0, abs=1e-9)


def test_a_thing_is_small_if_its_largest_box_is():
    def track(*sides):
        boxes = tuple(Box(0, 0, side, side) for side in sides)
        return ResponseTrack(first_frame=0, fps=5.0, boxes=boxes, score=1.0)

    assert is_small(track(10, 63))
    assert not is_small(track(10, 64))
