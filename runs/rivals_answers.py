"""What the paper's rivals, and ours, answer to the same questions, judged in the same way (docs/rivals.md).

    python runs/rivals_answers.py answer --set val --weights runs/rivals/siamrcnn-448 --out answers
    python runs/rivals_answers.py fit --set val --out answers --weights runs/rivals/siamrcnn-448
    python runs/rivals_answers.py answer --set rooms1 --set rooms2 --weights runs/rivals/siamrcnn-448 \\
        --tracker particles --tracker ends --tracker nano --tracker-weights nanotrack_v2.pth --out answers
    python runs/rivals_answers.py answer --set real_dev --weights bundled --weights vqloc/model --out answers
    python runs/rivals_answers.py table --out answers --together rooms1 rooms2 --json results.json

`answer` keeps what a model says of every frame, then what each tracker makes of it: OUT/NAME@SET.json.gz and
OUT/NAME+TRACKER@SET.json. What is there is not done again, so a GPU can do the first and a CPU the second.
`--weights` are folders of runs/rivals.py, model folders, bundled, or training-free; a VQLoC is asked by the
paper's procedure. `fit` chooses the least score of a peak on the set it is given, which must be rooms of seed
0. In the table "own" ranks answers by the score of their own peak, "constant" gives all the same score, as
published.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from refinement import Decoded

from lastseen.baselines.peaks import PeakRule
from lastseen.baselines.procedure import RivalProcedure
from lastseen.baselines.stored import (
    TRACKERS,
    AfterPeak,
    load_after_peak,
    procedure_of,
    rival_folder,
    save_after_peak,
)
from lastseen.baselines.tracking import Ends
from lastseen.datasets import AbsentQuestion, Question
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.calibration import Answered, load_answered, save_answered
from lastseen.evaluate.detections import VideoPictures
from lastseen.evaluate.metrics import AbsentScore, Estimate, Outcome, Report, ScoredTrack, compare, evaluate
from lastseen.files import write_whole
from lastseen.localizer import TRAINING_FREE, Localizer
from lastseen.model import VQLoC
from lastseen.sighting import Evidence
from lastseen.track import ResponseTrack
from lastseen.weights import load_model

BUNDLED = "bundled"
# Of equally good ones the first: those that were published.
LEAST_SCORES = (0.5, 0.25, 0.05, 0.1, 0.15, 0.2, 0.3, 0.35, 0.4, 0.45, 0.55, 0.6, 0.7)
COLUMNS = {  # of the table: metric, heading, digits
    "tap25": ("tAP25 own", 3),
    "stap25": ("stAP25 own", 3),
    "tap25_unranked": ("tAP25 constant", 3),
    "stap25_unranked": ("stAP25 constant", 3),
    "recovery": ("recovery %", 1),
    "success": ("success %", 1),
}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer in pixels of the annotated size; `truth` is None for an absent thing."""

    video_uid: str
    truth: ResponseTrack | None
    track: ResponseTrack

    def to_dict(self) -> dict[str, Any]:
        truth = None if self.truth is None else self.truth.to_dict()
        return {"video_uid": self.video_uid, "truth": truth, "track": self.track.to_dict()}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Answer:
        truth = None if data["truth"] is None else ResponseTrack.from_dict(data["truth"])
        return cls(video_uid=data["video_uid"], truth=truth, track=ResponseTrack.from_dict(data["track"]))


def open_localizer(weights: str, device: str | None, engine: str | None) -> Localizer:
    """A VQLoC by the paper's procedure, everything else as it is."""
    folder = None if weights == BUNDLED else weights
    is_paper = False
    if folder is not None and folder != TRAINING_FREE and rival_folder(folder) is None:
        is_paper = isinstance(load_model(folder), VQLoC)
    return Localizer.from_pretrained(folder, device=device, engine=engine, paper=is_paper)


def name_of(weights: str) -> str:
    return Path(weights).name


def asked(folder: Path, most: int | None) -> Iterator[tuple[Any, Decoded, list[Question | AbsentQuestion]]]:
    """Clips of a set with their frames in memory and their questions."""
    absent = load_absent(folder / "absent.json") if (folder / "absent.json").exists() else ()
    for clip, section in find_videos(load_vq2d(folder / "annotations.json"), folder / "videos")[:most]:
        asides = [question for question in absent if question.clip_uid == clip.clip_uid]
        questions: list[Question | AbsentQuestion] = [*(q for q in clip.questions if q.truth), *asides]
        yield clip, Decoded(section.path).hold(clip.fps), questions


