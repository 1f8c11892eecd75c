"""How often the quick search of an index gives the answer of the exhaustive one, and how long both take.

    python benchmarks/index_recall.py --annotations vq_val.json --videos clips/ --index /tmp/index

The videos are indexed (once: a second run goes on with what is there), and each thing of the annotations is
asked about in the whole library. "Answer": the latest sighting over all videos is the same track, or neither
search saw the thing. "Sightings": of all videos in which the exhaustive search saw it, those whose last track
the quick one gives, to the last box.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from lastseen import Localizer, Query, Video
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import query_of
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.index.search import Finding, search


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--clips", type=int, help="only so many of the annotated clips")
    parser.add_argument("--candidates", type=int, nargs="+", default=[8, 24])
    parser.add_argument("--device")
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained(arguments.weights, device=arguments.device)
    annotations = load_vq2d(arguments.annotations)
    clips = find_videos(annotations, arguments.videos)[: arguments.clips]
    with Index(arguments.index, create=True) as index:
        for number, (_, section) in enumerate(clips):
            add_file(index, localizer, section.path, recorded=1e9 + 1e5 * number)
        queries = list(_queries(clips))
        # Each query is asked many times here; seconds are without encoding it (about two on a core).
        encoded = {id(query): localizer.encode_query(query) for query in queries}
        localizer.encode_query = lambda query: encoded[id(query)]  # type: ignore[method-assign]
        print(json.dumps({"videos": len(clips), "frames": sum(v.frames for v in index.videos())}), flush=True)
        exact = [_timed(index, localizer, query, exhaustive=True) for query in queries]
        _report("exhaustive", exact, exact)
        for count in arguments.candidates:
            quick = [_timed(index, localizer, query, candidates=count) for query in queries]
            _report(f"{count} candidates", exact, quick)


def _queries(clips: list) -> Iterator[Query]:  # type: ignore[type-arg]
    """One picture of each thing in each clip."""
    for clip, section in clips:
        video, seen = Video(section.path), set()
        for question in clip.questions:
            if question.object_title not in seen:
                seen.add(question.object_title)
                yield query_of(question, video, clip.fps).asked(None)


Timed = tuple[list[Finding], list[Finding], float, float]  # every video, the answer, seconds, share looked at


def _timed(index: Index, localizer: Localizer, query: Query, **options: object) -> Timed:
    began = time.perf_counter()
    every = search(index, localizer, {"it": query}, every=True, **options)["it"]  # type: ignore[arg-type]
    seconds, answer = time.perf_counter() - began, every[:1]
    if "exhaustive" not in options:  # which looks at all of it anyway
        began = time.perf_counter()
        answer = search(index, localizer, {"it": query}, **options)["it"]  # type: ignore[arg-type]
        seconds = time.perf_counter() - began
    frames = sum(video.frames - video.first for video in index.videos())
    looked = sum(int(np.isfinite(finding.predictions.logits).sum()) for finding in every)
    return [f for f in every if f.tracks], [f for f in answer if f.tracks], seconds, looked / frames


def _report(name: str, exact: list[Timed], quick: list[Timed]) -> None:
    same = [_last(e[1]) == _last(q[1]) for e, q in zip(exact, quick)]
    found = [sighting in _all(q[0]) for e, q in zip(exact, quick) for sighting in _all(e[0])]
    extra = sum(sighting not in _all(e[0]) for e, q in zip(exact, quick) for sighting in _all(q[0]))
    seconds = sorted(q[2] for q in quick)
    row = {
        "search": name,
        "questions": len(exact),
        "answer the same": round(float(np.mean(same)), 3),
        "sightings": len(found),
        "found": round(float(np.mean(found)), 3) if found else None,
        "not in exhaustive": extra,
        "seconds median": round(seconds[len(seconds) // 2], 2),
        "frames in tracks' videos looked at": round(float(np.mean([q[3] for q in quick])), 3),
    }
    print(json.dumps(row), flush=True)


def _last(findings: list[Finding]) -> object:
    return (findings[0].video.name, findings[0].tracks[-1]) if findings else None


def _all(findings: list[Finding]) -> list[object]:
    return [(finding.video.name, finding.tracks[-1]) for finding in findings]


if __name__ == "__main__":
    main()
