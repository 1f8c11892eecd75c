"""The box that is suggested in a photo, with a model that says what is to be seen."""

import numpy as np
import pytest
import torch

from lastseen.box import Box
from lastseen.masks.suggestion import INPUT_PX, prompts, suggested

CELLS = INPUT_PX // 4


class Seeing:
    """Every prompt that touches one of the things gives its mask. Boxes in the unit square of the canvas."""

    def __init__(self, *things: tuple[tuple[float, float, float, float], float, float]) -> None:
        self.things = things

    def encode(self, pictures):
        assert pictures.shape == (1, 3, INPUT_PX, INPUT_PX)
        return torch.zeros(1, 8, INPUT_PX // 16, INPUT_PX // 16)

    def segment(self, embedding, boxes):
        logits, iou = torch.full((len(boxes), 4, CELLS, CELLS), -9.0), torch.zeros(len(boxes), 4)
        for n, prompt in enumerate(boxes.tolist()):
            for k, ((x1, y1, x2, y2), predicted, edge) in enumerate(self.things, 1):
                if Box(*prompt).iou(Box(x1, y1, x2, y2)) > 0:
                    rows, columns = (
                        slice(round(a * CELLS), round(b * CELLS)) for a, b in ((y1, y2), (x1, x2))
                    )
                    logits[n, k, rows, columns] = edge
                    iou[n, k] = predicted
        return logits, iou


WIDE = np.zeros((300, 400, 3), np.uint8)  # fills the upper three quarters of the canvas


def test_the_thing_near_the_middle_is_suggested_in_pixels_of_the_picture():
    middle, corner = ((0.375, 0.25, 0.625, 0.5), 0.9, 9.0), ((0.0, 0.0, 0.25, 0.25), 0.95, 9.0)
    assert suggested(Seeing(middle, corner), WIDE) == Box(150, 100, 250, 200)


def test_a_mask_that_the_model_is_surer_of_and_that_has_clear_edges_is_preferred():
    left, right = (0.25, 0.25, 0.45, 0.5), (0.55, 0.25, 0.75, 0.5)
    sure = suggested(Seeing((left, 0.7, 9.0), (right, 0.95, 9.0)), WIDE)
    clear = suggested(Seeing((left, 0.9, 0.5), (right, 0.9, 9.0)), WIDE)
    assert sure == clear and sure.x1 > 200


@pytest.mark.parametrize(
    "thing",
    [
        ((0.0, 0.0, 1.0, 0.75), 0.99, 9.0),  # all of the picture
        ((0.5, 0.375, 0.51, 0.385), 0.99, 9.0),  # a speck
        ((0.375, 0.25, 0.625, 0.5), 0.3, 9.0),  # the model does not believe in it
        ((0.375, 0.25, 0.625, 0.5), 0.99, 0.5),  # no edges
    ],
)
def test_nothing_is_suggested_where_nothing_stands_out(thing):
    assert suggested(Seeing(thing), WIDE) is None
    assert suggested(Seeing(), WIDE) is None


def test_what_is_beside_the_picture_on_the_canvas_is_no_part_of_it():
    found = suggested(Seeing(((0.375, 0.375, 0.625, 1.0), 0.99, 9.0)), WIDE)
    assert found == Box(150, 150, 250, 300)


@pytest.mark.parametrize("width, height", [(400, 300), (300, 400), (4000, 90), (3, 3)])
def test_prompts_are_inside_the_picture(width, height):
    for box in prompts(width, height):
        assert 0 <= box.x1 < box.x2 <= width and 0 <= box.y1 < box.y2 <= height
