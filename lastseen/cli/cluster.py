"""--ray: index and find on many machines; and find in a folder of shards without it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lastseen.cli.bar import progress_bar
from lastseen.cli.recorded import ADD_SCHEMA, print_facts
from lastseen.cli.shared import ERROR, FOUND
from lastseen.cli.terminal import complain
from lastseen.errors import IndexStoreError, LastSeenError, QueryError

if TYPE_CHECKING:
    from lastseen.answer import Answer
    from lastseen.cluster import Cluster, ModelChoice, Outcome
    from lastseen.cluster.shards import Held, Shards
    from lastseen.index import IndexedVideo
    from lastseen.query import Query
    from lastseen.video import Video

Ray = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Many machines: the address of a Ray cluster, or auto: the cores of this machine.",
    ),
]
Workers = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="With --ray: how many (default: one for each GPU, or core)."),
]


def place_of(folder: Path) -> str:
    """A folder as it was typed: of an address, pathlib makes one slash of two."""
    match = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", str(folder))
    if match is None:
        return str(folder)
    kind, rest = match.groups()
    return f"{kind}:///{rest}" if kind in ("file", "local") else f"{kind}://{rest}"


def is_sharded(folder: Path, ray: str | None) -> bool:
    from lastseen.cluster.shards import has_shards

    return ray is not None or has_shards(place_of(folder))


def model_choice(weights: Path | None, device: str | None, engine: str | None, **more: Any) -> ModelChoice:
    from lastseen.cluster import ModelChoice

    folder = None if weights is None else str(weights.absolute() if weights.is_dir() else weights)
    return ModelChoice(weights=folder, device=device, engine=engine, **more)


def index_with_ray(
    folder: Path,
    ray: str,
    workers: int | None,
    videos: list[str],
    model: ModelChoice,
    options: dict[str, Any],
    as_json: bool,
    quiet: bool,
) -> int:
    """Index the videos, print each outcome as it comes, and return the exit status."""
    from lastseen.cluster import Cluster
    from lastseen.cluster.worker import FAILED

    output: dict[str, Any] = {"schema": ADD_SCHEMA, "videos": [], "failed": []}

    def report(outcome: Outcome) -> None:
        if outcome.outcome == FAILED:
            complain(outcome.error)  # the others go on
            output["failed"].append({"source": outcome.source.place, "error": outcome.error})
        else:
            output["videos"].append(_facts(outcome))
            print_facts(output["videos"][-1], as_json, quiet)

    with progress_bar("all videos", quiet) as progress:
        cluster = Cluster(place_of(folder), ray=ray, workers=workers, model=model)
        cluster.add(*videos, report=report, progress=progress, **options)
    if as_json:
        print(json.dumps(output))
    return ERROR if output["failed"] else FOUND


def _facts(outcome: Outcome) -> dict[str, Any]:
    return {
        "name": outcome.name,
        "source": outcome.source.place,
        "outcome": outcome.outcome,
        "shard": outcome.shard,
        "frames": outcome.frames,
        "bytes": outcome.bytes,
        "lost_frames": 0,
        "unreadable_frames": outcome.unreadable,
        "note": outcome.note,
    }


class AskedShards:
    """A folder of shards as `find` asks it."""

    def __init__(self, cluster: Cluster, shards: Shards) -> None:
        self._cluster, self._shards, self.folder = cluster, shards, cluster.folder

    def videos(self) -> list[IndexedVideo]:
        return self._shards.videos()

    def named(self, name: str) -> Held:
        return self._shards.named(name)

    def ask(
        self, queries: Mapping[str, Query], videos: Sequence[Any] | None, **options: Any
    ) -> tuple[dict[str, list[Answer]], str]:
        return self._cluster.asked(self._shards, queries, videos, **options)

    def original(self, video: IndexedVideo) -> Video:
        from lastseen.cli.find import original_of

        if "://" in video.source:
            raise IndexStoreError(f"{video.name}: fetch {video.source} and draw on that")
        shard = next(one.shard for one in self._shards.held() if one.video.identity == video.identity)
        return original_of(self._shards.indexes[shard], video)


@contextmanager
def asked_shards(
    folder: Path, ray: str | None, workers: int | None, model: ModelChoice
) -> Iterator[AskedShards]:
    from lastseen.cluster import Cluster
    from lastseen.cluster.shards import Shards, has_shards

    if not has_shards(place_of(folder)):
        raise QueryError(
            f"--ray asks shards, and there are none at {folder}: leave it out, or make them: "
            "lastseen index VIDEO... --ray ADDRESS"
        )
    cluster = Cluster(place_of(folder), ray=ray, workers=workers, model=model)
    with Shards(cluster.folder) as shards:
        yield AskedShards(cluster, shards)


def refuse(with_ray: str, **given: Any) -> None:
    """Options that belong to one machine."""
    for option, value in given.items():
        if value not in (None, False):
            raise LastSeenError(
                f"--{option.replace('_', '-')} does not go with --ray {with_ray}; leave one out"
            )
