"""What each step of refinement is worth, on rendered and real video.

    python runs/refinement.py --set val --set real_dev --out runs/refined
    for k in 0 1 2 3; do python runs/refinement.py --set val3 --part $k/4 --out runs/refined & done; wait
    python runs/refinement.py --table --together val1-photo val2-photo --out runs/refined

A set is a folder with annotations.json, absent.json and videos/ (`lastseen synth` makes such). Frames are
decoded and encoded once for all ways of asking; every row is the rule of the model with its first steps
alone: none, the first one, .., all, and with `--masks` boxes by masks after all of them. With `--part K/N` a
process answers every Nth video, and the table has all parts as one set.
"""

from __future__ import annotations

import argparse
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from lastseen.access import VideoAccess
from lastseen.datasets import AbsentQuestion, Question
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.asking import WAYS, asked_as, is_plain
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.calibration import (
    RIGHT_STIOU,
    Answered,
    best_guess,
    calibration_error,
    load_answered,
    mistaken,
    outcome,
    rule_key,
    save_answered,
)
from lastseen.evaluate.encoded import in_advance, report
from lastseen.evaluate.metrics import Estimate, compare
from lastseen.localizer import Localizer
from lastseen.rule import Rule
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions
from lastseen.video import Frame, Video
from lastseen.weights import bundled_model, load_rule

METRICS = ["tap25", "tap", "stap25", "stap", "recovery", "success", "tap25_unranked", "stap25_unranked"]
PLAIN = "plain"  # of the size classes in a table: things with little texture


def rows(rule: Rule, masks: bool = False) -> dict[str, Rule]:
    """Name of a row -> the rule with the steps that it has."""
    steps = [step.name for step in rule.refinement]
    names = ["none", *("-".join(steps[: n + 1]) for n in range(len(steps) - 1)), "all"]
    made = {name: rule.without(steps[n:]) for n, name in enumerate(names)} if steps else {"all": rule}
    return made | ({"mask": rule.with_mask()} if masks else {})


class Decoded(Video):
    """A video whose sampled frames are in memory: here they are read again and again."""

    def hold(self, fps: float) -> Decoded:
        self.held = [frame.image for frame in super().frames(fps)]
        return self

    def frames(
        self,
        fps: float = 5.0,
        start_s: float = 0.0,
        end_s: float | None = None,
        *,
        ahead: int = 0,
        every: int = 1,
    ) -> Generator[Frame, None, None]:
        stop = len(self.held) if end_s is None else min(len(self.held), round(end_s * fps))
        for number in range(round(start_s * fps), stop):
            if number % every == 0 or number == stop - 1:
                yield Frame(number, number / fps, self.held[number])


def part(text: str) -> tuple[int, int]:
    """K/N: which videos of a set, every Nth from K on."""
    try:
        first, every = map(int, text.split("/"))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected K/N, like 0/4, got {text}") from None
    if not 0 <= first < every:
        raise argparse.ArgumentTypeError(f"expected K/N with K from 0 to N - 1, got {text}")
    return first, every


def name_of(folder: Path, which: tuple[int, int]) -> str:
    """Of a set or its part, for files: no set is called so, as parts are judged together."""
    return folder.name if which == (0, 1) else f"{folder.name}.{which[0]}"


def answer_set(
    folder: Path,
    localizer: Localizer,
    out: Path,
    ways: Sequence[str],
    rules: dict[str, Rule],
    which: tuple[int, int],
    asking: Localizer,
) -> None:
    """`asking` encodes the questions."""
    annotations, absent = load_vq2d(folder / "annotations.json"), load_absent(folder / "absent.json")
    sections = find_videos(annotations, folder / "videos")[which[0] :: which[1]]
    videos = in_advance(
        lambda clip, path: Decoded(path).hold(clip.fps), [(clip, section.path) for clip, section in sections]
    )
    kept: dict[tuple[str, str], list[Answered]] = {(way, name): [] for way in ways for name in rules}
    for (clip, _), video in zip(sections, videos):
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
        photos = [query_of(question, video, clip.fps) for question in questions]
        here = localizer.at(clip.fps)
        ends = [here.frames_searched(video, photo) for photo in photos]
        features = torch.cat(list(here.encoded(video, 0, max(ends))))
        for way in ways:
            encoded = [asking.encode_query(asked_as(photo, way)) for photo in photos]
            said = here.predict_encoded(video, [features], encoded, ends)
            for question, photo, query, predictions in zip(questions, photos, encoded, said):
                access = VideoAccess(here, video, query, partial(between, features), partial(same, video))
                truth = question.truth if isinstance(question, Question) else None
                factors = np.array(to_annotated_px(question, video) * 2)
                for name, evidence in refined(predictions, rules, access):
                    kept[way, name].append(
                        Answered(
                            video_uid=clip.video_uid,
                            evidence=replace(evidence, boxes_px=evidence.boxes_px * factors),
                            truth=truth,
                            refined_by=rule_key(rules[name]) if rules[name].refinement else None,
                            plain=is_plain(photo.views[0]),
                        )
                    )
            print(folder.name, way, clip.clip_uid, len(kept[way, "all"]), flush=True)
            for name in rules:  # kept as it goes
                path = out / f"{name_of(folder, which)}-{way}@{name}.json.gz"
                save_answered(kept[way, name], path)


