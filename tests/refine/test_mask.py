"""Boxes of the answer are replaced by the bounds of masks that fit, and no others."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import torch
from evidence import BOX, FRAMES, SQUARE, box_mask, rule, seen
from scenes import box_at, quick_localizer, thing, write_scene

from lastseen.box import Box
from lastseen.errors import LastSeenError, WeightsError
from lastseen.index import Index
from lastseen.index.answers import answers_text
from lastseen.localizer import Localizer
from lastseen.masks import BoxMask
from lastseen.query import Query, View
from lastseen.refine import Mask
from lastseen.rule import Rule
from lastseen.video import Video

pytestmark = pytest.mark.usefixtures("one_thread", "remembered")
HERE, THERE = (40, 60), (210, 90)
PLACES = [None] * 4 + [HERE] * 6 + [None] * 6 + [THERE] * 6 + [None] * 4
TIGHT = Box(44, 46, 78, 76)  # IoU .64 with BOX


@dataclass
class Pictures:
    """A FrameAccess of grey pictures whose masks all have the same bounds."""

    bounds: Box | None = TIGHT  # in pixels of the frame
    predicted_iou: float = 0.9
    frames: int = FRAMES
    asked: list[int] = field(default_factory=list)
    prompts: list[tuple[int, Box]] = field(default_factory=list)  # side of the window, prompt in it
    letterbox: Any = SQUARE
    clip_length: int = 30

    def pictures(self, start, stop):
        for frame in range(start, min(stop, self.frames)):
            self.asked.append(frame)
            x, y = np.meshgrid(np.arange(160), np.arange(160))
            yield np.stack([x, y, 0 * x], -1).astype(np.uint8)  # a pixel says where it is

    def segment(self, pictures, boxes):
        self.prompts += [(len(picture), box) for picture, box in zip(pictures, boxes)]
        found = []
        for picture in pictures:
            x, y = map(int, picture[0, 0, :2])
            shifted = None if self.bounds is None else self.bounds.shifted(-x, -y)
            found.append(box_mask(picture, shifted, self.predicted_iou))
        return found

    def vectors(self, start, stop):
        raise AssertionError

    localize = vectors


def refined(video: Pictures, step: Mask = Mask(), evidence=None, **fields: Any) -> np.ndarray:
    evidence = evidence or seen(20, 30)
    return step(evidence, rule(**fields).extract, video).boxes_px


def test_masks_replace_the_boxes_of_the_sighting_and_no_others():
    before = seen(20, 30)
    kept = before.boxes_px.copy()
    after = refined(Pictures(), evidence=before)
    assert np.allclose(after[20:31], TIGHT.xyxy)
    assert np.array_equal(np.delete(after, np.s_[20:31], 0), np.delete(kept, np.s_[20:31], 0))
    assert np.array_equal(before.boxes_px, kept)


def test_only_the_last_sighting_that_counts_as_seen_is_segmented():
    evidence = seen(20, 30)
    logits = evidence.logits.copy()
    logits[60:71] = 1.5
    evidence = replace(evidence, logits=logits)
    refined(video := Pictures(), evidence=evidence)
    assert video.asked == list(range(60, 71))
    refined(video := Pictures(), evidence=evidence, threshold=0.85)  # only the first is sure enough
    assert video.asked == list(range(20, 31))
    refined(video := Pictures(), evidence=evidence, threshold=0.99)  # the best guess
    assert video.asked == list(range(60, 71))


def test_of_a_long_sighting_the_last_frames_are_segmented():
    refined(video := Pictures(), Mask(max_frames=7, batch_frames=3))
    assert video.asked == list(range(24, 31))


def test_a_video_that_ends_early_keeps_the_other_boxes():
    after = refined(Pictures(frames=25))
    assert np.allclose(after[24], TIGHT.xyxy)
    assert np.allclose(after[25], BOX)


@pytest.mark.parametrize(
    "change",
    [
        {"bounds": None},
        {"predicted_iou": 0.3},
        {"bounds": Box(40, 40, 50, 50)},  # a part of the thing
        {"bounds": Box(10, 10, 150, 150)},  # the surroundings
        {"bounds": Box(90, 90, 130, 130)},  # another thing
    ],
)
def test_a_mask_that_does_not_fit_changes_nothing(change):
    assert np.allclose(refined(Pictures(**change))[25], BOX)


def test_the_window_is_around_the_box_and_the_prompt_a_little_larger():
    refined(video := Pictures(), Mask(window_ratio=2.0, prompt_ratio=1.1))
    side, prompt = video.prompts[0]
    assert side == 80
    assert np.allclose(prompt.xyxy, Box(*BOX).expanded(1.1).shifted(-20, -20).xyxy)
    refined(video := Pictures(), Mask(window_ratio=9.0))
    assert video.prompts[0][0] == 160  # not more than the picture


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match=r"mask\.max_frames must be a whole number"):
        Mask(max_frames=0)
    with pytest.raises(ValueError, match=r"mask\.min_box_iou must be a number from 0 to 1"):
        Mask(min_box_iou=2)


def test_a_rule_with_masks_is_kept_and_masks_come_last():
    with_mask = Rule().with_step("extend", min_cosine=0.5).with_mask()
    assert [step.name for step in with_mask.refinement] == ["extend", "mask"]
    assert with_mask.with_mask() == with_mask == Rule.from_dict(with_mask.to_dict())
    assert with_mask.without(["mask"]).with_step("zoom", sightings=1).refinement[-1].name == "extend"


# --- The picture of the question ---


@pytest.mark.parametrize("corner", [(0, 0), (60, 40), (148, 92)])
def test_the_mask_of_a_question_is_in_the_pixels_of_its_picture(corner):
    x, y = corner
    box, seen = Box(x, y, x + 52, y + 28), []

    def segment(pictures, boxes):
        seen.append((pictures[0].shape, boxes[0]))
        return [box_mask(pictures[0], boxes[0].expanded(0.5))]

    mask = Mask().of_view(View(np.zeros((120, 200, 3), np.uint8), box), segment)
    wanted = np.zeros((120, 200), bool)
    x1, y1, x2, y2 = map(round, box.expanded(0.5).xyxy)
    wanted[y1:y2, x1:x2] = True
    assert mask.shape == (120, 200) and np.array_equal(mask, wanted)
    (shape, prompt), *rest = seen
    assert not rest and shape == (104, 104, 3) and prompt.width == 52


def test_a_mask_at_another_resolution_is_scaled_to_the_picture():
    quarter = BoxMask(mask=np.eye(2, dtype=bool), bounds=Box(0, 0, 80, 80), predicted_iou=0.9)
    view = View(np.zeros((80, 80, 3), np.uint8), Box(20, 20, 60, 60))
    assert np.array_equal(Mask().of_view(view, lambda *_: [quarter]), np.kron(np.eye(2), np.ones((40, 40))))


def test_a_question_without_surroundings_or_with_an_unsure_mask_has_none():
    picture = np.zeros((80, 100, 3), np.uint8)
    view = View(picture, Box(20, 20, 60, 60))
    assert Mask().of_view(view, lambda pictures, boxes: [box_mask(pictures[0], boxes[0], 0.6)]) is None
    assert Mask().of_view(view, lambda pictures, boxes: [box_mask(pictures[0], None)]) is None

    def never(pictures, boxes):
        raise AssertionError

    assert Mask().of_view(View(picture, Box(2, 2, 98, 78)), never) is None


def test_a_localizer_with_masks_knows_the_thing_in_its_picture_by_one(localizer):
    masks = localizer.with_rule(localizer.rule.with_mask())
    picture = np.random.default_rng(0).integers(0, 256, (160, 240, 3), np.uint8)
    view = View(picture, Box(60, 40, 150, 130))
    counted = masks._segmenter.count
    (plain,), (known,) = (one.encode_query(Query((view,))) for one in (localizer, masks))
    assert masks._segmenter.count == counted + 1
    given = replace(view, mask=np.zeros((160, 240), bool))
    given.mask[49:121, 69:141] = True  # what the segmenter says: four fifths of each side
    (own,) = localizer.encode_query(Query((given,)))
    masks.encode_query(Query((given,)))
    assert masks._segmenter.count == counted + 1  # a mask that is given is not looked for
    assert torch.equal(own.background, known.background)
    assert torch.equal(plain.vectors, known.vectors) and torch.equal(plain.on_thing, known.on_thing)
    assert known.background.any() and not torch.equal(plain.background, known.background)


# --- With videos ---


class Shrinking:
    """A segmenter whose masks are a tenth smaller than their prompts."""

    def __init__(self):
        self.count = 0

    def masks(self, pictures, boxes):
        self.count += len(pictures)
        return [box_mask(picture, box.expanded(0.8)) for picture, box in zip(pictures, boxes)]


@pytest.fixture(scope="module")
def localizer():
    made = quick_localizer()
    made._segmenter = Shrinking()
    return made


@pytest.fixture
def video(tmp_path):
    return write_scene(tmp_path / "walk.mp4", PLACES)


def test_an_answer_has_boxes_by_masks_and_says_so(localizer, video):
    query = Query.from_array(thing())
    plain = localizer.ask(Video(video), query)
    masked = localizer.with_rule(localizer.rule.with_mask()).ask(Video(video), query)
    assert masked.steps == (*plain.steps, "mask")
    assert masked.last.first_frame == plain.last.first_frame
    assert masked.sightings[:-1] == plain.sightings[:-1]
    assert masked.last.boxes[2].area < 0.9 * plain.last.boxes[2].area
    assert masked.last.boxes[2].iou(box_at(THERE)) > 0.3


def test_an_index_gives_the_same_boxes_and_segments_once(localizer, video, tmp_path):
    query, masks = Query.from_array(thing()), localizer.with_rule(localizer.rule.with_mask())
    alone = masks.ask(Video(video), query)
    with Index(tmp_path / "index", localizer=masks) as index:
        index.add(video)
        masks._segmenter.count = 0
        answer = index.ask(query)  # its picture shows nothing but the thing, so that is not segmented
        assert answer.last.boxes == alone.last.boxes
        assert answer.steps == alone.steps
        assert masks._segmenter.count == len(answer.last.boxes)
        video.unlink()
        answer = index.ask(query)
        assert answer.video_missing and "mask" not in answer.steps
        assert "is not there" in answers_text({"thing": [answer]}, False)


def test_masks_without_weights_are_an_error_before_anything_is_searched(monkeypatch, tmp_path):
    monkeypatch.setenv("LASTSEEN_MODELS", str(tmp_path))
    with pytest.raises(WeightsError, match=r"masks need MobileSAM.*lastseen models add mobile-sam"):
        Localizer.from_pretrained("training-free", device="cpu", masks=True)
    with pytest.raises(LastSeenError, match="the paper's procedure refines nothing"):
        Localizer.from_pretrained(paper=True, masks=True)
    assert Localizer.from_pretrained("training-free", device="cpu", masks=True, skip=["mask"]).rule


def test_masks_without_weights_are_an_error_for_a_localizer_made_by_hand(monkeypatch, tmp_path, video):
    monkeypatch.setenv("LASTSEEN_MODELS", str(tmp_path))
    made = quick_localizer()
    with pytest.raises(WeightsError, match="masks need MobileSAM"):
        made.with_rule(made.rule.with_mask()).ask(Video(video), Query.from_array(thing()))
