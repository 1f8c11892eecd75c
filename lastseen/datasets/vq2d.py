"""Read Ego4D VQ2D annotation files, and files of the same schema, into the types of `lastseen.datasets`.

EgoTracks files have the same schema with extra keys, so they are read here too (see `datasets.egotracks`).
An invalid file raises one AnnotationError with the file, the place in it and what was expected there.
`find_videos` matches clips to video files.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from lastseen.box import Box
from lastseen.datasets import (
    AbsentQuestion,
    Annotations,
    ClipAnnotation,
    Question,
    QuestionGroup,
    VideoAnnotation,
    VideoSection,
    VisualCrop,
)
from lastseen.errors import AnnotationError, LastSeenError, TrackError
from lastseen.files import regular_bytes
from lastseen.track import ResponseTrack

DEFAULT_FPS = 5.0
MOST_JSON_BYTES = 2**31  # of annotations and predictions: of all of Ego4D they are a quarter of it
T = TypeVar("T")
VIDEO_SUFFIXES = (".mp4", ".mkv", ".mov", ".avi", ".webm", ".m4v")


def load_vq2d(path: str | Path) -> Annotations:
    """Read vq_train.json, vq_val.json, vq_test_unannotated.json or a file of the same schema."""
    path = Path(path)
    root = _Node(read_json(path, AnnotationError), None, str(path))
    videos = tuple(map(_video, root.items("videos")))
    return Annotations(version=root.text("version"), path=path, videos=videos)


def load_absent(path: str | Path) -> tuple[AbsentQuestion, ...]:
    """Read a list of questions whose thing never appears ({"queries": [...]})."""
    path = Path(path)
    root = _Node(read_json(path, AnnotationError), None, str(path))
    return tuple(
        AbsentQuestion(
            query_uid=node.text("query_uid"),
            clip_uid=node.text("clip_uid"),
            query_frame=node.whole("query_frame"),
            object_title=node.text_if_any("object_title") or "",
            object_uid=node.text_if_any("object_uid"),
            crop=_crop(node.child("visual_crop"), path.parent),
        )
        for node in root.items("queries")
    )


def find_video(clip: ClipAnnotation, folder: str | Path) -> VideoSection | None:
    """The clip's own file, or else the section of its source video; None if neither is below `folder`."""
    return _find(clip, _video_files(Path(folder)))


def find_videos(annotations: Annotations, folder: str | Path) -> list[tuple[ClipAnnotation, VideoSection]]:
    """Every clip that has questions, with its video file, found at any depth below `folder`.

    Raises an AnnotationError that counts the clips without a file, or names two files for one clip.
    """
    files = _video_files(Path(folder))
    clips = [clip for clip in annotations.clips if clip.questions]
    sections = [(clip, _find(clip, files)) for clip in clips]
    missing = [clip for clip, section in sections if section is None]
    if missing:
        wanted = ([clip.clip_uid, clip.video_uid] for clip in missing[:3])
        names = (" or ".join(f"{uid}.mp4" for uid in uids if uid) for uids in wanted)
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise AnnotationError(
            f"{len(missing)} of {len(clips)} clips have no video in {folder}: looked for "
            f"{', '.join(names)}{more} (also as {' '.join(VIDEO_SUFFIXES[1:])}); "
            "put the clips or their source videos there"
        )
    return [(clip, section) for clip, section in sections if section is not None]


def split_tracks(numbered: Iterable[tuple[int, Box]], fps: float, score: float) -> tuple[ResponseTrack, ...]:
    """Boxes with frame numbers in any order -> tracks in time order, split where a frame is left out."""
    runs: list[list[tuple[int, Box]]] = []
    for frame, box in sorted(numbered, key=lambda pair: pair[0]):
        if runs and frame == runs[-1][-1][0]:
            raise TrackError(f"frame {frame} has two boxes; a track has one box on every frame")
        if runs and frame == runs[-1][-1][0] + 1:
            runs[-1].append((frame, box))
        else:
            runs.append([(frame, box)])
    return tuple(
        ResponseTrack(first_frame=run[0][0], fps=fps, boxes=tuple(box for _, box in run), score=score)
        for run in runs
    )


def one_track(numbered: Iterable[tuple[int, Box]], fps: float, score: float) -> ResponseTrack | None:
    """Like `split_tracks`, for boxes that must form a single track; None if there are no boxes."""
    tracks = split_tracks(numbered, fps, score)
    if len(tracks) > 1:
        jump = f"frames jump from {tracks[0].last_frame} to {tracks[1].first_frame}"
        raise TrackError(f"{jump}; a track has a box on every frame from its first to its last")
    return tracks[0] if tracks else None


