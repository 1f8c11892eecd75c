import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastseen.box import Box, Letterbox

sides = st.integers(1, 4000)


@given(sides, sides, st.integers(0, 2**32 - 1))
def test_a_letterbox_gives_back_the_pixels_it_was_given(width, height, seed):
    letterbox = Letterbox.square(width, height, 448)
    corners = np.random.default_rng(seed).uniform(0, 1, (5, 4)) * [width, height, width, height]
    np.testing.assert_allclose(letterbox.to_px(letterbox.to_unit(corners)), corners, atol=1e-6)


@given(sides, sides)
def test_the_content_of_a_letterbox_lies_inside_its_canvas(width, height):
    for letterbox in (Letterbox.square(width, height, 448), Letterbox.snug(width, height, 448, 14)):
        assert letterbox.left >= 0
        assert letterbox.top >= 0
        assert letterbox.left + letterbox.content_width <= letterbox.canvas_width
        assert letterbox.top + letterbox.content_height <= letterbox.canvas_height


@given(sides, sides)
def test_a_snug_canvas_is_whole_patches_with_less_than_one_of_padding(width, height):
    letterbox = Letterbox.snug(width, height, 448, 14)
    assert letterbox.canvas_width % 14 == letterbox.canvas_height % 14 == 0
    assert max(letterbox.canvas_width, letterbox.canvas_height) == 448
    assert letterbox.canvas_width - letterbox.content_width < 14
    assert letterbox.canvas_height - letterbox.content_height < 14


def test_boxes_outside_the_frame_are_clipped_to_it():
    letterbox = Letterbox.square(1920, 1080, 448)
    assert letterbox.to_px(np.array([-1.0, -1.0, 2.0, 2.0])).tolist() == [0, 0, 1920, 1080]


def test_iou_of_boxes():
    assert Box(0, 0, 2, 2).iou(Box(1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert Box(0, 0, 2, 2).iou(Box(2, 0, 3, 2)) == 0  # they touch
    assert Box(1, 1, 1, 1).iou(Box(1, 1, 1, 1)) == 0  # no area


def test_box_arithmetic():
    box = Box.from_xywh(10, 20, 30, 40)
    assert box == Box(10, 20, 40, 60)
    assert box.area == 1200
    assert box.expanded(2) == Box(-5, 0, 55, 80)
    assert box.scaled(2, 0.5) == Box(20, 10, 80, 30)
    assert box.shifted(-10, -20) == Box(0, 0, 30, 40)
    assert box.clipped(20, 30) == Box(10, 20, 20, 30)
