"""The training-free model: the place where all of the thing is, not one where some patch of it is."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lastseen.box import Box
from lastseen.model import BackboneConfig, EncodedQuery, TrainingFreeConfig, TrainingFreeModel, training_free

pytestmark = pytest.mark.usefixtures("one_thread")

PATCH, ROWS, COLUMNS = 14, 18, 32
RED, GREEN, BLUE, YELLOW = COLOURS = ((250, 20, 20), (20, 250, 20), (20, 20, 250), (250, 250, 20))
BLACK, PINK = (0, 0, 0), (250, 120, 250)
CONFIG = TrainingFreeConfig(query_scales_px=(28, 56, 112), query_canvas_px=(168, 168))
THING = Box(56, 56, 112, 112)  # in its picture


class MeanColours(nn.Module):
    """A backbone that knows the mean colour of each patch and nothing of its neighbours."""

    config = BackboneConfig(dim=3, depth=1, heads=1)

    def forward(self, pictures, groups=None):
        return F.avg_pool2d(pictures, PATCH)


def model(**changes):
    return TrainingFreeModel(MeanColours(), replace(CONFIG, **changes)).eval()


def frame(colour=BLACK, rows=ROWS, columns=COLUMNS):
    """[h, w, 3] uint8, whole patches"""
    return torch.tensor(colour, dtype=torch.uint8).repeat(rows * PATCH, columns * PATCH, 1)


def paint(picture, colour, row, column, rows, columns):
    """Rows and columns in patches"""
    place = slice(row * PATCH, (row + rows) * PATCH), slice(column * PATCH, (column + columns) * PATCH)
    picture[place] = torch.tensor(colour, dtype=torch.uint8)


def put_thing(picture, row, column):
    """Four squares of 2 x 2 patches, each of one colour"""
    for number, colour in enumerate(COLOURS):
        paint(picture, colour, row + 2 * (number // 2), column + 2 * (number % 2), 2, 2)


def picture_of_thing():
    picture = frame(rows=12, columns=12)
    put_thing(picture, 4, 4)
    return picture


def bands():
    """A frame in which every patch is one of the thing's"""
    picture = frame()
    for number, colour in enumerate(COLOURS):
        paint(picture, colour, 0, 8 * number, ROWS, 8)
    return picture


def found(model, pictures, query):
    """Boxes [t, 4] in patches, logits [t]"""
    predictions = model.localize_clip(model.encode_frames(torch.stack(pictures)), query)
    boxes, logits = predictions.boxes[0, :, 0], predictions.logits[0, :, 0]
    return boxes * torch.tensor([COLUMNS, ROWS, COLUMNS, ROWS]), logits


@pytest.mark.parametrize("place", [(7, 2), (2, 26), (12, 10)])
def test_a_thing_whose_patches_are_all_over_is_found_where_it_is_complete(place):
    row, column = place
    picture = bands()
    put_thing(picture, row, column)
    free = model()
    query = free.encode_query(picture_of_thing(), THING)
    best, _ = free.evidence(free.encode_frames(picture[None]), query)
    assert best.min() > 0.99  # no single patch tells where it is
    box = Box(*found(free, [picture], query)[0][0].tolist())
    assert box.iou(Box.from_xywh(column, row, 4, 4)) > 0.25