def last_occurrence(occurrences: Iterable[ResponseTrack], end_frame: int) -> ResponseTrack | None:
    """The last track that begins before `end_frame`, cut off there; None if there is none."""
    earlier = [track for track in occurrences if track.first_frame < end_frame]
    if not earlier:
        return None
    last = max(earlier, key=lambda track: track.first_frame)
    return replace(last, boxes=last.boxes[: end_frame - last.first_frame])


def read_json(path: Path, error: type[LastSeenError]) -> Any:
    """The file's JSON, or `error` with one line that says why there is none."""
    try:
        text = regular_bytes(path, MOST_JSON_BYTES).decode()
        if not text.strip():
            raise ValueError("the file is empty")
        return json.loads(text)
    except FileNotFoundError:
        raise error(f"{path}: no such file") from None
    except OSError as problem:
        raise error(f"{path}: {str(problem.strerror).lower()}; give a JSON file") from None
    except (ValueError, RecursionError) as problem:
        raise error(f"{path}: cannot be read as JSON: {problem}") from None


def _video(node: _Node) -> VideoAnnotation:
    uid = node.text("video_uid")
    return VideoAnnotation(video_uid=uid, clips=tuple(_clip(clip, uid) for clip in node.items("clips")))


def _clip(node: _Node, video_uid: str) -> ClipAnnotation:
    start, end = node.number("video_start_sec", least=0.0), node.number("video_end_sec", least=0.0)
    if not start < end:
        raise node.error(f"video_end_sec must be after video_start_sec, got {end} and {start}")
    fps = DEFAULT_FPS if node.lacks("clip_fps") else node.number("clip_fps", least=0.001)
    return ClipAnnotation(
        video_uid=video_uid,
        clip_uid=node.text_if_any("clip_uid"),
        video_start_sec=start,
        video_end_sec=end,
        fps=fps,
        groups=tuple(_group(group, fps, round((end - start) * fps)) for group in node.items("annotations")),
    )


def _group(node: _Node, fps: float, clip_frames: int) -> QuestionGroup:
    uid = node.text("annotation_uid")
    sets = node.child("query_sets")
    nodes = {name: sets.child(name) for name in sets.mapping()}
    # An invalid query set is not read any further: its other fields may be missing.
    valid = {name: query for name, query in nodes.items() if query.flag("is_valid")}
    questions = tuple(_question(query, uid, name, fps, clip_frames) for name, query in valid.items())
    return QuestionGroup(annotation_uid=uid, query_sets=tuple(nodes), questions=questions)


def _question(node: _Node, annotation_uid: str, query_set: str, fps: float, clip_frames: int) -> Question:
    crop = _crop(node.child("visual_crop"), Path(node.file).parent)
    first = next(chain(node.items_if_any("response_track"), node.items_if_any("lt_track")), None)
    size = _original_size(first) if first else (crop.original_width, crop.original_height)
    occurrences = _tracks(node, "lt_track", size, fps, split_tracks)
    truth, truth_known = (
        _tracks(node, "response_track", size, fps, one_track),
        not node.lacks("response_track"),
    )
    query_frame = (
        node.whole("query_frame") if not occurrences or not node.lacks("query_frame") else clip_frames
    )
    if occurrences and not truth_known:
        truth, truth_known = last_occurrence(occurrences, query_frame), True
    return Question(
        annotation_uid=annotation_uid,
        query_set=query_set,
        query_frame=query_frame,
        object_title=node.text_if_any("object_title") or "",
        object_uid=node.text_if_any("object_uid"),
        crop=crop,
        original_width=size[0],
        original_height=size[1],
        truth=truth,
        truth_known=truth_known,
        occurrences=occurrences,
    )


def _tracks(node: _Node, key: str, size: tuple[int, int], fps: float, read: Callable[..., T]) -> T:
    numbered = [(box.whole("frame_number"), _box(box, size)) for box in node.items_if_any(key)]
    try:
        return read(numbered, fps, score=1.0)
    except TrackError as error:
        raise node.error(f"{key}: {error}") from None


def _crop(node: _Node, folder: Path) -> VisualCrop:
    size = _original_size(node)
    image = node.text_if_any("image")
    return VisualCrop(
        frame=None if node.child("frame_number").value is None else node.whole("frame_number"),
        box=_box(node, size),
        original_width=size[0],
        original_height=size[1],
        image=folder / image if image else None,
        image_box=_image_box(node),
    )


def _box(node: _Node, size: tuple[int, int]) -> Box:
    """The box in pixels of a frame of `size`, whatever size it was drawn on."""
    x, y = node.number("x"), node.number("y")
    box = Box.from_xywh(x, y, node.number("width", least=0.0), node.number("height", least=0.0))
    drawn = _original_size(node)
    return box if drawn == size else box.scaled(size[0] / drawn[0], size[1] / drawn[1])


def _image_box(node: _Node) -> Box | None:
    values = node.mapping().get("image_box")
    if values is None:
        return None
    four = isinstance(values, list) and len(values) == 4 and all(map(is_number, values))
    if not four or min(values[2:]) < 0:
        raise node.error('"image_box" must be four numbers [x, y, width, height], the last two not negative')
    return Box.from_xywh(*map(float, values))


