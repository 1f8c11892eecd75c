"""Damaged video files: a result or one line, no more frames than announced, in bounded time and memory."""

from __future__ import annotations

from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path

from lastseen.errors import LastSeenError
from lastseen.video import Video
from soak.case import NORMAL, REFUSED, Broken, Case
from soak.mutate import damaged
from soak.samples import write_videos

NAME = "media"
CASES = 2400
LIMIT_S = 20.0
MOST_FRAMES = 200  # read of one file


def prepare(folder: Path) -> None:
    write_videos(folder)


def run(case: Case) -> str:
    paths, sound = _sound(case.prepared)
    which, damage, data = damaged(case.rng, case.number, sound)
    path = case.scratch / paths[which].name
    path.write_bytes(data)
    case.say(f"{path.name}, {damage}")
    outcome = NORMAL
    for allow_truncated in (True, False):
        try:
            read(path, allow_truncated, ahead=4 * (case.number % 2))
            outcome = NORMAL
        except LastSeenError as error:
            case.check_error(error)
            outcome = REFUSED
    if damage == "untouched" and outcome == REFUSED:
        raise Broken("a sound file was refused")
    return outcome


def read(path: Path, allow_truncated: bool, ahead: int) -> None:
    """All that a search asks of a video."""
    video = Video(path, allow_truncated=allow_truncated)
    promised, count = video.frame_count(5), 0
    with closing(video.frames(5, ahead=ahead)) as frames:
        for frame in islice(frames, MOST_FRAMES):
            if frame.index != count:
                raise Broken(f"frame {frame.index} came as number {count}")
            if frame.image.shape != (video.height, video.width, 3):
                raise Broken(f"a frame of {frame.image.shape} in a video of {video.width}x{video.height}")
            count += 1
    if count > promised:
        raise Broken(f"{count} frames, but frame_count said {promised}")
    if count < min(promised, MOST_FRAMES) and not allow_truncated:
        raise Broken(f"{count} frames without an error, but frame_count said {promised}")
    video.frame_at(min(video.duration_s / 2, 100.0))


@cache
def _sound(folder: Path) -> tuple[list[Path], list[bytes]]:
    paths = sorted(folder.iterdir())
    return paths, [path.read_bytes() for path in paths]
