"""Training clips out of annotated videos: boxes where the thing is, and the query as at inference."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from scenes import HEIGHT, SIDE, WIDTH, write_scene

from lastseen.box import Letterbox
from lastseen.errors import AnnotationError, TrainError, VideoError
from lastseen.model.inputs import MEAN, STD
from lastseen.train.augment import NO_AUGMENT
from lastseen.train.files_data import FilesData, VideoClips, draw_start
from lastseen.train.recipes import tiny

PLACES = [(20, 30), (200, 90)]
SHOWN = range(8, 13)
FRAMES = 24
MODEL = replace(tiny().model, image_size=224, clip_length=4, padding=0.5)


def box(frame, place):
    """On a 640x360 frame: the videos have half that size, so scaling is tested too."""
    sides = {"x": 2 * place[0], "y": 2 * place[1], "width": 2 * SIDE, "height": 2 * SIDE}
    return {"frame_number": frame, **sides, "original_width": 640, "original_height": 360}


def annotation(place, **more):
    query = {
        "is_valid": True,
        "query_frame": 20,
        "object_title": "thing",
        "visual_crop": box(9, place),
        "response_track": [box(frame, place) for frame in SHOWN],
        **more,
    }
    return {"annotation_uid": "a", "query_sets": {"1": query}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("clips")
    videos = []
    for number, place in enumerate(PLACES):
        shown = [place if frame in SHOWN else None for frame in range(FRAMES)]
        write_scene(root / f"clip{number}.mp4", shown)
        clip = {
            "clip_uid": f"clip{number}",
            "video_start_sec": 0.0,
            "video_end_sec": FRAMES / 5,
            "annotations": [annotation(place)],
        }
        videos.append({"video_uid": f"video{number}", "clips": [clip]})
    (root / "vq.json").write_text(json.dumps({"version": "1", "videos": videos}))
    return root


def source(folder, size=2, **fields):
    fields = {"augment": NO_AUGMENT, "workers": 2, "absent_share": 0.0, **fields}
    data = FilesData(annotations=str(folder / "vq.json"), videos=str(folder), **fields)
    return VideoClips.open(data, MODEL, size, seed=0)


def yellow(frames):
    """Where the thing's bright border is, in the unit square of the canvas."""
    pictures = frames * torch.tensor(STD)[:, None, None] + torch.tensor(MEAN)[:, None, None]
    found = (pictures[0] > 0.8) & (pictures[2] < 0.3)
    rows, columns = found.nonzero(as_tuple=True)
    return torch.tensor([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]) / 224


def test_boxes_are_where_the_thing_is_and_only_there(folder):
    clips = source(folder)
    for step in range(6):
        batch = clips.batch(step)
        assert batch.clips.shape == (2, 4, 3, 224, 224)
        assert batch.visible.any(1).all()
        assert not (batch.visible & ~batch.known).any()
        assert batch.unrelated.tolist() == [[False, True], [True, False]]
        for clip, boxes, visible in zip(batch.clips, batch.boxes_unit, batch.visible):
            for frame, where in zip(clip[visible], boxes[visible]):
                assert torch.allclose(yellow(frame), where, atol=3 / 224)
            for frame in clip[~visible]:
                assert (frame[0] > (0.8 - MEAN[0]) / STD[0]).sum() == 0


def test_the_frame_is_padded_with_the_models_grey_and_the_query_is_the_square_around_the_thing(folder):
    batch = source(folder).batch(0)
    letterbox = Letterbox.square(WIDTH, HEIGHT, 224)
    grey = (torch.tensor(0.5) - torch.tensor(MEAN)) / torch.tensor(STD)
    above = batch.clips[:, :, :, : letterbox.top]
    assert torch.allclose(above, grey[:, None, None].expand_as(above))
    for query in batch.queries[:, 0]:
        assert yellow(query).tolist() == pytest.approx([0, 0, 1, 1], abs=0.03)


def test_boxes_move_with_the_pixels_when_clips_are_augmented(folder):
    augment = replace(NO_AUGMENT, flip=0.5, crop_scale=0.66, crop_ratio=0.2)
    clips = source(folder, augment=augment)
    places = set()
    for step in range(6):
        batch = clips.batch(step)
        for clip, boxes, visible in zip(batch.clips, batch.boxes_unit, batch.visible):
            for frame, where in zip(clip[visible], boxes[visible]):
                assert torch.allclose(yellow(frame), where, atol=4 / 224)
                places.add(tuple(where.tolist()))
    assert len(places) > 6


def test_a_batch_depends_on_the_step_alone_and_a_share_is_its_rows(folder):
    one, other = source(folder), source(folder)
    later = one.batch(3)
    for step in range(3):
        other.batch(step)
    again = other.batch(3)
    assert torch.equal(later.clips, again.clips)
    share = source(folder).share(1, 2).batch(3)
    assert torch.equal(share.clips, later.clips[1:])
    assert torch.equal(share.boxes_unit, later.boxes_unit[1:])
    assert not torch.equal(one.batch(4).clips, later.clips)


