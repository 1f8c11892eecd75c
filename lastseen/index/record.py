"""Index video files, finished ones and files that are still being written.

Can be interrupted at any moment and resumed; a video that is already indexed is skipped.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from lastseen.errors import IndexStoreError, VideoError
from lastseen.index.entry import GROWING, IndexedVideo
from lastseen.index.folder import IndexFolder
from lastseen.index.identity import growing_identity, sha256_of, size_and_mtime
from lastseen.index.originals import checked_date, dates, doubted_date, entered, facts, known_by_path
from lastseen.index.recorder import COMMIT_S, Recorder, checked_keep, drop_older
from lastseen.index.repair import Repair, has_missing_files, is_sound, repair, repair_held
from lastseen.localizer import Localizer
from lastseen.progress import ENCODED, READING, Tell, Tracker
from lastseen.video import Video
from lastseen.video.containers import check_kind
from lastseen.video.dates import SAID
from lastseen.video.unreadable import Unreadable

LAG_S = 1.5  # the last frames of a file that is still being written may change
SETTLE_S = 10.0  # a file that has not grown for this long is finished
POLL_S = 1.0

ADDED, KNOWN, BUSY, REPAIRED = "added", "known", "busy", "repaired"


@dataclass(frozen=True)
class Recording:
    """`outcome`: "added", "known" (already indexed), "repaired" (indexed, but damaged) or "busy" (another
    process is indexing it)."""

    video: IndexedVideo
    outcome: str
    skipped: int = 0  # samples of a live stream that were lost
    broke_off: str | None = None  # why a live stream failed; the frames before are kept
    note: str | None = None  # what else the user should know


def add_file(
    index: IndexFolder,
    localizer: Localizer,
    path: str | Path,
    *,
    keep: str | None = None,
    name: str | None = None,
    recorded: float | None = None,
    allow_truncated: bool = False,
    commit_s: float = COMMIT_S,
    progress: Tell | None = None,
    check: bool = True,
) -> Recording:
    """Encode a video file into the index, or resume an interrupted run.

    `keep`: see `checked_keep`. A video that is there already is repaired if it is damaged; without `check`
    only if files of it are missing.
    """
    checked_date(recorded)
    index.bind(localizer)
    keep = checked_keep(localizer, keep)
    index.sweep()
    path = Path(path).absolute()
    check_kind(path)
    known = known_by_path(index, path)
    if known and known.complete:
        return _known(index, localizer, _with_date(index, known, recorded), progress, check)
    source = Video(path, allow_truncated=allow_truncated)
    total = source.frame_count(localizer.fps)
    video = known or entered(index, source, total, keep, name, recorded)
    unreadable = Unreadable(source, total)
    try:
        with index.writing(video) as mine:
            if not mine:
                return Recording(video, BUSY)
            video = index.catalogue.video(video.id)  # another process may have finished it meanwhile
            video = _with_date(index, video, recorded)
            if video.complete:
                return _known(index, localizer, video, progress, check, held=True)
            if video.frames and has_missing_files(index, video):
                _repaired(repair_held(index, localizer, video, progress))
            recorder = Recorder(index, localizer, video, commit_s=commit_s)
            recorder.check_room()
            if recorder.end < total:
                recorder.align()
                unreadable.count = recorder.video.unreadable
                tracker = Tracker(progress, localizer.speeds)
                reader = localizer.tracked_by(tracker)
                tracker.plan(READING, video.name, {ENCODED: total - recorder.end})
                tracker.begin(READING, video.name, ENCODED, done=recorder.end)
                for features in reader.encoded(source, recorder.end, total, unreadable):
                    recorder.append(features, unreadable.count)
                tracker.finish(READING, video.name)
            _finish(recorder, source, total - recorder.end)
    except (VideoError, IndexStoreError):
        if unreadable.is_most or not index.catalogue.video(video.id).frames:
            index.remove(video)  # refused: as if it had not been given
        raise
    return Recording(recorder.video, ADDED, note=doubted_date(source, recorded))


def follow_file(
    index: IndexFolder,
    localizer: Localizer,
    path: str | Path,
    *,
    keep: str | None = None,
    name: str | None = None,
    recorded: float | None = None,
    keep_hours: float | None = None,
    settle_s: float = SETTLE_S,
    commit_s: float = COMMIT_S,
    progress: Tell | None = None,
) -> Recording:
    """As `add_file`, for a file that is still being written; ends when it stops growing."""
    checked_date(recorded)
    index.bind(localizer)
    keep = checked_keep(localizer, keep)
    index.sweep()
    path = Path(path).absolute()
    check_kind(path)
    growth = _Growth(path, settle_s)
    while (source := growth.opened()) is None:
        pass
    known = known_by_path(index, path)
    if known and known.complete:
        return _known(index, localizer, known, progress)
    video = known or index.catalogue.add(
        name or path.name,
        kind=GROWING,
        identity=growing_identity(path),
        **dates(source, recorded),
        **facts(source, keep),
    )
    with index.writing(video) as mine:
        if not mine:
            return Recording(video, BUSY)
        recorder = Recorder(index, localizer, index.catalogue.video(video.id), commit_s=commit_s)
        if recorder.video.complete:
            return _known(index, localizer, recorder.video, progress, held=True)
        settled, tracker = False, Tracker(progress, localizer.speeds)
        reader = localizer.tracked_by(tracker)
        while not settled:
            # Checked before the file is opened: what is written in between is left for the next iteration.
            settled, opening_at = growth.settled(), time.monotonic()
            source = growth.opened() or source
            opening_s = time.monotonic() - opening_at
            end = source.frame_count(localizer.fps)
            if not settled:
                end = int(max(0.0, source.duration_s - LAG_S) * localizer.fps)
                end -= end % localizer.batch  # whole batches only: else the bits would depend on timing
            if end > recorder.end:
                recorder.align()
                unreadable = Unreadable(source, end, recorder.video.unreadable)
                tracker.plan(READING, video.name, {ENCODED: end - recorder.end})
                tracker.begin(READING, video.name, ENCODED, done=recorder.end)
                for features in reader.encoded(source, recorder.end, end, unreadable):
                    if settled or len(features) == localizer.batch:
                        recorder.append(features, unreadable.count)
                tracker.finish(READING, video.name)
                recorder.commit(duration_s=source.duration_s)
                drop_older(recorder, keep_hours)
            if not settled:
                time.sleep(max(POLL_S, 4 * opening_s))  # slow for formats that must be read to the end
        _finish(recorder, source)
    return Recording(recorder.video, ADDED, note=doubted_date(source, recorded))


def _known(
    index: IndexFolder,
    localizer: Localizer,
    video: IndexedVideo,
    progress: Tell | None,
    check: bool = True,
    held: bool = False,
) -> Recording:
    """What there is to say of a video that is indexed: that it is, unless its files are not as they were."""
    if not has_missing_files(index, video) and (not check or is_sound(index, video, progress)):
        return Recording(video, KNOWN)
    done = _repaired((repair_held if held else repair)(index, localizer, video, progress))
    return Recording(done.video, REPAIRED, note=f"{video.name}: {done.done}")


def _repaired(done: Repair) -> Repair:
    if done.stays:
        raise IndexStoreError(f"{done.video.name}: is indexed, but {done.stays}")
    return done


def _with_date(index: IndexFolder, video: IndexedVideo, recorded: float | None) -> IndexedVideo:
    """The video with its date set to `recorded`, if given: a camera's clock may have been wrong."""
    if recorded is None or (recorded, SAID) == (video.recorded_at, video.dated_by):
        return video
    return index.catalogue.update(video.id, recorded_at=recorded, dated_by=SAID)


def _finish(recorder: Recorder, source: Video, missing: int = 0) -> None:
    """Mark the video as complete; `missing` frames at its end could not be decoded."""
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
        unreadable=recorder.unreadable + missing,
    )


class _Growth:
    """Detects when a file has stopped growing."""

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
        """The part written so far; None if it is not readable yet. Raises if the file has stopped growing."""
        settled = self.settled()
        try:
            return Video(self.path, allow_truncated=True)
        except VideoError:
            if settled:
                raise
            time.sleep(POLL_S)
            return None
