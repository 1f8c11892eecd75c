"""What masks do to boxes: IoU with the truth before and after, on annotated videos.

    python runs/measure_masks.py --set real_dev --out masks.json
    python runs/measure_masks.py --table masks.json
    python runs/measure_masks.py --table masks.json --min-box-iou 0 --min-predicted-iou 0
    python runs/measure_masks.py --set real_dev --out both.json --segmenter mobile-sam --segmenter sam2-tiny \
        --onnx package/dist

A set is a folder with annotations.json and videos/ (`lastseen synth` makes such). Prompts, for the same
random questions each time:

    true      the true box, in the middle of the true track
    grown     that box, grown by 25 % on every side
    random    that box with random sides (sd .3 in log) and a random shift (sd .15 of its sides)
    model     what the bundled model and its rule say on the true track's frames and a second on either side;
              a few frames of each answer that are in the truth, too

Every mask is kept, so that rules of acceptance can be compared without segmenting again. Several segmenters
see the same windows and prompts, and the table ends with their differences. sam2_tiny.py says how to get
sam2-tiny.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from lastseen.box import Box
from lastseen.datasets import ClipAnnotation, Question, VideoSection
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import query_of
from lastseen.localizer import Localizer
from lastseen.masks import MobileSamSegmenter, Segmenter, load_mobile_sam
from lastseen.refine import Mask
from lastseen.refine.window import crop
from lastseen.video import Video

Asked = tuple[ClipAnnotation, VideoSection, Question]
PROMPTS = ("true", "grown", "random", "model")
SEGMENTERS = ("mobile-sam", "sam2-tiny")
MARGIN_S = 1.0  # around the true track, for the model
NOTICEABLE = 0.02  # difference of IoU from which a question counts as better or worse


def sampled(folder: Path, count: int, seed: int) -> list[Asked]:
    sections = find_videos(load_vq2d(folder / "annotations.json"), folder / "videos")
    asked = [(clip, section, q) for clip, section in sections for q in clip.questions if q.truth]
    return random.Random(seed).sample(asked, min(count, len(asked)))


def true_boxes(question: Question, video: Video) -> list[Box]:
    assert question.truth is not None
    factors = video.width / question.original_width, video.height / question.original_height
    return [box.scaled(*factors) for box in question.truth.boxes]


def by_hand(asked: Asked, random_numbers: np.random.Generator) -> Iterator[tuple[str, np.ndarray, Box, Box]]:
    """Prompt, picture, box, truth."""
    clip, section, question = asked
    assert question.truth is not None
    video = Video(section.path)
    boxes = true_boxes(question, video)
    middle = len(boxes) // 2
    at = (section.start_s or 0.0) + (question.truth.first_frame + middle) / clip.fps
    picture = next(video.frames(clip.fps, start_s=at, end_s=at + 1 / clip.fps)).image
    truth = boxes[middle]
    scale, shift = np.exp(random_numbers.normal(0, 0.3, 2)), random_numbers.normal(0, 0.15, 2)
    center = np.array([truth.x1 + truth.x2, truth.y1 + truth.y2]) / 2
    sides = np.array([truth.width, truth.height])
    center, half = center + shift * sides, scale * sides / 2
    for name, box in (
        ("true", truth),
        ("grown", truth.expanded(1.5)),
        ("random", Box(*map(float, np.concatenate([center - half, center + half])))),
    ):
        yield name, picture, box.clipped(video.width, video.height), truth


def by_model(asked: Asked, localizer: Localizer, frames: int) -> Iterator[tuple[str, np.ndarray, Box, Box]]:
    clip, section, question = asked
    assert question.truth is not None
    whole = Video(section.path)
    begin = max(0.0, question.truth.start - MARGIN_S)
    end = min(whole.duration_s, question.truth.end + MARGIN_S)
    video = Video(section.path, start_s=begin, end_s=end)
    query = query_of(question, whole, clip.fps)
    here = localizer.at(clip.fps)
    guess = here.ask(video, query.asked(None)).shown[-1]
    first = question.truth.first_frame - round(begin * clip.fps)
    truth = dict(enumerate(true_boxes(question, whole), first))
    said = dict(enumerate(guess.boxes, guess.first_frame))
    shared = sorted(truth.keys() & said.keys())
    if not shared:
        print(f"{question.annotation_uid}: the answer and the truth share no frame")
        return
    chosen = {
        shared[n] for n in np.linspace(0, len(shared) - 1, min(frames, len(shared))).round().astype(int)
    }
    for frame in video.frames(clip.fps):
        if frame.index in chosen:
            yield "model", frame.image, said[frame.index], truth[frame.index]


def open_segmenter(name: str, arguments: argparse.Namespace) -> Segmenter:
    if name == "sam2-tiny":
        from sam2_tiny import Sam2TinySegmenter  # needs onnxruntime

        return Sam2TinySegmenter(arguments.onnx)
    return MobileSamSegmenter(load_mobile_sam(), input_px=arguments.input_px)


def measure(folder: Path, arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    segmenters = {name: open_segmenter(name, arguments) for name in arguments.segmenters}
    localizer = Localizer.from_pretrained(device="cpu", engine=arguments.engine)
    step = Mask(window_ratio=arguments.window_ratio, prompt_ratio=arguments.prompt_ratio)
    numbers = np.random.default_rng(arguments.seed)
    chosen = sampled(folder, arguments.questions, arguments.seed)
    for number, asked in enumerate(chosen):
        cases = [case for case in by_hand(asked, numbers) if case[0] in arguments.prompts]
        if "model" in arguments.prompts:
            cases += by_model(asked, localizer, arguments.frames)
        for (prompt, picture, box, truth), (name, segmenter) in product(cases, segmenters.items()):
            began = time.process_time()
            x, y, side = step.window(box, picture)
            shown = box.expanded(step.prompt_ratio).shifted(-x, -y)
            (found,) = segmenter.masks([crop(picture, x, y, side)], [shown])
            yield {
                "set": folder.name,
                "question": asked[2].annotation_uid,
                "segmenter": name,
                "prompt": prompt,
                "box": box.xyxy,
                "truth": truth.xyxy,
                "bounds": found.bounds and found.bounds.shifted(x, y).xyxy,
                "predicted_iou": found.predicted_iou,
                "cpu_s": time.process_time() - began,
            }
        print(f"{folder.name}: {number + 1} of {len(chosen)}", flush=True)


def print_table(records: list[dict[str, Any]], step: Mask) -> None:
    print(
        f"accepted: predicted IoU >= {step.min_predicted_iou:g}, IoU with the box >= {step.min_box_iou:g}, "
        f"area <= {step.max_area_ratio:g} of the box\n"
        "| set | prompt | segmenter | boxes | IoU before | after | >= .5 before | after | taken | CPU s |\n"
        + "|---" * 10
        + "|"
    )
    differences = []
    sets = dict.fromkeys(record["set"] for record in records)
    for name, prompt in product(sets, PROMPTS):
        after: dict[str, np.ndarray] = {}
        for segmenter in SEGMENTERS:
            wanted = (name, prompt, segmenter)
            some = [r for r in records if (r["set"], r["prompt"], r["segmenter"]) == wanted]
            if some:
                after[segmenter] = _print_row(" | ".join(wanted), some, step)
        if len(after) == 2:
            questions = [record["question"] for record in some]
            differences.append(f"{name}, {prompt}: {_difference(questions, *after.values())}")
    if differences:
        print("IoU after, {1} - {0}, means of questions [95 %]:".format(*SEGMENTERS), *differences, sep="\n")


def _print_row(what: str, records: list[dict[str, Any]], step: Mask) -> np.ndarray:
    """Returns the IoUs after."""
    rows = []
    for record in records:
        box, truth = Box(*record["box"]), Box(*record["truth"])
        chosen = step.chosen(box, record["bounds"] and Box(*record["bounds"]), record["predicted_iou"])
        rows.append((box.iou(truth), chosen.iou(truth), chosen is not box, record["cpu_s"]))
    before, after, taken, cpu_s = np.array(rows, float).T
    print(
        f"| {what} | {len(rows)} | {before.mean():.3f} | {after.mean():.3f} "
        f"| {100 * (before >= 0.5).mean():.0f} % | {100 * (after >= 0.5).mean():.0f} % "
        f"| {100 * taken.mean():.0f} % | {cpu_s.mean():.2f} |"
    )
    return after


def _difference(questions: list[str], first: np.ndarray, second: np.ndarray) -> str:
    """Mean over questions of what the second gains on the same boxes, with a bootstrap interval."""
    of_boxes = second - first
    names = np.array(questions)
    gains = np.array([of_boxes[names == name].mean() for name in dict.fromkeys(questions)])
    drawn = np.random.default_rng(0).choice(gains, (10_000, len(gains))).mean(axis=1)
    low, high = np.quantile(drawn, (0.025, 0.975))
    better, worse = (gains > NOTICEABLE).sum(), (gains < -NOTICEABLE).sum()
    return f"{gains.mean():+.3f} [{low:+.3f}, {high:+.3f}], {better} better and {worse} worse of {len(gains)}"


def main() -> None:
    usual = Mask()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    parser.add_argument("--out", type=Path, help="where to keep every mask, as JSON")
    parser.add_argument("--table", type=Path, help="judge what was kept")
    parser.add_argument("--questions", type=int, default=28, help="of each set")
    parser.add_argument("--frames", type=int, default=4, help="of each answer of the model")
    parser.add_argument(
        "--prompt", choices=PROMPTS, action="append", dest="prompts", help="repeatable; else all of them"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--segmenter",
        choices=SEGMENTERS,
        action="append",
        dest="segmenters",
        help="repeatable; else mobile-sam",
    )
    parser.add_argument("--onnx", type=Path, metavar="FOLDER", help="the two files of sam2-tiny")
    parser.add_argument("--input-px", type=int, default=512, help="of mobile-sam")
    parser.add_argument("--window-ratio", type=float, default=usual.window_ratio)
    parser.add_argument("--prompt-ratio", type=float, default=usual.prompt_ratio)
    parser.add_argument("--min-predicted-iou", type=float, default=usual.min_predicted_iou)
    parser.add_argument("--min-box-iou", type=float, default=usual.min_box_iou)
    parser.add_argument("--max-area-ratio", type=float, default=usual.max_area_ratio)
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    limits = {
        name: getattr(arguments, name) for name in ("min_predicted_iou", "min_box_iou", "max_area_ratio")
    }
    if arguments.table:
        print_table(json.loads(arguments.table.read_text()), replace(usual, **limits))
        return
    if arguments.out is None:
        parser.error("give --out FILE.json, or --table FILE.json")
    arguments.prompts = arguments.prompts or list(PROMPTS)
    arguments.segmenters = list(dict.fromkeys(arguments.segmenters or ["mobile-sam"]))
    if "sam2-tiny" in arguments.segmenters and arguments.onnx is None:
        parser.error("sam2-tiny needs --onnx FOLDER")
    records: list[dict[str, Any]] = []
    for folder in arguments.sets:
        for record in measure(folder, arguments):
            records.append(record)
            arguments.out.write_text(json.dumps(records))
    print_table(records, replace(usual, **limits))


if __name__ == "__main__":
    main()
