"""Files into an index, whole ones and such as are still being written.

Each can be stopped at any moment and goes on where it was; a video that is there already costs nothing.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.catalogue import FULL, GROWING, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.originals import (
    began,
    entered,
    facts,
    growing_identity,
    known_by_path,
    sha256_of,
    size_and_mtime,
)
from lastseen.index.recorder import COMMIT_S, Recorder, drop_older
from lastseen.localizer import Localizer, Progress
from lastseen.video import Video

LAG_S = 1.5  # of a file that is still being written, the last pictures may yet change
SETTLE_S = 10.0  # a file that does not grow for so long is finished
POLL_S = 1.0

ADDED, KNOWN, BUSY = "added", "known", "busy"


@dataclass(frozen=True)
class Recording:
    """What came of it: "added", "known" (it was there already) or "busy" (another process is at it)."""

    video: IndexedVideo
    outcome: str
    skipped: int = 0  # samples of a live stream that came too fast
    broke_off: str | None = None  # why a live stream ended before its time; what came before is kept


def add_file(
    index: IndexFolder,
    localizer: Localizer,
    path: str | Path,
    *,
    keep: str = FULL,
    name: str | None = None,
    recorded: float | None = None,
    allow_truncated: bool = False,
    commit_s: float = COMMIT_S,
    progress: Progress | None = None,
) -> Recording:
    """Encode a video file into the index, or go on where that was interrupted."""
    index.bind(localizer)
    path = Path(path).absolute()
    known = known_by_path(index, path)
    if known and known.complete:
        return Recording(_dated(index, known, recorded), KNOWN)
    source = Video(path, allow_truncated=allow_truncated)
    total = source.frame_count(localizer.fps)
    video = known or entered(index, source, total, keep, name, recorded)
    with index.writing(video) as mine:
        if not mine:
            return Recording(video, BUSY)
        video = index.catalogue.video(video.id)  # another process may have finished it meanwhile
        video = _dated(index, video, recorded)
        if video.complete:
            return Recording(video, KNOWN)
        recorder = Recorder(index, localizer, video, commit_s=commit_s)
        if recorder.end < total:
            recorder.align()
            for features in localizer.encoded(source, recorder.end, total, progress):
                recorder.append(features)
        _finish(recorder, source)
    return Recording(recorder.video, ADDED)


def follow_file(
    index: IndexFolder,
    localizer: Localizer,
    path: str | Path,
    *,
    keep: str = FULL,
    name: str | None = None,
    recorded: float | None = None,
    keep_hours: float | None = None,
    settle_s: float = SETTLE_S,
    commit_s: float = COMMIT_S,
    progress: Progress | None = None,
) -> Recording:
    """As `add_file`, for a file that something is still writing; ends when it stops to grow."""
    index.bind(localizer)
    path = Path(path).absolute()
    growth = _Growth(path, settle_s)
    while (source := growth.opened()) is None:
        pass
    known = known_by_path(index, path)
    if known and known.complete:
        return Recording(known, KNOWN)
    video = known or index.catalogue.add(
        name or path.name,
        kind=GROWING,
        identity=growing_identity(path),
        recorded_at=began(source) if recorded is None else recorded,
        **facts(source, keep),
    )
    with index.writing(video) as mine:
        if not mine:
            return Recording(video, BUSY)
        recorder = Recorder(index, localizer, index.catalogue.video(video.id), commit_s=commit_s)
        if recorder.video.complete:
            return Recording(recorder.video, KNOWN)
        settled = False
        while not settled:
            # Asked before the file is opened: what is written meanwhile is for the next turn.
            settled, looked = growth.settled(), time.monotonic()
            source = growth.opened() or source
            looking_s = time.monotonic() - looked
            end = source.frame_count(localizer.fps)
            if not settled:
                end = int(max(0.0, source.duration_s - LAG_S) * localizer.fps)
                end -= end % localizer.batch  # a batch is encoded as a whole, or bytes would depend on luck
            if end > recorder.end:
                recorder.align()
                for features in localizer.encoded(source, recorder.end, end, progress):
                    if settled or len(features) == localizer.batch:
                        recorder.append(features)
                recorder.commit(duration_s=source.duration_s)
                drop_older(recorder, keep_hours)
            if not settled:
                time.sleep(max(POLL_S, 4 * looking_s))  # some formats must be read through to find their end
        _finish(recorder, source)
    return Recording(recorder.video, ADDED)


def _dated(index: IndexFolder, video: IndexedVideo, recorded: float | None) -> IndexedVideo:
    """With another date, if one is given: a camera's clock may have been wrong."""
    if recorded is None or recorded == video.recorded_at:
        return video
    return index.catalogue.update(video.id, recorded_at=recorded)


def _finish(recorder: Recorder, source: Video) -> None:
    size, mtime_ns = size_and_mtime(source.path)
    indexed = recorder.video
    if indexed.sha256 is not None and (size, mtime_ns) != (indexed.size, indexed.mtime_ns):
        raise IndexStoreError(
            f"{source.path} changed while it was being indexed; "
            "if something is still writing it, use --follow"
        )
    digest = indexed.sha256 or sha256_of(source.path)
    recorder.commit(
        complete=1,
        expected=recorder.end,
        sha256=digest,
        size=size,
        mtime_ns=mtime_ns,
        duration_s=source.duration_s,
    )


class _Growth:
    """Notices when a file has stopped growing."""

    def __init__(self, path: Path, settle_s: float) -> None:
        self.path, self.settle_s = path, settle_s
        self._seen, self._since = (-1, -1), time.monotonic()

    def settled(self) -> bool:
        try:
            seen = size_and_mtime(self.path)
        except FileNotFoundError:
            seen = (-1, -1)
        if seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        return time.monotonic() - self._since >= self.settle_s

    def opened(self) -> Video | None:
        """The part that is there; None if it cannot be read yet, which is an error once it has settled."""
        settled = self.settled()
        try:
            return Video(self.path, allow_truncated=True)
        except VideoError:
            if settled:
                raise
            time.sleep(POLL_S)
            return None
