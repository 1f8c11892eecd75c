"""What each step of refinement is worth, on rendered and real video.

    python runs/refinement.py --set val --set real_dev --out runs/refined
    python runs/refinement.py --table --together val1 val2 --out runs/refined

A set is a folder with annotations.json, absent.json and videos/ (`lastseen synth` makes such). Frames are
decoded and encoded once; every row below is the rule of the model with some steps left out. The rule was
fitted on other episodes and with all steps.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.datasets import AbsentQuestion, Question
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.asking import WAYS, asked_as
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.calibration import (
    RIGHT_STIOU,
    Answered,
    best_guess,
    calibration_error,
    load_answered,
    outcome,
    rule_key,
    save_answered,
)
from lastseen.evaluate.encoded import in_advance, report
from lastseen.evaluate.metrics import Estimate, compare
from lastseen.localizer import Localizer
from lastseen.rule import Rule
from lastseen.video import Frame, Video
from lastseen.weights import bundled_model, load_rule

METRICS = ["tap25", "tap", "stap25", "stap", "recovery", "success", "tap25_unranked", "stap25_unranked"]
# Name of a row -> the steps that are left out
ROWS = {
    "none": ("zoom", "verify", "extend"),
    "zoom": ("verify", "extend"),
    "zoom-verify": ("extend",),
    "zoom-extend": ("verify",),
    "verify-extend": ("zoom",),
    "all": (),
}


class Decoded(Video):
    """A video whose sampled frames are in memory: here they are read again and again."""

    def hold(self, fps: float) -> Decoded:
        self.held = [frame.image for frame in super().frames(fps)]
        return self

    def frames(
        self, fps: float = 5.0, start_s: float = 0.0, end_s: float | None = None, *, ahead: int = 0
    ) -> Generator[Frame, None, None]:
        stop = len(self.held) if end_s is None else min(len(self.held), round(end_s * fps))
        for number in range(round(start_s * fps), stop):
            yield Frame(number, number / fps, self.held[number])


def answer_set(folder: Path, localizer: Localizer, out: Path, way: str) -> None:
    annotations, absent = load_vq2d(folder / "annotations.json"), load_absent(folder / "absent.json")
    sections = find_videos(annotations, folder / "videos")
    videos = in_advance(
        lambda clip, path: Decoded(path).hold(clip.fps), [(clip, section.path) for clip, section in sections]
    )
    kept: dict[str, list[Answered]] = {name: [] for name in ROWS}
    for (clip, _), video in zip(sections, videos):
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
        asked = [asked_as(query_of(question, video, clip.fps), way) for question in questions]
        here = localizer.at(clip.fps)
        encoded, ends = (
            list(map(f, asked)) for f in (here.encode_query, partial(here.frames_searched, video))
        )
        features = torch.cat(list(here.encoded(video, 0, max(ends))))
        said = here.predict_encoded(video, [features], encoded, ends)
        for question, query, predictions in zip(questions, encoded, said):
            access = VideoAccess(here, video, query, partial(between, features), partial(same, video))
            truth = question.truth if isinstance(question, Question) else None
            factors = np.array(to_annotated_px(question, video) * 2)
            for name, skip in ROWS.items():
                evidence = here.rule.refine(predictions, access, skip)
                evidence = replace(evidence, boxes_px=evidence.boxes_px * factors)
                key = rule_key(here.rule.without(skip))
                kept[name].append(
                    Answered(video_uid=clip.video_uid, evidence=evidence, truth=truth, refined_by=key)
                )
        print(folder.name, clip.clip_uid, len(kept["all"]), flush=True)
        for name, answered in kept.items():  # kept as it goes
            save_answered(answered, out / f"{folder.name}-{way}@{name}.json.gz")


def between(features: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return features[start:stop]


def same(video: Video) -> Video:
    return video


def print_table(out: Path, weights: Path | None, together: list[str]) -> None:
    rule = load_rule(weights or bundled_model())
    print(
        f"| set | steps | {' | '.join(METRICS)} | AUROC | calibration error "
        "| too late, too early, wrong place or length |\n" + "|---" * (5 + len(METRICS)) + "|"
    )
    names = sorted({path.name.split("@")[0] for path in out.glob("*@*.json.gz")})
    timeless = replace(rule, confidence=replace(rule.confidence, search_length_penalty=0.0))
    for sets in [*([name] for name in names), *([together] if together else [])]:
        for row, skip in ROWS.items():
            answered = [one for name in sets for one in load_answered(out / f"{name}@{row}.json.gz")]
            _print_rows("+".join(sets), row, answered, rule.without(skip))
            if not skip:
                _print_rows("+".join(sets), f"{row}, no length penalty", answered, timeless)


def _print_rows(name: str, steps: str, answered: list[Answered], rule: Rule) -> None:
    found = report(answered, rule)
    cells = [_cell(found.metrics["all"][metric], 3 if "ap" in metric else 1) for metric in METRICS]
    error = calibration_error(*outcome(answered, rule))
    cells += [_cell(found.auroc, 3), f"{error:.3f}", ", ".join(map(str, _wrong(answered, rule)))]
    print(f"| {name} | {steps} | {' | '.join(cells)} |")
    for size, count in found.questions.items():
        if size != "all" and count:
            sized = [found.value(metric, size) for metric in METRICS]
            cells = ["" if value is None else f"{value:.3g}" for value in sized]
            print(f"|  | {size}, {count} | {' | '.join(cells)} | | | |")


def _wrong(answered: list[Answered], rule: Rule) -> tuple[int, int, int]:
    """How many answers are after the truth, before it, and meet it without being right."""
    late = early = other = 0
    for one in answered:
        guess = best_guess(one, rule)
        if one.truth and compare(one.truth, guess).stiou < RIGHT_STIOU:
            late += (after := guess.first_frame > one.truth.last_frame)
            early += (before := guess.last_frame < one.truth.first_frame)
            other += not (after or before)
    return late, early, other


def _cell(estimate: Estimate, digits: int) -> str:
    if estimate.value is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--table", action="store_true", help="judge what was answered")
    parser.add_argument("--together", nargs="+", default=[], help="sets to judge as one, too")
    parser.add_argument("--weights", type=Path, help="a model folder; the bundled one unless given")
    parser.add_argument(
        "--ask", action="append", choices=WAYS, help="how questions are asked; photo unless given"
    )
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        for name in arguments.together:
            if not (arguments.out / f"{name}@all.json.gz").exists():
                parser.error(f"--together: {arguments.out} has no answers to {name}; --set {name} makes them")
        print_table(arguments.out, arguments.weights, arguments.together)
        return
    localizer = Localizer.from_pretrained(arguments.weights, device=arguments.device, engine=arguments.engine)
    if {step.name for step in localizer.rule.refinement} != set(ROWS["none"]):
        parser.error("the rule of this model leaves out a step of refinement")
    for folder in arguments.sets:
        for way in arguments.ask or ["photo"]:
            answer_set(folder, localizer, arguments.out, way)


if __name__ == "__main__":
    main()