def refined(
    predictions: FramePredictions, rules: dict[str, Rule], video: VideoAccess
) -> Iterator[tuple[str, Evidence]]:
    """Name and evidence of each row; it goes on where the row before it, which has its first steps, ended."""
    evidence, done = Evidence.of(predictions), 0
    for name, rule in rules.items():
        for step in rule.refinement[done:]:
            evidence = step(evidence, rule.extract, video)
        done = len(rule.refinement)
        yield name, evidence


def between(features: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    return features[start:stop]


def same(video: Video) -> Video:
    return video


def print_table(out: Path, weights: Path | None, together: list[str]) -> None:
    rule = load_rule(weights or bundled_model())
    print(
        f"| set | steps | {' | '.join(METRICS)} | AUROC | calibration error "
        "| present refused, absent seen % | too late, too early, wrong place or length |\n"
        + "|---" * (6 + len(METRICS))
        + "|"
    )
    names = sorted({_set_name(path) for path in out.glob("*@*.json.gz")})
    timeless = replace(rule, confidence=replace(rule.confidence, search_length_penalty=0.0))
    for sets in [*([name] for name in names), *([together] if together else [])]:
        for row, its_rule in rows(rule, masks=True).items():
            answered = [one for name in sets for one in answers(out, name, row)]
            if not answered:
                continue
            _print_rows("+".join(sets), row, answered, its_rule)
            if row == "all":
                _print_rows("+".join(sets), f"{row}, no length penalty", answered, timeless)


def _set_name(path: Path) -> str:
    """Of NAME-WAY@ROW.json.gz or of a part of it, NAME.0-WAY@ROW.json.gz: NAME-WAY"""
    name, way = path.name.split("@")[0].rsplit("-", 1)
    return f"{name.split('.')[0]}-{way}"


def answers(out: Path, name: str, row: str) -> list[Answered]:
    paths = sorted(out.glob(f"*@{row}.json.gz"))
    return [one for path in paths if _set_name(path) == name for one in load_answered(path)]


def _print_rows(name: str, steps: str, answered: list[Answered], rule: Rule) -> None:
    found = report(answered, rule)
    cells = [_cell(found.metrics["all"][metric], 3 if "ap" in metric else 1) for metric in METRICS]
    error = calibration_error(*outcome(answered, rule))
    shares = ("" if share is None else f"{100 * share:.1f}" for share in mistaken(answered, rule))
    cells += [_cell(found.auroc, 3), f"{error:.3f}", ", ".join(shares)]
    cells.append(", ".join(map(str, _wrong(answered, rule))))
    print(f"| {name} | {steps} | {' | '.join(cells)} |")
    parts = {size: (count, found.metrics[size]) for size, count in found.questions.items() if size != "all"}
    if plain := [one for one in answered if one.plain and one.truth]:
        parts[PLAIN] = (len(plain), report(plain, rule).metrics["all"])
    for part, (count, metrics) in parts.items():
        if count:
            sized = [metrics[metric].value for metric in METRICS]
            cells = ["" if value is None else f"{value:.3g}" for value in sized]
            print(f"|  | {part}, {count} | {' | '.join(cells)} | | | | |")


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
    parser.add_argument("--part", type=part, default=(0, 1), metavar="K/N", help="every Nth video, from K on")
    parser.add_argument("--masks", action="store_true", help="a row with boxes by masks, too")
    parser.add_argument(
        "--mask-questions", action="store_true", help="the thing known by a mask in its picture"
    )
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.table:
        for name in arguments.together:
            if not answers(arguments.out, name, "all"):
                parser.error(f"--together: {arguments.out} has no answers to {name}; --set {name} makes them")
        print_table(arguments.out, arguments.weights, arguments.together)
        return
    localizer = Localizer.from_pretrained(arguments.weights, device=arguments.device, engine=arguments.engine)
    if arguments.masks or arguments.mask_questions:
        localizer.load_segmenter()
    masks = localizer.with_rule(localizer.rule.with_mask())
    asking = masks if arguments.mask_questions else localizer
    rules = rows(localizer.rule, arguments.masks)
    for folder in arguments.sets:
        ways = arguments.ask or ["photo"]
        answer_set(folder, localizer, arguments.out, ways, rules, arguments.part, asking)


if __name__ == "__main__":
    main()
