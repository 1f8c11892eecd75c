"""Which answers change with an engine, or with small features of an index.

    python benchmarks/equal_answers.py --set val --part 0/4 --out equal.jsonl
    python benchmarks/equal_answers.py --table --out equal.jsonl

A set is a folder with annotations.json, absent.json and videos/. Every question is answered in each way; two
answers are the same if both say "not seen", or both name a sighting and their boxes overlap in space and
time (stIoU) by a half or more. What is answered already in the file is not asked again.

    torch-fp32 ...     the engine, from the video file, all frames
    ENGINE small       from an index with small features, the video file at hand for zoom
    ENGINE coarse      from the video file, coarse to fine, with as few candidates as a long video has

`--questions N` asks N questions of each video, drawn with a fixed seed, one in five about an absent thing.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))
from refinement import Decoded, part
from scipy.stats import beta

from lastseen.answer import Answer
from lastseen.box import Box
from lastseen.datasets import Question
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.index import Index
from lastseen.index.record import add_file
from lastseen.index.search import search
from lastseen.localizer import CANDIDATE_SHARE, Localizer
from lastseen.query import Query
from lastseen.video import Video

SMALL, COARSE = "small", "coarse"
SAME_STIOU = 0.5
RIGHT_STIOU = 0.25
WAYS = (
    "torch-fp32",
    "torch-fp32-grouped",
    "openvino-bf16",
    f"openvino-bf16 {SMALL}",
    f"openvino-bf16 {COARSE}",
)
Boxes = dict[int, Box]  # by frame


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    parser.add_argument("--part", type=part, default=(0, 1), metavar="K/N", help="every Nth video, from K on")
    parser.add_argument("--way", action="append", choices=WAYS, help="how to answer; all unless given")
    parser.add_argument("--questions", type=int, metavar="N", help="of each video; all unless given")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true")
    arguments = parser.parse_args()
    if not arguments.table:
        for folder in arguments.sets:
            answer_set(folder, arguments.part, arguments.way or WAYS, arguments.out, arguments.questions)
    print_table(rows_of(arguments.out))


def rows_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []


def loaded(engine: str) -> Localizer:
    return Localizer.from_pretrained(engine=engine)


def answer_set(
    folder: Path,
    which: tuple[int, int],
    ways: Sequence[str],
    out: Path,
    most: int | None = None,
    load: Callable[[str], Localizer] = loaded,
) -> None:
    annotations, absent = load_vq2d(folder / "annotations.json"), load_absent(folder / "absent.json")
    done = {(row["set"], row["video"], row["way"]) for row in rows_of(out)}
    for clip, section in find_videos(annotations, folder / "videos")[which[0] :: which[1]]:
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions = sampled([q for q in clip.questions if q.truth], asides, most, clip.clip_uid)
        video = Decoded(section.path).hold(clip.fps)
        queries = [query_of(question, video, clip.fps) for question in questions]
        for way in ways:
            if (folder.name, clip.clip_uid, way) in done:
                continue
            began = time.perf_counter()
            answers = answered(way, clip.fps, load)(video, queries)
            seconds = time.perf_counter() - began
            with out.open("a") as lines:
                for number, (question, answer) in enumerate(zip(questions, answers)):
                    truth = question.truth if isinstance(question, Question) else None
                    factors = to_annotated_px(question, video)
                    right = None if truth is None else st_iou(boxes_of(answer, factors), truth_boxes(truth))
                    row = {"set": folder.name, "video": clip.clip_uid, "question": number, "way": way}
                    row |= {"found": answer.found, "boxes": stored(answer), "truth_stiou": right}
                    lines.write(json.dumps(row | {"video_seconds": round(seconds, 1)}) + "\n")
            print(folder.name, clip.clip_uid, way, f"{len(questions)} questions, {seconds:.0f} s", flush=True)


def sampled(asked: Sequence[Any], absent: Sequence[Any], most: int | None, seed: str) -> list[Any]:
    if most is None:
        return [*asked, *absent]
    rng, few = random.Random(seed), min(len(absent), round(most / 5))
    return [*rng.sample(list(asked), min(len(asked), most - few)), *rng.sample(list(absent), few)]


def answered(
    way: str, fps: float, load: Callable[[str], Localizer]
) -> Callable[[Video, Sequence[Query]], list[Answer]]:
    engine, _, keep = way.partition(" ")
    localizer = load(engine).at(fps)

    def from_index(video: Video, queries: Sequence[Query]) -> list[Answer]:
        with tempfile.TemporaryDirectory() as place, Index(place) as index:
            add_file(index, localizer, video.path, keep=keep)
            return [search(index, localizer, {"it": query})["it"][0] for query in queries]

    def coarse(video: Video, queries: Sequence[Query]) -> list[Answer]:
        clips = -(-video.frame_count(fps) // localizer.clip_step)
        count = max(1, round(CANDIDATE_SHARE * clips))
        return [localizer.ask(video, query, candidates=count) for query in queries]

    if keep == COARSE:
        return coarse
    return from_index if keep else partial(localizer.ask_many, exhaustive=True)


def boxes_of(answer: Answer, factors: Sequence[float] = (1.0, 1.0)) -> Boxes:
    """Of the last sighting; none if it was not seen."""
    track = answer.last
    if track is None:
        return {}
    return {track.first_frame + n: box.scaled(*factors) for n, box in enumerate(track.boxes)}


def truth_boxes(truth: Any) -> Boxes:
    return {truth.first_frame + n: box for n, box in enumerate(truth.boxes)}


def stored(answer: Answer) -> dict[str, list[float]]:
    return {str(frame): [round(side, 2) for side in box.xyxy] for frame, box in boxes_of(answer).items()}


def st_iou(one: Boxes, other: Boxes) -> float:
    """Intersection over union in space and time."""
    shared = 0.0
    for frame in one.keys() & other.keys():
        a, b = one[frame], other[frame]
        across = max(0.0, min(a.x2, b.x2) - max(a.x1, b.x1))
        shared += across * max(0.0, min(a.y2, b.y2) - max(a.y1, b.y1))
    union = sum(box.area for boxes in (one, other) for box in boxes.values()) - shared
    return shared / union if union > 0 else 0.0


def print_table(rows: Sequence[dict[str, Any]], exact: str = WAYS[0]) -> None:
    """Each way against the exact one, and against its engine on all frames and features."""
    by_way: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {}
    for row in rows:
        by_way.setdefault(row["way"], {})[row["set"], row["video"], row["question"]] = row
    for way, mine in by_way.items():
        for reference in dict.fromkeys((exact, way.partition(" ")[0])):
            theirs = by_way.get(reference, {})
            both = [key for key in mine if key in theirs]
            if way == reference or not both:
                continue
            pairs = [(mine[key], theirs[key]) for key in both]
            same = sum(is_same(a, b) for a, b in pairs)
            flips = sum(a["found"] != b["found"] for a, b in pairs)
            hits = [sum((r["truth_stiou"] or 0) >= RIGHT_STIOU for r in side) for side in zip(*pairs)]
            print(
                f"{way} against {reference}: {same} of {len(both)} the same ({same / len(both):.1%}, "
                f"at least {least(same, len(both)):.1%} with 95 %), "
                f"{flips} seen by one only; right at stIoU .25: {hits[0]} against {hits[1]}"
            )


def least(same: int, of: int) -> float:
    """One-sided lower bound of a share, exactly (Clopper and Pearson)."""
    return float(beta.ppf(0.05, same, of - same + 1)) if same else 0.0


def is_same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    if one["found"] != other["found"]:
        return False
    boxes = [{int(f): Box(*xyxy) for f, xyxy in row["boxes"].items()} for row in (one, other)]
    return not one["found"] or st_iou(*boxes) >= SAME_STIOU


if __name__ == "__main__":
    main()