def test_the_complete_thing_scores_higher_than_its_parts_far_apart():
    together, apart = frame(), frame()
    put_thing(together, 7, 14)
    for number, colour in enumerate(COLOURS):
        paint(apart, colour, 2 + 12 * (number // 2), 2 + 26 * (number % 2), 2, 2)
    free = model()
    _, (whole, parts, nothing) = found(
        free, [together, apart, frame(PINK)], free.encode_query(picture_of_thing(), THING)
    )
    assert whole > parts + 1 and parts > nothing + 1


def test_background_in_the_box_of_the_query_does_not_cover_the_thing():
    asked = frame(PINK, 12, 12)
    put_thing(asked, 4, 4)
    free = model(query_scales_px=(42, 84))
    query = free.encode_query(asked, Box(56, 28, 112, 112))  # a third of the box is background
    everything = replace(query, background=torch.zeros_like(query.background))
    with_background, own = frame(PINK), frame(BLACK)
    put_thing(own, 7, 14)
    features = free.encode_frames(torch.stack([with_background, own]))
    (best, covered), (_, covered_by_all) = (free.evidence(features, view) for view in (query, everything))
    assert best[0].min() > 0.99  # background patches are compared, but not covered:
    assert covered[0].max() < covered_by_all[0].max() - 0.2
    assert covered[1].max() > covered_by_all[1].max()  # the thing in another place is all there


def test_a_mask_says_which_patches_are_background():
    picture, free = picture_of_thing(), model()
    mask = torch.zeros(picture.shape[:2], dtype=torch.bool)
    mask[:, : round((THING.x1 + THING.x2) / 2)] = True  # the left half
    guessed, known = free.encode_query(picture, THING), free.encode_query(picture, THING, mask)
    assert torch.equal(guessed.vectors, known.vectors)
    for number, side in enumerate((2, 4, 8)):
        right = torch.zeros(8, 8, dtype=torch.bool)
        right[:side, side // 2 : side] = True
        assert torch.equal(known.background[number], right)


def test_a_query_keeps_the_layout_of_the_thing_at_every_scale():
    query = model().encode_query(picture_of_thing(), THING)
    assert query.vectors.shape == (3, 3, 8, 8) and query.on_thing.shape == query.background.shape == (3, 8, 8)
    for number, side in enumerate((2, 4, 8)):
        shown = torch.zeros(8, 8, dtype=torch.bool)
        shown[:side, :side] = True
        assert torch.equal(query.on_thing[number], shown)
        corner = query.vectors[number, :, 0, 0]
        assert not torch.allclose(corner, query.vectors[number, :, side - 1, side - 1], atol=0.1)
    assert torch.equal(query.vectors.norm(dim=1) > 0, query.on_thing)
    assert model().query_vectors(query).shape == (4 + 16 + 64, 3)


def test_coverage_compares_a_few_patches_of_each_scale(monkeypatch):
    compared = []
    real = training_free.coverage

    def counting(cosine, weights, sides):
        compared.append((cosine.shape[2], weights.shape[1]))
        return real(cosine, weights, sides)

    monkeypatch.setattr(training_free, "coverage", counting)
    free = model(query_scales_px=(28, 56, 84, 112))
    found(free, [frame()], free.encode_query(picture_of_thing(), THING))
    assert compared == [(4, 4), (16, 16), (9, 9), (16, 16)]


def test_frames_do_not_depend_on_each_other_or_on_how_the_query_was_kept():
    pictures = [frame(), bands(), picture_of_thing().repeat(2, 3, 1)[: ROWS * PATCH, : COLUMNS * PATCH]]
    pictures[2] = F.pad(pictures[2], (0, 0, 0, COLUMNS * PATCH - pictures[2].shape[1]))
    free = model()
    query = free.encode_query(picture_of_thing(), THING)
    boxes, logits = found(free, pictures, query)
    kept = query.to(dtype=torch.float64).as_batch().row(0).to(dtype=torch.float32)
    assert isinstance(kept, EncodedQuery)
    for number, picture in enumerate(pictures):
        box, logit = found(free, [picture], kept)
        torch.testing.assert_close(box[0], boxes[number])
        torch.testing.assert_close(logit[0], logits[number])
    features = free.encode_frames(torch.stack(pictures))
    torch.testing.assert_close(free.localize_run(features, query, 0, 1).logits[0, :, 0], logits[1:])


def test_a_thing_narrower_than_a_patch_can_be_asked_for():
    free = model()
    query = free.encode_query(picture_of_thing(), Box(70, 56, 73, 112))
    boxes, logits = found(free, [bands()], query)
    assert query.on_thing.any((1, 2)).all() and logits.isfinite().all() and boxes.isfinite().all()


def test_what_decides_answers_is_in_the_fingerprint():
    changes = ({}, {"coverage_windows": (1.0,)}, {"background_cosine": 0.5}, {"even_similarity": 0.7})
    assert len({model(**changed).fingerprint() for changed in changes}) == len(changes)