def _original_size(node: _Node) -> tuple[int, int]:
    return node.whole("original_width", least=1), node.whole("original_height", least=1)


def _find(clip: ClipAnnotation, files: dict[str, list[Path]]) -> VideoSection | None:
    if clip.clip_uid and clip.clip_uid in files:
        return VideoSection(path=_only(clip.clip_uid, files))
    if clip.video_uid in files:
        start, end = clip.video_start_sec, clip.video_end_sec
        return VideoSection(path=_only(clip.video_uid, files), start_s=start, end_s=end)
    return None


def _only(uid: str, files: dict[str, list[Path]]) -> Path:
    """The uid's file. Of several in one folder the suffix listed first wins; two folders are an error."""
    first, *others = sorted(files[uid], key=lambda path: VIDEO_SUFFIXES.index(path.suffix.lower()))
    elsewhere = [path for path in others if path.parent != first.parent and path.resolve() != first.resolve()]
    if elsewhere:
        raise AnnotationError(
            f"two files for {uid}: {first} and {elsewhere[0]}; remove or rename one of them"
        )
    return first


def _video_files(folder: Path) -> dict[str, list[Path]]:
    """Video files at any depth below the folder, by their names without suffix."""
    if not folder.is_dir():
        raise AnnotationError(f"{folder}: no such folder; give the folder that holds the video files")
    files: dict[str, list[Path]] = {}
    walked = set()
    for parent, folders, names in os.walk(folder, followlinks=True):
        folders.sort()
        if (real := Path(parent).resolve()) in walked:  # a link to a folder above it would never end
            folders.clear()
            continue
        walked.add(real)
        for path in (Path(parent, name) for name in sorted(names)):
            if path.suffix.lower() in VIDEO_SUFFIXES:
                files.setdefault(path.stem, []).append(path)
    return files


class _Node:
    """A piece of the JSON that knows where it is, so that every error can name the place."""

    __slots__ = ("parent", "step", "value")

    def __init__(self, value: Any, parent: _Node | None, step: str) -> None:
        self.value, self.parent, self.step = value, parent, step

    @property
    def file(self) -> str:
        return self.parent.file if self.parent else self.step

    @property
    def place(self) -> str:
        return (self.parent.place + self.step).removeprefix(".") if self.parent else ""

    def error(self, what: str) -> AnnotationError:
        return AnnotationError(": ".join(part for part in (self.file, self.place, what) if part))

    def mapping(self) -> dict[str, Any]:
        if not isinstance(self.value, dict):
            raise self.error(f"expected an object, got {shown(self.value)}")
        return self.value

    def lacks(self, key: str) -> bool:
        return self.mapping().get(key) is None

    def child(self, key: str) -> _Node:
        return _Node(self._get(key), self, f".{key}" if key.isidentifier() else f"[{json.dumps(key)}]")

    def items(self, key: str) -> Iterator[_Node]:
        values = self._get(key)
        self._expect(isinstance(values, list), key, "a list")
        return (_Node(value, self, f".{key}[{i}]") for i, value in enumerate(values))

    def items_if_any(self, key: str) -> Iterator[_Node]:
        return iter(()) if self.lacks(key) else self.items(key)

    def text(self, key: str) -> str:
        value = self._get(key)
        self._expect(isinstance(value, str) and value != "", key, "a string that is not empty")
        return value

    def text_if_any(self, key: str) -> str | None:
        return self.text(key) if self.mapping().get(key) not in (None, "") else None

    def flag(self, key: str) -> bool:
        value = self._get(key)
        self._expect(isinstance(value, bool), key, "true or false")
        return value

    def number(self, key: str, least: float = -math.inf) -> float:
        value = self._get(key)
        if not is_number(value) or value < least:  # boxes come by the million: ask for the reason last
            self._expect(is_number(value), key, "a finite number")
            self._expect(value >= least, key, "at least", least)
        return float(value)

    def whole(self, key: str, least: int = 0) -> int:
        value = self.number(key, least)
        if value != int(value):
            self._expect(False, key, "a whole number")
        return int(value)

    def _get(self, key: str) -> Any:
        try:
            return self.value[key]
        except (KeyError, TypeError):
            self.mapping()
            raise self.error(f'"{key}" is missing') from None

    def _expect(self, right: bool, key: str, *expected: object) -> None:
        if not right:
            wanted = " ".join(map(str, expected))
            raise self.error(f'"{key}" must be {wanted}, got {shown(self.value[key])}')


def is_number(value: Any) -> bool:
    # Not every JSON number fits a float: integers may have any length, and Python reads NaN too.
    return type(value) in (int, float) and abs(value) < 1e300


def shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 40 else text[:40] + "..."
