"""Annotation files: what is read from a good one, and what is said about a bad one."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lastseen.box import Box
from lastseen.datasets.egotracks import known_occurrences, load_egotracks
from lastseen.datasets.vq2d import find_video, find_videos, load_absent, load_vq2d
from lastseen.errors import AnnotationError


def box(frame: Any, x: Any = 10, **more: Any) -> dict[str, Any]:
    sides = {"x": x, "y": 20, "width": 30, "height": 40, "original_width": 640, "original_height": 360}
    return {"frame_number": frame, **sides, **more}


def query_set(**more: Any) -> dict[str, Any]:
    return {
        "is_valid": True,
        "query_frame": 50,
        "object_title": "cup",
        "visual_crop": box(60),
        "response_track": [box(7), box(8), box(9)],
        **more,
    }


def tree(sets: dict[str, Any] | None = None, **clip: Any) -> dict[str, Any]:
    annotation = {"annotation_uid": "a", "query_sets": {"1": query_set()} if sets is None else sets}
    clip = {
        "clip_uid": "c",
        "video_start_sec": 3.0,
        "video_end_sec": 63.0,
        "annotations": [annotation],
        **clip,
    }
    return {"version": "1.0.5", "videos": [{"video_uid": "v", "split": "val", "clips": [clip]}]}


def saved(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "vq.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def only_question(tmp_path: Path, **fields: Any) -> Any:
    (question,) = load_vq2d(saved(tmp_path, tree({"1": query_set(**fields)}))).questions
    return question


def error_of(load: Any, path: Path) -> str:
    with pytest.raises(AnnotationError) as caught:
        load(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


PLACE = 'videos[0].clips[0].annotations[0].query_sets["1"]'


def test_a_question_has_its_crop_its_time_and_its_true_track(tmp_path: Path) -> None:
    question = only_question(tmp_path)
    assert question.key == ("a", "1") and question.query_frame == 50 and question.object_title == "cup"
    assert question.crop.frame == 60 and question.crop.box == Box(10, 20, 40, 60)
    assert (question.original_width, question.original_height) == (640, 360)
    assert question.truth.first_frame == 7 and question.truth.last_frame == 9 and question.truth.fps == 5.0
    assert question.truth_known and not question.is_absent and question.occurrences == ()


def test_boxes_in_any_order_become_a_track_in_time_order(tmp_path: Path) -> None:
    question = only_question(tmp_path, response_track=[box(9, 3), box(7, 1), box(8, 2)])
    assert [b.x1 for b in question.truth.boxes] == [1, 2, 3]


def test_a_missing_track_is_unanswered_and_an_empty_one_says_absent(tmp_path: Path) -> None:
    fields = query_set()
    del fields["response_track"]
    (unanswered,) = load_vq2d(saved(tmp_path, tree({"1": fields}))).questions
    assert unanswered.truth is None and not unanswered.truth_known and not unanswered.is_absent
    absent = only_question(tmp_path, response_track=[])
    assert absent.truth is None and absent.truth_known and absent.is_absent


def test_invalid_query_sets_are_counted_and_not_read(tmp_path: Path) -> None:
    annotations = load_vq2d(saved(tmp_path, tree({"1": {"is_valid": False}, "2": query_set()})))
    assert [question.query_set for question in annotations.questions] == ["2"]
    assert annotations.invalid_count == 1
    assert annotations.clips[0].groups[0].query_sets == ("1", "2")


def test_the_order_of_the_file_is_kept_even_where_nothing_is_asked(tmp_path: Path) -> None:
    data = tree()
    data["videos"].insert(0, {"video_uid": "z", "clips": []})
    data["videos"][1]["clips"][0]["annotations"].insert(0, {"annotation_uid": "y", "query_sets": {}})
    annotations = load_vq2d(saved(tmp_path, data))
    assert [video.video_uid for video in annotations.videos] == ["z", "v"]
    assert [group.annotation_uid for group in annotations.clips[0].groups] == ["y", "a"]


def test_a_clip_without_a_rate_has_five_frames_a_second(tmp_path: Path) -> None:
    assert load_vq2d(saved(tmp_path, tree())).clips[0].fps == 5.0
    assert load_vq2d(saved(tmp_path, tree(clip_fps=10))).clips[0].fps == 10.0


def test_boxes_drawn_on_another_size_are_scaled_to_the_size_of_the_answer(tmp_path: Path) -> None:
    half = box(3, original_width=320, original_height=180)
    question = only_question(tmp_path, lt_track=[half])
    assert question.occurrences[0].boxes == (Box(20, 40, 80, 120),)


def test_the_image_of_a_query_is_found_beside_the_annotation_file(tmp_path: Path) -> None:
    crop = box(None, image="queries/cup.png", image_box=[1, 2, 3, 4])
    crop = only_question(tmp_path, visual_crop=crop, object_uid="cup_1").crop
    assert crop.frame is None and crop.image == tmp_path / "queries" / "cup.png"
    assert crop.image_box == Box(1, 2, 4, 6)


def test_occurrences_are_split_where_the_thing_is_out_of_view(tmp_path: Path) -> None:
    lt_track = [box(30), box(7), box(8), box(31), box(9)]
    path = saved(tmp_path, tree({"1": query_set(lt_track=lt_track), "2": query_set(lt_track=None)}))
    split, plain = load_egotracks(path).questions
    assert [(track.first_frame, track.last_frame) for track in split.occurrences] == [(7, 9), (30, 31)]
    assert plain.occurrences == () and known_occurrences(plain) == (plain.truth,)
    assert known_occurrences(split) == split.occurrences


def test_without_a_response_track_the_last_occurrence_before_the_question_is_the_truth(
    tmp_path: Path,
) -> None:
    track = [box(frame) for frame in (30, 31, 32, 7, 8)]
    for query_frame, expected in (
        (40, (30, 32)),
        (31, (30, 30)),
        (30, (7, 8)),
        (8, (7, 7)),
        (None, (30, 32)),
    ):
        question = only_question(tmp_path, lt_track=track, response_track=None, query_frame=query_frame)
        assert question.truth_known and question.truth is not None
        assert (question.truth.first_frame, question.truth.last_frame) == expected
        assert question.query_frame == (query_frame or 300)  # a minute at 5 frames a second
    never = only_question(tmp_path, lt_track=track, response_track=None, query_frame=7)
    assert never.is_absent
    given = only_question(tmp_path, lt_track=track, response_track=[box(7), box(8)], query_frame=40)
    assert given.truth is not None and given.truth.first_frame == 7  # the file's own answer wins


def test_a_file_without_occurrences_is_not_an_egotracks_file(tmp_path: Path) -> None:
    assert "lt_track" in error_of(load_egotracks, saved(tmp_path, tree()))


def test_absent_questions_are_read_with_their_pictures(tmp_path: Path) -> None:
    query = {"query_uid": "q", "clip_uid": "c", "query_frame": 9, "visual_crop": box(None, image="cup.png")}
    (question,) = load_absent(saved(tmp_path, {"version": "1", "queries": [query]}))
    assert (question.query_uid, question.clip_uid, question.query_frame) == ("q", "c", 9)
    assert question.crop.image == tmp_path / "cup.png"
    del query["clip_uid"]
    message = error_of(load_absent, saved(tmp_path, {"queries": [query]}))
    assert 'queries[0]: "clip_uid" is missing' in message


@pytest.mark.parametrize(
    ("track", "what"),
    [
        ([box(7), box(9)], "response_track: frames jump from 7 to 9"),
        ([box(7), box(7)], "response_track: frame 7 has two boxes"),
        ([box(7.5)], 'response_track[0]: "frame_number" must be a whole number, got 7.5'),
        ([box(-1)], 'response_track[0]: "frame_number" must be at least 0, got -1'),
        ([box(7, width=-1)], 'response_track[0]: "width" must be at least 0.0, got -1'),
        ([box(7, x=float("nan"))], 'response_track[0]: "x" must be a finite number, got NaN'),
        ([box(7, x="1")], 'response_track[0]: "x" must be a finite number, got "1"'),
        ([box(7, x=True)], 'response_track[0]: "x" must be a finite number, got true'),
        ([box(7, original_width=0)], 'response_track[0]: "original_width" must be at least 1, got 0'),
        ([box(7, x=10**400)], 'response_track[0]: "x" must be a finite number'),
        ([3], "response_track[0]: expected an object, got 3"),
        ({}, '"response_track" must be a list, got {}'),
    ],
)
def test_a_wrong_track_is_named_with_its_place(tmp_path: Path, track: Any, what: str) -> None:
    message = error_of(load_vq2d, saved(tmp_path, tree({"1": query_set(response_track=track)})))
    assert f"{PLACE}.{what}" in message or f"{PLACE}: {what}" in message


def test_a_missing_key_is_named_with_its_place(tmp_path: Path) -> None:
    crop = box(60)
    del crop["x"]
    message = error_of(load_vq2d, saved(tmp_path, tree({"1": query_set(visual_crop=crop)})))
    assert message.endswith(f'{PLACE}.visual_crop: "x" is missing')


@pytest.mark.parametrize("image_box", [[1, 2, 3], "box", [1, 2, -3, 4], [1, 2, 3, None]])
def test_a_wrong_image_box_is_an_error(tmp_path: Path, image_box: Any) -> None:
    data = tree({"1": query_set(visual_crop=box(None, image="a.png", image_box=image_box))})
    assert '"image_box" must be four numbers' in error_of(load_vq2d, saved(tmp_path, data))


def test_a_clip_that_ends_before_it_starts_is_an_error(tmp_path: Path) -> None:
    assert "video_end_sec must be after" in error_of(load_vq2d, saved(tmp_path, tree(video_end_sec=3.0)))


@pytest.mark.parametrize("text", ["", "  \n", "{", "[]", "3", "null", "{}", '{"version": "1"}', "[" * 99999])
def test_what_is_no_annotation_file_is_an_error_of_one_line(tmp_path: Path, text: str) -> None:
    error_of(load_vq2d, saved(tmp_path, text))
    error_of(load_absent, saved(tmp_path, text))


def test_what_is_no_text_file_at_all_is_an_error_of_one_line(tmp_path: Path) -> None:
    (tmp_path / "image.json").write_bytes(b"\x89PNG\xff\xfe")
    for path in (tmp_path, tmp_path / "nowhere.json", tmp_path / "image.json"):
        error_of(load_vq2d, path)


JUNK = st.sampled_from(
    [None, True, -1, 2.5, float("nan"), float("inf"), 10**400, "", "x", [], {}, [None], {"x": 1}]
)


@given(choice=st.integers(0, 10**6), junk=JUNK, remove=st.booleans())
@settings(max_examples=150, deadline=None)
def test_junk_anywhere_is_read_or_an_annotation_error(
    tmp_path_factory: pytest.TempPathFactory, choice: int, junk: Any, remove: bool
) -> None:
    data = tree({"1": query_set(lt_track=[box(1)])}, clip_fps=5.0)
    spots = list(_spots(data))
    holder, key = spots[choice % len(spots)]
    if remove:
        del holder[key]
    else:
        holder[key] = copy.deepcopy(junk)
    try:
        load_vq2d(saved(tmp_path_factory.getbasetemp(), data))
    except AnnotationError as error:
        assert "\n" not in str(error)


def _spots(value: Any) -> Any:
    for key in range(len(value)) if isinstance(value, list) else list(value):
        yield value, key
        if isinstance(value[key], (list, dict)):
            yield from _spots(value[key])


def test_the_file_of_the_clip_is_used_whole(tmp_path: Path) -> None:
    annotations = load_vq2d(saved(tmp_path, tree()))
    for name in ("c.MKV", "v.mp4"):
        (tmp_path / name).touch()
    ((clip, section),) = find_videos(annotations, tmp_path)
    assert section == find_video(clip, tmp_path)
    assert section.path.name == "c.MKV" and section.start_s is None and section.end_s is None
    (tmp_path / "c.mp4").touch()
    preferred = find_video(clip, tmp_path)
    assert preferred and preferred.path.name == "c.mp4"


def test_videos_are_found_in_folders_within_the_folder(tmp_path: Path) -> None:
    data = tree()
    clip = data["videos"][0]["clips"][0]
    data["videos"][0]["clips"] += [{**clip, "clip_uid": uid} for uid in ("d", "e")]
    annotations = load_vq2d(saved(tmp_path, data))
    for name in ("c.mp4", "part1/d.mp4", "part2/deep/v.mov"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "part1" / "again").symlink_to(tmp_path)  # a circle of links has an end
    found = [
        section.path.relative_to(tmp_path).as_posix() for _, section in find_videos(annotations, tmp_path)
    ]
    assert found == ["c.mp4", "part1/d.mp4", "part2/deep/v.mov"]


def test_two_files_for_one_clip_are_one_clear_line_unless_they_are_the_same(tmp_path: Path) -> None:
    annotations = load_vq2d(saved(tmp_path, tree()))
    (tmp_path / "b").mkdir()
    (tmp_path / "a.mp4").touch()
    (tmp_path / "c.mp4").touch()
    (tmp_path / "b" / "c.mp4").symlink_to(tmp_path / "c.mp4")
    ((_, section),) = find_videos(annotations, tmp_path)
    assert section.path == tmp_path / "c.mp4"
    (tmp_path / "b" / "c.mp4").unlink()
    (tmp_path / "b" / "c.mp4").touch()
    with pytest.raises(AnnotationError) as caught:
        find_videos(annotations, tmp_path)
    message = str(caught.value)
    assert message.startswith("two files for c: ") and "\n" not in message
    assert str(tmp_path / "c.mp4") in message and str(tmp_path / "b" / "c.mp4") in message


@pytest.mark.parametrize("clip_uid", ["c", None])
def test_the_source_video_serves_with_the_section_of_the_clip(tmp_path: Path, clip_uid: str | None) -> None:
    annotations = load_vq2d(saved(tmp_path, tree(clip_uid=clip_uid)))
    (tmp_path / "v.mp4").touch()
    ((_, section),) = find_videos(annotations, tmp_path)
    assert (section.path.name, section.start_s, section.end_s) == ("v.mp4", 3.0, 63.0)


def test_missing_videos_are_one_error_with_names_and_a_count(tmp_path: Path) -> None:
    data = tree()
    clip = data["videos"][0]["clips"][0]
    data["videos"][0]["clips"] += [{**clip, "clip_uid": uid} for uid in ("d", None, "e", "f")]
    data["videos"][0]["clips"] += [{**clip, "clip_uid": "unasked", "annotations": []}]
    annotations = load_vq2d(saved(tmp_path, data))
    (tmp_path / "d.mp4").touch()
    assert find_video(annotations.clips[0], tmp_path) is None
    with pytest.raises(AnnotationError) as caught:
        find_videos(annotations, tmp_path)
    message = str(caught.value)
    assert "4 of 5 clips have no video" in message and "unasked" not in message and "\n" not in message
    assert "looked for c.mp4 or v.mp4, v.mp4, e.mp4 or v.mp4 and 1 more" in message
    with pytest.raises(AnnotationError, match="no such folder"):
        find_videos(annotations, tmp_path / "nowhere")