def truth_of(question: Question | AbsentQuestion) -> ResponseTrack | None:
    return question.truth if isinstance(question, Question) else None


def predict(localizer: Localizer, folder: Path, out: Path, most: int | None) -> list[Answered]:
    """Of a rival, before its peak rule."""
    if out.exists():
        return list(load_answered(out))
    kept = []
    for clip, video, questions in asked(folder, most):
        queries = [query_of(question, video, clip.fps) for question in questions]
        for question, said in zip(questions, localizer.at(clip.fps).predict(video, queries)):
            factors = np.array(to_annotated_px(question, video) * 2)
            evidence = Evidence.of(said)
            kept.append(
                Answered(
                    video_uid=clip.video_uid,
                    evidence=replace(evidence, boxes_px=evidence.boxes_px * factors),
                    truth=truth_of(question),
                )
            )
        print(out.name, clip.clip_uid, len(kept), flush=True)
    save_answered(kept, out)
    return kept


def follow(
    predictions: Sequence[Answered], procedure: RivalProcedure, folder: Path, most: int | None
) -> list[Answer]:
    answers, predicted = [], iter(predictions)
    for clip, video, questions in asked(folder, most):
        for question in questions:
            one = next(predicted)
            scale = to_annotated_px(question, video)
            evidence = replace(one.evidence, boxes_px=one.evidence.boxes_px / np.array(scale * 2))
            evidence = procedure.after_peak.followed(evidence, VideoPictures(video, clip.fps))
            _, track = procedure.tracks(evidence)
            assert track is not None
            scaled = replace(track, boxes=tuple(box.scaled(*scale) for box in track.boxes))
            answers.append(Answer(video_uid=one.video_uid, truth=one.truth, track=scaled))
        print(clip.clip_uid, len(answers), flush=True)
    return answers


def ask(localizer: Localizer, folder: Path, most: int | None) -> list[Answer]:
    """Of a model whose answers need no tracker."""
    answers = []
    for clip, video, questions in asked(folder, most):
        queries = [query_of(question, video, clip.fps) for question in questions]
        for question, answer in zip(questions, localizer.at(clip.fps).ask_many(video, queries)):
            scale = to_annotated_px(question, video)
            guess = answer.shown[-1]
            track = replace(guess, boxes=tuple(box.scaled(*scale) for box in guess.boxes))
            answers.append(Answer(video_uid=clip.video_uid, truth=truth_of(question), track=track))
        print(clip.clip_uid, len(answers), flush=True)
    return answers


def answer_all(given: argparse.Namespace) -> None:
    for weights in given.weights:
        localizer, name = open_localizer(weights, given.device, given.engine), name_of(weights)
        is_detector = isinstance(localizer.procedure, RivalProcedure)
        for folder in given.sets:
            if not is_detector:
                path = given.out / f"{name}@{folder.name}.json"
                if not path.exists():
                    save(ask(localizer, folder, given.most_videos), path)
                continue
            predictions = predict(
                localizer, folder, given.out / f"{name}@{folder.name}.json.gz", given.most_videos
            )
            after = load_after_peak(Path(weights)) if Path(weights).is_dir() else AfterPeak()
            for tracker in given.trackers or []:
                path = given.out / f"{name}+{tracker}@{folder.name}.json"
                if path.exists():
                    continue
                procedure = procedure_of(
                    localizer.model,  # type: ignore[arg-type]
                    after,
                    constant_score=False,
                    tracker=tracker,
                    tracker_weights=given.tracker_weights,
                )
                assert isinstance(procedure, RivalProcedure)
                save(follow(predictions, procedure, folder, given.most_videos), path)


def save(answers: list[Answer], path: Path) -> None:
    write_whole(path, (json.dumps([answer.to_dict() for answer in answers]) + "\n").encode())