def test_clips_without_the_thing_come_in_their_share_from_between_the_track_and_the_question(folder):
    clips = source(folder)
    example = clips.examples[0]
    rng = np.random.default_rng(0)
    starts = np.array([draw_start(example, FRAMES, 4, 0.3, rng) for _ in range(600)])
    shown = np.array([len(set(SHOWN) & set(range(start, start + 4))) for start in starts])
    assert 0.25 < (shown == 0).mean() < 0.35
    assert shown[shown > 0].min() == 3  # most of a clip shows it, at any phase
    assert set(starts[shown > 0]) == {7, 8, 9, 10}
    # Earlier frames may show an occurrence that is not labelled; the question is asked at frame 20.
    assert set(starts[shown == 0]) == {13, 14, 15, 16}
    tracked = replace(example.question, occurrences=(example.question.truth,))
    open_ended = example._replace(question=tracked)
    starts = {draw_start(open_ended, FRAMES, 4, 1.0, rng) for _ in range(300)}
    assert starts == {
        *range(5),
        *range(13, FRAMES - 3),
    }  # every occurrence is labelled: outside it, it is absent
    soon = example._replace(question=replace(example.question, query_frame=15))
    starts = {draw_start(soon, FRAMES, 4, 1.0, rng) for _ in range(100)}
    assert starts == {7, 8, 9, 10}  # nowhere is it certainly absent for four frames


def test_frames_before_a_response_track_are_unknown_and_between_it_and_the_question_negative(folder):
    clips = source(folder)
    clips.model = replace(MODEL, clip_length=22)
    sample = clips.sample(0)  # starts at frame 0: the question is asked at frame 20
    assert sample.visible.nonzero().flatten().tolist() == list(SHOWN)
    assert sample.known.nonzero().flatten().tolist() == list(range(SHOWN.start, 20))
    example = clips.examples[0]
    tracked = replace(example.question, occurrences=(example.question.truth,))
    clips.examples = [example._replace(question=tracked)]
    assert clips.sample(0).known.all()


def test_a_thing_of_which_the_crop_leaves_a_sliver_is_unknown(folder):
    clips = source(folder, augment=replace(NO_AUGMENT, crop_scale=0.2))
    slivers = 0
    for number in range(40):
        sample = clips.sample(number)
        start = np.flatnonzero(sample.known | sample.visible)
        assert not (sample.visible & ~sample.known).any()
        left = (sample.boxes_unit[:, 2:] - sample.boxes_unit[:, :2]).prod(-1)
        is_sliver = ~sample.visible & (left > 1e-6)
        slivers += int(is_sliver.sum())
        assert not (is_sliver & sample.known).any(), start
    assert slivers


def test_a_clip_longer_than_its_video_is_held_at_the_end_and_that_does_not_count(folder):
    clips = source(folder)
    clips.model = replace(MODEL, clip_length=30)
    sample = clips.sample(0)
    assert sample.clip.shape[0] == 30
    assert sample.visible.sum() == len(SHOWN)
    # Unknown before the track, asked at 20, over at 24.
    assert sample.known.tolist() == [False] * 8 + [True] * 12 + [False] * 10
    assert torch.equal(sample.clip[-1], sample.clip[FRAMES - 1])


def test_a_thing_with_a_name_is_related_to_every_video_that_shows_it(folder, tmp_path):
    data = json.loads((folder / "vq.json").read_text())
    for video, place in zip(data["videos"], PLACES):
        video["clips"][0]["annotations"] = [annotation(place, object_uid="the same")]
    path = tmp_path / "vq.json"
    path.write_text(json.dumps(data))
    files = FilesData(annotations=str(path), videos=str(folder), augment=NO_AUGMENT, workers=1)
    assert not VideoClips.open(files, MODEL, 2, seed=0).batch(0).unrelated.any()


def test_bad_files_are_one_clear_line(folder, tmp_path):
    with pytest.raises(TrainError, match="--annotations FILE"):
        VideoClips.open(FilesData(), MODEL, 2, seed=0)
    with pytest.raises(AnnotationError, match="2 of 2 clips have no video"):
        VideoClips.open(
            FilesData(annotations=str(folder / "vq.json"), videos=str(tmp_path)), MODEL, 2, seed=0
        )
    data = json.loads((folder / "vq.json").read_text())
    for video in data["videos"]:
        del video["clips"][0]["annotations"][0]["query_sets"]["1"]["response_track"]
    (tmp_path / "test.json").write_text(json.dumps(data))
    with pytest.raises(TrainError, match="no question in it has a known answer"):
        VideoClips.open(
            FilesData(annotations=str(tmp_path / "test.json"), videos=str(folder)), MODEL, 2, seed=0
        )
    (tmp_path / "clip0.mp4").write_text("not a video")
    (tmp_path / "clip1.mp4").write_bytes((folder / "clip1.mp4").read_bytes()[:3000])
    (tmp_path / "vq.json").write_text((folder / "vq.json").read_text())
    with pytest.raises(VideoError, match=r"clip\d.mp4"):
        source(tmp_path).batch(0)
