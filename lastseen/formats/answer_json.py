"""The answer itself, and its JSON: what `lastseen find --json` prints, one versioned schema.

The schema is `answer.schema.json` beside this file; docs/formats.md explains it.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from lastseen.answer import Answer, VideoFacts, VideoInfo
from lastseen.errors import TrackError
from lastseen.track import MOST_FPS, MOST_PX, ResponseTrack, parsed, shown_error
from lastseen.track import SCHEMA as TRACK_SCHEMA
from lastseen.video import ROUNDING_S, Video

SCHEMA = "lastseen/answer@1"
ANSWERS_SCHEMA = "lastseen/answers@1"  # of several things, or of an index: answers by thing
MOST_S = 1e10  # of a video: three centuries
T = TypeVar("T")


def answer_dict(answer: Answer) -> dict[str, Any]:
    video = answer.video
    unreadable = {"unreadable": round(answer.unreadable_s, 3)} if answer.unreadable_s else {}
    return {
        "schema": SCHEMA,
        "video": str(video.path),
        "width": video.width,
        "height": video.height,
        "fps": video.fps,
        "duration": round(video.duration_s, 6),
        "model": answer.model,
        "found": answer.found,
        "searched": round(answer.searched_s, 6),
        "still_in_view": answer.still_in_view,
        "tracks": [track.to_dict() for track in answer.sightings],
        "best_guess": answer.best_guess.to_dict() if answer.best_guess else None,
        **unreadable,
    }


def answer_json(answer: Answer) -> str:
    return json.dumps(answer_dict(answer)) + "\n"


def answer_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) that every answer keeps."""
    schema: dict[str, Any] = json.loads((files("lastseen.formats") / "answer.schema.json").read_text())
    return schema


def parse_answer(text: str, video: Video | None = None) -> Answer:
    """An answer from its JSON, or a lone track (then `video` is needed).

    `video` stands in for what the JSON says of it. Answers of version 0.1 have no frame rate: the video
    is looked up where it was.
    """
    return answer_of(parsed(text), video)


@dataclass(frozen=True)
class Entry:
    """One answer of all that `lastseen find --json` printed."""

    thing: str | None  # its name, if it was given one
    video: str  # its name in the index, or the file's
    data: Any  # for `answer_of`


def entries(text: str) -> list[Entry]:
    """The answers in what `lastseen find --json` printed; of each thing the latest first."""
    data = parsed(text)
    if not isinstance(data, dict) or data.get("schema") != ANSWERS_SCHEMA:
        return [Entry(None, _video_name(data), data)]
    try:
        given = [(thing["thing"], answer) for thing in data["things"] for answer in thing["answers"]]
    except (KeyError, TypeError) as error:
        raise TrackError(f"malformed answers: {shown_error(error)}") from None
    return [Entry(str(thing), _video_name(answer), answer) for thing, answer in given]


def _video_name(data: Any) -> str:
    known = data if isinstance(data, dict) else {}
    return str(known.get("name") or Path(str(known.get("video", ""))).name)


def answer_of(data: Any, video: Video | None = None) -> Answer:
    """As `parse_answer`, from what JSON holds."""
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == TRACK_SCHEMA:
        if video is None:
            raise TrackError("a lone track does not say of which video; give it too (--video FILE)")
        return Answer(video=video, sightings=(ResponseTrack.from_dict(data),))
    if schema != SCHEMA:
        raise TrackError(f'not an answer: expected an object with "schema": "{SCHEMA}"')
    try:
        tracks = tuple(ResponseTrack.from_dict(track) for track in data["tracks"])
        guess = ResponseTrack.from_dict(data["best_guess"]) if data.get("best_guess") else None
        return Answer(
            video=_facts(data) if video is None else video,
            sightings=tracks,
            best_guess=guess,
            model=str(data.get("model", "")),
            unreadable_s=_seconds(data, "unreadable", 0.0),
            searched_to_s=_seconds(data, "searched", None),  # answers of before do not say
        )
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise TrackError(f"malformed answer: {shown_error(error)}") from None