def fit(given: argparse.Namespace) -> None:
    """The least score of a peak: with our ends, which need no picture, the highest mean stIoU."""
    for weights in given.weights:
        answered = [
            one
            for folder in given.sets
            for one in load_answered(given.out / f"{name_of(weights)}@{folder.name}.json.gz")
            if one.truth is not None
        ]
        means = {least: mean_stiou(answered, least) for least in LEAST_SCORES}
        best = max(means, key=lambda least: means[least])
        print(name_of(weights), {least: round(mean, 4) for least, mean in means.items()}, "->", best)
        stops = {f"{kind}_stop": stop for kind, stop in stops_of(given.stops).items()}
        save_after_peak(replace(load_after_peak(Path(weights)), least_score=best, **stops), Path(weights))


def stops_of(files: Sequence[Path]) -> dict[str, float]:
    """Tracker -> its best stop, from what benchmarks/trackers.py wrote."""
    found = [json.loads(file.read_text()) for file in files]
    return {one["tracker"]: one["best_stop"] for one in found}


def mean_stiou(answered: Sequence[Answered], least: float) -> float:
    procedure = RivalProcedure(Ends(PeakRule(least_score=least)))
    found = []
    for one in answered:
        assert one.truth is not None
        evidence = procedure.after_peak.followed(one.evidence, None)  # type: ignore[arg-type]
        found.append(compare(one.truth, procedure.tracks(evidence)[1]).stiou)
    return float(np.mean(found))


def report_of(answers: Sequence[Answer]) -> Report:
    outcomes = [
        Outcome(
            video_uid=one.video_uid,
            truth=one.truth,
            answers=(ScoredTrack(track=one.track, score=one.track.score),),
        )
        for one in answers
        if one.truth is not None
    ]
    absent = [AbsentScore(video_uid=a.video_uid, score=a.track.score) for a in answers if a.truth is None]
    return evaluate(outcomes, absent)


def table(given: argparse.Namespace) -> None:
    results: dict[str, Any] = {}
    headings = [heading for heading, _ in COLUMNS.values()]
    print(f"| set | method | {' | '.join(headings)} | AUROC own | stAP25 own: small, medium, large |")
    print("|---" * (len(headings) + 4) + "|")
    for (of_set, name), answers in sorted(kept(given.out, given.together).items()):
        report = report_of(answers)
        results[f"{name}@{of_set}"] = report.to_dict()
        cells = [_cell(report.metrics["all"][metric], digits) for metric, (_, digits) in COLUMNS.items()]
        sizes = (report.value("stap25", size) for size in ("small", "medium", "large"))
        by_size = ", ".join("-" if value is None else f"{value:.3f}" for value in sizes)
        print(f"| {of_set} | {name} | {' | '.join(cells)} | {_cell(report.auroc, 3)} | {by_size} |")
    if given.json:
        write_whole(given.json, (json.dumps(results, indent=2) + "\n").encode())


def kept(out: Path, together: Sequence[str]) -> dict[tuple[str, str], list[Answer]]:
    """Set and method -> its answers; sets that are judged `together` are a set of their own, too, of the
    methods that answered all of them."""
    found = {
        (path.stem.split("@")[1], path.stem.split("@")[0]): [
            Answer.from_dict(one) for one in json.loads(path.read_text())
        ]
        for path in out.glob("*@*.json")
    }
    for name in {name for _, name in found} if together else ():
        parts = [found.get((of_set, name)) for of_set in together]
        if all(parts):
            found["+".join(together), name] = [one for part in parts if part for one in part]
    return found


def _cell(estimate: Estimate, digits: int) -> str:
    if estimate.value is None:
        return "-"
    if estimate.low is None or estimate.high is None:
        return f"{estimate.value:.{digits}f}"
    return f"{estimate.value:.{digits}f} [{estimate.low:.{digits}f}, {estimate.high:.{digits}f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", choices=("answer", "fit", "table"))
    add("--out", type=Path, required=True)
    add("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    add("--weights", action="append", default=[])
    add("--tracker", action="append", choices=TRACKERS, dest="trackers")
    add("--tracker-weights", type=Path, help="nanotrack_v2.pth")
    add("--stops", type=Path, nargs="+", default=[], help="of benchmarks/trackers.py, for fit")
    add("--together", nargs="+", default=[], help="sets that the table also judges as one")
    add("--most-videos", type=int)
    add("--device")
    add("--engine")
    add("--json", type=Path, help="the table with every metric, interval and size")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    {"answer": answer_all, "fit": fit, "table": table}[given.what](given)


if __name__ == "__main__":
    main()
