"""Ask shards on this machine, one after another, without Ray."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from lastseen.answer import Answer
from lastseen.cluster.question import Question
from lastseen.cluster.shards import Shards
from lastseen.cluster.worker import opened_part, opened_shard
from lastseen.localizer import Localizer
from lastseen.progress import Tracker


def ask_here(
    shards: Shards, open_model: Callable[[], Localizer], question: Question
) -> tuple[dict[str, list[Answer]], str]:
    localizer = open_model()
    tracker = Tracker(question.progress, localizer.speeds)
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="lastseen-")))
        encoded = {name: localizer.encode_query(query) for name, query in question.queries.items()}
        part = partial(
            opened_part, localizer, question.queries, encoded, question.before, folder=folder, tracker=tracker
        )
        parts = [
            part(opened.enter_context(opened_shard(shards.folder, shard)), ids)
            for shard, ids in question.ids.items()
        ]
        return question.search(parts, localizer.procedure, tracker), localizer.model.title
