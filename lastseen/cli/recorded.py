"""What is said of a video that was indexed."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lastseen.files import one_line

if TYPE_CHECKING:
    from lastseen.index import Index
    from lastseen.index.record import Recording

ADD_SCHEMA = "lastseen/index-add@1"


def facts(index: Index, done: Recording) -> dict[str, Any]:
    video = done.video
    return {
        "name": video.name,
        "source": video.source,
        "outcome": done.outcome,
        "frames": video.frames - video.first,
        "bytes": index.size_bytes(video),
        "lost_frames": done.skipped,
        "unreadable_frames": video.unreadable,
        "note": done.note,
    }


def print_facts(facts: Mapping[str, Any], as_json: bool, quiet: bool) -> None:
    from lastseen.index.answers import megabytes
    from lastseen.index.record import BUSY, KNOWN, REPAIRED

    name = one_line(facts["name"])
    if facts["note"] and not quiet:
        print(f"note: {one_line(facts['note'])}", file=sys.stderr)
    if facts["lost_frames"] and not quiet:
        print(f"note: {facts['lost_frames']} frames came faster than they could be encoded", file=sys.stderr)
    if facts["unreadable_frames"] and not quiet:
        print(
            f"note: {facts['unreadable_frames']} of {facts['frames']} frames of {name} could not be decoded; "
            "what was in view then is not known",
            file=sys.stderr,
        )
    if as_json:
        return
    if facts["outcome"] == BUSY:
        print(f"{name}: another process is indexing it")
    elif facts["outcome"] == KNOWN:
        print(f"{name}: known already")
    elif facts["outcome"] == REPAIRED:
        print(f"{name}: known already, but it was damaged, and is sound again")
    else:
        print(f"{name}: {facts['frames']} frames kept, {megabytes(facts['bytes'])}")