def _seconds(data: dict[str, Any], name: str, otherwise: T) -> float | T:
    if name not in data:
        return otherwise
    seconds = float(data[name])
    if not 0 <= seconds <= MOST_S:
        raise TrackError(f"malformed answer: {name} must be 0 to {MOST_S:g} seconds, got {seconds:g}")
    return seconds


def _facts(data: dict[str, Any]) -> VideoFacts:
    path = Path(data["video"])
    if "fps" not in data or "duration" not in data:
        if not path.is_file():
            raise TrackError(f"the answer has no frame rate and {path} is gone; give --video FILE")
        video = Video(path, allow_truncated=True)
        data = {**data, "fps": video.fps, "duration": video.duration_s}
    numbers = {key: float(data[key]) for key in ("width", "height", "fps", "duration")}
    most = {"width": MOST_PX, "height": MOST_PX, "fps": MOST_FPS, "duration": MOST_S}
    if not all(0 < value <= most[key] for key, value in numbers.items()):
        raise TrackError(
            f"malformed answer: width, height, fps, duration must be above 0, at most {most}, got {numbers}"
        )
    width, height = int(numbers["width"]), int(numbers["height"])
    return VideoFacts(
        path=path, width=width, height=height, fps=numbers["fps"], duration_s=numbers["duration"]
    )


# --- frames of the file: tracks count samples (5 a second), most formats the video's own frames ---


def frame_count(video: VideoInfo) -> int:
    """Frames of the whole file up to the end of what was searched."""
    return max(1, round((video.start_s + video.duration_s) * video.fps))


def source_frame(video: VideoInfo, time_s: float) -> int:
    """The number, from 0, of the file's frame on display; exact where the frame rate is constant."""
    return min(_frame_at(video, time_s), frame_count(video) - 1)


@dataclass(frozen=True)
class PlacedBox:
    """A box of a track on a frame of the file, inside the picture."""

    frame: int  # of the file, from 0
    time_s: float
    x: float
    y: float
    width: float
    height: float


def placed(video: VideoInfo, track: ResponseTrack) -> list[PlacedBox]:
    """The sampled boxes, one for each frame of the file (a slow file shows the same frame twice)."""
    boxes: dict[int, PlacedBox] = {}
    for number, box in enumerate(track.boxes, track.first_frame):
        time_s = number / track.fps
        inside = box.clipped(video.width, video.height)
        frame = source_frame(video, time_s)
        boxes.setdefault(frame, PlacedBox(frame, time_s, inside.x1, inside.y1, inside.width, inside.height))
    return list(boxes.values())


def filled(video: VideoInfo, track: ResponseTrack) -> list[PlacedBox]:
    """A box on every frame of the file from the first to the last sampled one, interpolated."""
    known = placed(video, track)
    every: list[PlacedBox] = [known[0]]
    for low, high in pairwise(known):
        for frame in range(low.frame + 1, high.frame + 1):
            t = (frame - low.frame) / (high.frame - low.frame)
            x, y, width, height, time_s = (
                (1 - t) * getattr(low, name) + t * getattr(high, name)
                for name in ("x", "y", "width", "height", "time_s")
            )
            every.append(replace(high, frame=frame, time_s=time_s, x=x, y=y, width=width, height=height))
    return every


def frame_after(video: VideoInfo, track: ResponseTrack) -> int | None:
    """The first frame of the file that is no longer in the track; None at the file's end."""
    after = max(_frame_at(video, (track.last_frame + 1) / track.fps), source_frame(video, track.end) + 1)
    return after if after < frame_count(video) else None


def _frame_at(video: VideoInfo, time_s: float) -> int:
    return max(0, math.floor((video.start_s + time_s + ROUNDING_S) * video.fps))
