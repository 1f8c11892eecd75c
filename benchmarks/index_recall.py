"""How often the quick search of an index gives the answer of the exhaustive one, and how long both take.

    python benchmarks/index_recall.py --folder data/val --index /tmp/index
    python benchmarks/index_recall.py --annotations vq_val.json --videos clips/ --index /tmp/index --things

The videos are indexed (once: a second run goes on with what is there), then every question of the annotations
is asked twice: of its own video, before the moment at which it was asked, and of the whole library. --things
asks about each thing of a video once, and of the library only. What 'lastseen synth' makes is a --folder.
--together asks the library for the latest sightings alone, and the exhaustive search for all of them at once,
so that features are read once: an hour of video in a minute or two of a GPU. Answers are compared without
zoom, since which sightings are enlarged depends on them.

"Answer": the latest sighting is the same track, frame by frame and to a pixel (a GPU rounds many clips at
once otherwise than one by one; on a CPU it is the last digit), or neither search saw the thing;
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
from lastseen.answer import Answer
from lastseen.datasets import ClipAnnotation, VideoSection
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import query_of
from lastseen.index import Index, IndexedVideo
from lastseen.index.record import add_file
from lastseen.index.search import search

SAME_PX = 1.0


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
    parser.add_argument("--questions", type=int, help="only so many, evenly chosen")
    parser.add_argument("--candidates", type=int, nargs="+", default=[8, 24])
    parser.add_argument("--things", action="store_true", help="each thing of a video once, in the library")
    parser.add_argument("--own", action="store_true", help="only of its own video, not of the library")
    parser.add_argument("--together", action="store_true", help="of the library only, its latest sightings")
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    if arguments.folder:
        arguments.annotations = arguments.annotations or arguments.folder / "annotations.json"
        arguments.videos = arguments.videos or arguments.folder / "videos"
    if not (arguments.annotations and arguments.videos):
        parser.error("give --folder, or --annotations and --videos")
    localizer = Localizer.from_pretrained(
        arguments.weights, device=arguments.device, engine=arguments.engine, skip=("zoom",)
    )
    annotations = load_vq2d(arguments.annotations)
    clips = find_videos(annotations, arguments.videos)[: arguments.clips]
    with Index(arguments.index, create=True) as index:
        videos = [
            add_file(index, localizer, section.path, recorded=1e9 + 1e5 * number).video
            for number, (_, section) in enumerate(clips)
        ]
        asked = list(_queries(clips, videos, arguments.things))
        if arguments.questions:
            asked = asked[:: -(-len(asked) // arguments.questions)]
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
    if together:
        exact = _together(index, localizer, asked)
    else:
        exact = [_timed(index, localizer, *question, exhaustive=True) for question in asked]
    _report(where, "exhaustive", exact, exact)
    for count in candidates:
        quick = [
            _timed(index, localizer, *question, candidates=count, every=not together) for question in asked
        ]
        _report(where, f"{count} candidates", exact, quick)


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


Timed = tuple[list[Answer], list[Answer], float, float]  # every video, the answer, seconds, share looked at


def _together(index: Index, localizer: Localizer, asked: list[Asked]) -> list[Timed]:
    things = {str(number): query for number, (query, _) in enumerate(asked)}
    began = time.perf_counter()
    answers = search(index, localizer, things, exhaustive=True)
    seconds = (time.perf_counter() - began) / len(asked)
    return [_judged(index.videos(), answers[name], answers[name], seconds) for name in things]


def _timed(
    index: Index,
    localizer: Localizer,
    query: Query,
    video: IndexedVideo | None,
    *,
    every: bool = True,
    **options: Any,
) -> Timed:
    videos = index.videos() if video is None else [video]
    options["videos"] = videos
    began = time.perf_counter()
    found = search(index, localizer, {"it": query}, every=every, **options)["it"]
    seconds, answer = time.perf_counter() - began, found[:1]
    if every and "exhaustive" not in options:  # which looks at all of it anyway
        began = time.perf_counter()
        answer = search(index, localizer, {"it": query}, **options)["it"]
        seconds = time.perf_counter() - began
    return _judged(videos, found, answer, seconds)


def _judged(
    videos: Sequence[IndexedVideo], every: list[Answer], answer: list[Answer], seconds: float
) -> Timed:
    frames = sum(video.frames - video.first for video in videos)
    looked = sum(int(one.curve.searched.sum()) for one in every if one.curve)
    return [a for a in every if a.found], [a for a in answer if a.found], seconds, looked / frames


def _report(where: str, name: str, exact: list[Timed], quick: list[Timed]) -> None:
    same = [_same(e[1][0], q[1][:1]) if e[1] else not q[1] for e, q in zip(exact, quick)]
    seen = [equal for equal, e in zip(same, exact) if e[1]]
    found = [_same(answer, q[0]) for e, q in zip(exact, quick) for answer in e[0]]
    extra = sum(not _same(answer, e[0]) for e, q in zip(exact, quick) for answer in q[0])
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


def _same(answer: Answer, others: list[Answer]) -> bool:
    """Whether one of the others ends with the same track in the same video."""
    track = answer.sightings[-1]
    boxes = np.array([box.xyxy for box in track.boxes])
    for other in others:
        its = other.sightings[-1]
        if other.video.path == answer.video.path and its.first_frame == track.first_frame:
            its_boxes = np.array([box.xyxy for box in its.boxes])
            if its_boxes.shape == boxes.shape and np.abs(its_boxes - boxes).max() <= SAME_PX:
                return True
    return False


if __name__ == "__main__":
    main()
