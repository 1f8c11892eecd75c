"""How often the quick search of an index gives the answer of the exhaustive one, and how long both take.

    python benchmarks/index_recall.py --folder data/val --index /tmp/index
    python benchmarks/index_recall.py --annotations vq_val.json --videos clips/ --index /tmp/index --things

The videos are indexed (once: a second run goes on with what is there), then every question of the annotations
is asked twice: of its own video, before the moment at which it was asked, and of the whole library. --things
asks about each thing of a video once, and of the library only. What 'lastseen synth' makes is a --folder.
--together asks the library all questions at once, so that features are read once, and for the latest sighting
alone: no times and no sightings, but an hour of video in a minute or two of a GPU. First looks are compared:
which sightings get a second one depends on them.

"Answer": the latest sighting is the same track, to the last box and digit, or neither search saw the thing;
"of those": only where the exhaustive search saw it. "Sightings": of all videos in which the exhaustive search
saw it, those whose last track the quick one gives.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lastseen import Localizer, Query, Video
from lastseen.datasets import ClipAnnotation, VideoSection
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import query_of
from lastseen.index import Index, IndexedVideo
from lastseen.index.record import add_file
from lastseen.index.search import Finding, search


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=Path, help="holds annotations.json and videos/")
    parser.add_argument("--annotations", type=Path)
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--index", type=Path, required=True)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--clips", type=int, help="only so many of the annotated clips")
    parser.add_argument("--candidates", type=int, nargs="+", default=[8, 24])
    parser.add_argument("--things", action="store_true", help="each thing of a video once, in the library")
    parser.add_argument("--own", action="store_true", help="only of its own video, not of the library")
    parser.add_argument("--together", action="store_true", help="of the library only, all questions at once")
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.annotations = arguments.annotations or arguments.folder / "annotations.json"
        arguments.videos = arguments.videos or arguments.folder / "videos"
    if not (arguments.annotations and arguments.videos):
        parser.error("give --folder, or --annotations and --videos")
    localizer = Localizer.from_pretrained(
        arguments.weights, device=arguments.device, engine=arguments.engine, looks=0
    )
    annotations = load_vq2d(arguments.annotations)
    clips = find_videos(annotations, arguments.videos)[: arguments.clips]
    with Index(arguments.index, create=True) as index:
        videos = [
            add_file(index, localizer, section.path, recorded=1e9 + 1e5 * number).video
            for number, (_, section) in enumerate(clips)
        ]
        asked = list(_queries(clips, videos, arguments.things))
        # Each query is asked many times here; seconds are without encoding it (about two on a core).
        encoded = {id(query.views): localizer.encode_query(query) for query, _ in asked}
        localizer.encode_query = lambda query: encoded[id(query.views)]  # type: ignore[method-assign]
        frames = sum(video.frames for video in index.videos())
        print(
            json.dumps({"model": localizer.model.title, "videos": len(clips), "frames": frames}), flush=True
        )
        everywhere: list[Asked] = [(query.asked(None), None) for query, _ in asked]
        if arguments.together:
            _compare("the library", index, localizer, everywhere, arguments.candidates, together=True)
            return
        if not arguments.things:
            _compare("its own video", index, localizer, asked, arguments.candidates)
        if arguments.own:
            return
        _compare("the library", index, localizer, everywhere, arguments.candidates)


Asked = tuple[Query, IndexedVideo | None]  # of that video, or of all


def _compare(
    where: str,
    index: Index,
    localizer: Localizer,
    asked: list[Asked],
    candidates: Sequence[int],
    together: bool = False,
) -> None:
    def answers(**options: Any) -> list[Timed]:
        if together:
            return _together(index, localizer, asked, **options)
        return [_timed(index, localizer, *question, **options) for question in asked]

    exact = answers(exhaustive=True)
    _report(where, "exhaustive", exact, exact)
    for count in candidates:
        _report(where, f"{count} candidates", exact, answers(candidates=count))


def _queries(
    clips: Sequence[tuple[ClipAnnotation, VideoSection]], videos: Sequence[IndexedVideo], things: bool
) -> Iterator[Asked]:
    """Every question, or one picture of each thing in each clip."""
    for (clip, section), indexed in zip(clips, videos):
        video, seen = Video(section.path), set()
        for question in clip.questions:
            if not things or question.object_title not in seen:
                seen.add(question.object_title)
                yield query_of(question, video, clip.fps), indexed


Timed = tuple[list[Finding], list[Finding], float, float]  # every video, the answer, seconds, share looked at


def _together(index: Index, localizer: Localizer, asked: list[Asked], **options: Any) -> list[Timed]:
    things = {str(number): query for number, (query, _) in enumerate(asked)}
    began = time.perf_counter()
    answers = search(index, localizer, things, **options)
    seconds = (time.perf_counter() - began) / len(asked)
    return [_judged(index.videos(), answers[name], answers[name], seconds) for name in things]


def _timed(
    index: Index, localizer: Localizer, query: Query, video: IndexedVideo | None, **options: Any
) -> Timed:
    videos = index.videos() if video is None else [video]
    options["videos"] = videos
    began = time.perf_counter()
    every = search(index, localizer, {"it": query}, every=True, **options)["it"]
    seconds, answer = time.perf_counter() - began, every[:1]
    if "exhaustive" not in options:  # which looks at all of it anyway
        began = time.perf_counter()
        answer = search(index, localizer, {"it": query}, **options)["it"]
        seconds = time.perf_counter() - began
    return _judged(videos, every, answer, seconds)


def _judged(
    videos: Sequence[IndexedVideo], every: list[Finding], answer: list[Finding], seconds: float
) -> Timed:
    frames = sum(video.frames - video.first for video in videos)
    looked = sum(int(np.isfinite(finding.predictions.logits).sum()) for finding in every)
    return [f for f in every if f.tracks], [f for f in answer if f.tracks], seconds, looked / frames


def _report(where: str, name: str, exact: list[Timed], quick: list[Timed]) -> None:
    same = [_last(e[1]) == _last(q[1]) for e, q in zip(exact, quick)]
    seen = [equal for equal, e in zip(same, exact) if e[1]]
    found = [sighting in _all(q[0]) for e, q in zip(exact, quick) for sighting in _all(e[0])]
    extra = sum(sighting not in _all(e[0]) for e, q in zip(exact, quick) for sighting in _all(q[0]))
    seconds = sorted(q[2] for q in quick)
    row = {
        "asked of": where,
        "search": name,
        "questions": len(exact),
        "answer the same": round(float(np.mean(same)), 4),
        "seen by exhaustive": len(seen),
        "the same of those": round(float(np.mean(seen)), 4) if seen else None,
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
