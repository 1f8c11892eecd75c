"""Rules compared on kept evidence (runs/keep_evidence.py), without a model or a video.

    python runs/compare_rules.py kept --model MODEL

Every variant begins with the first pass and the extraction and confidence of the model's rule. The numbers
choose between variants; what ships is measured by runs/refinement.py.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from keep_evidence import Kept, KeptPeak, KeptWindow, load_kept

from lastseen.box import Box
from lastseen.evaluate.calibration import RIGHT_STIOU
from lastseen.evaluate.metrics import AbsentScore, Outcome, ScoredTrack, compare, evaluate
from lastseen.model import SimilarityConfig
from lastseen.refine import Verify, Zoom
from lastseen.refine.window import Window
from lastseen.rule import Rule
from lastseen.sighting import Evidence, Extraction, Sighting
from lastseen.track import ResponseTrack
from lastseen.weights import load_rule, read_config

COLUMNS = ("tap25", "stap25", "stap", "recovery", "success")


@dataclass(frozen=True, kw_only=True)
class Ends:
    """A sighting extends from its peak while frames are similar to it."""

    min_cosine: float
    min_margin: float = 0.0
    max_gap_frames: int = 2
    also: str = ""  # "and": while the score is high, too; "or": or the score is high


@dataclass(frozen=True, kw_only=True)
class Variant:
    extraction: Extraction | None = None  # None: that of the model's rule
    head_weight: float | None = None  # None: as the model was saved
    windows: int = Zoom.sightings
    window_weight: float = Zoom.logit_weight
    verify_cosine: float | None = None
    memory: float = 0.0  # weight of what is said when asked with the found view
    memory_bar: float = 0.6  # least confidence of a view that is remembered
    ends: Ends | None = None


VARIANTS = {
    "first pass": Variant(windows=0),
    **{f"first pass, head {weight:g}": Variant(windows=0, head_weight=weight) for weight in (0, 0.5, 1)},
    "zoom": Variant(),
    **{f"zoom, head {weight:g}": Variant(head_weight=weight) for weight in (0, 0.5, 1)},
    "zoom, 4 windows": Variant(windows=4),
    "zoom, windows' logits alone": Variant(window_weight=1.0),
    **{f"zoom, verify {cosine}": Variant(verify_cosine=cosine) for cosine in (0.5, 0.55, 0.6, 0.65, 0.7)},
    **{
        f"zoom, memory {weight}, bar {bar}": Variant(memory=weight, memory_bar=bar)
        for weight in (0.25, 0.5)
        for bar in (0.0, 0.6, 0.8)
    },
    **{
        f"zoom, gain {gain:g}, shift {shift:g}": Variant(
            extraction=Extraction(gain=gain, shift=shift, box_median_frames=1)
        )
        for gain in (0.2, 0.25, 0.3, 0.35, 0.5, 0.7, 1.0)
        for shift in (-0.5, 0.0, 0.5, 1.0, 2.0)
    },
    **{
        f"zoom, ends {cosine} {margin} {also}".rstrip(): Variant(
            ends=Ends(min_cosine=cosine, min_margin=margin, also=also)
        )
        for cosine in (0.4, 0.45, 0.5, 0.55)
        for margin in (-1.0, 0.0, 0.05)
        for also in ("", "and", "or")
    },
}


def answer(kept: Kept, variant: Variant, rule: Rule, saved_weight: float) -> ResponseTrack:
    if variant.extraction:
        rule = replace(rule, extraction=variant.extraction)
    weight = saved_weight if variant.head_weight is None else variant.head_weight
    evidence = _zoomed(kept, variant, weight, saved_weight)
    if variant.memory and kept.peaks[0].confidence >= variant.memory_bar:
        evidence = _remembered(evidence, kept, variant.memory)
    if variant.verify_cosine is not None:
        evidence = _verified(evidence, kept, rule, variant.verify_cosine)
    sightings = rule.extract(evidence)
    chosen = ([sighting for sighting in sightings if sighting.is_seen] or sightings)[-1]
    first, last = chosen.first, chosen.last
    peak = _near(kept.peaks, chosen)
    if variant.ends and peak:
        first, last = _ends(peak, variant.ends, first, last)
    boxes = rule.extraction.smooth_boxes(evidence.boxes_px[first : last + 1] * np.array(kept.factors))
    return ResponseTrack(
        first_frame=first,
        fps=kept.fps,
        boxes=tuple(Box(*map(float, box)) for box in boxes),
        score=chosen.confidence,
    )


def _weighted(logits: np.ndarray, full: np.ndarray, weight: float, saved: float) -> np.ndarray:
    """The head's part of a logit is linear in its weight."""
    return full if saved == 1 else logits + (weight - saved) / (1 - saved) * (full - logits)


def _zoomed(kept: Kept, variant: Variant, weight: float, saved: float) -> Evidence:
    first = Evidence(
        fps=kept.fps,
        boxes_px=kept.boxes_px,
        logits=_weighted(kept.logits, kept.full_logits, weight, saved),
    )
    windows = [window for window in kept.windows[: variant.windows] if len(window.logits)]
    if not windows:
        return first
    zoom = Zoom(logit_weight=variant.window_weight)
    return zoom.merged(first, [_as_zoomed(first, window, weight, saved) for window in windows])


def _as_zoomed(
    first: Evidence, kept: KeptWindow, weight: float, saved: float
) -> tuple[Sighting, Window, np.ndarray, np.ndarray]:
    logits = _weighted(kept.logits, kept.full_logits, weight, saved)
    sighting = Sighting(evidence=first, first=kept.first, last=kept.last, peak_score=0.0)
    window = Window(start=kept.start, corners=np.zeros((len(logits), 2)), side=kept.side)
    return sighting, window, kept.boxes_px, logits


def _remembered(evidence: Evidence, kept: Kept, weight: float) -> Evidence:
    """Boxes stay: those of the found view repeat the looseness of the box that it was cut with."""
    return replace(evidence, logits=(1 - weight) * evidence.logits + weight * kept.found_logits)


def _verified(evidence: Evidence, kept: Kept, rule: Rule, min_cosine: float) -> Evidence:
    sightings = rule.extract(evidence)
    surest = max(sightings, key=lambda sighting: sighting.confidence)
    peak = _near(kept.peaks, surest)
    penalties = []
    for sighting in sightings if peak else []:
        cosines = [c for at, c in peak.others if sighting.first <= at <= sighting.last]
        if sighting is not surest and cosines and max(cosines) < min_cosine:
            loss = Verify.logit_per_cosine * (min_cosine - max(cosines))
            penalties.append((sighting.first, sighting.last, loss))
    return replace(evidence, penalties=tuple(penalties))


def _near(peaks: Sequence[KeptPeak], sighting: Sighting) -> KeptPeak | None:
    inside = [peak for peak in peaks if sighting.first <= peak.peak <= sighting.last]
    return min(inside, key=lambda peak: abs(peak.peak - sighting.peak), default=None)


def _ends(peak: KeptPeak, ends: Ends, first: int, last: int) -> tuple[int, int]:
    found = []
    for step in (-1, 1):
        reached, frame = peak.peak, peak.peak + step
        while (
            0 <= frame - peak.start < len(peak.similarity) and abs(frame - reached) <= ends.max_gap_frames + 1
        ):
            cosine, margin, _ = peak.similarity[frame - peak.start]
            if cosine >= ends.min_cosine and margin >= ends.min_margin:
                reached = frame
            frame += step
        found.append(reached)
    low, high = found
    if ends.also == "and":
        return max(low, first), min(high, last)
    return (min(low, first), max(high, last)) if ends.also == "or" else (low, high)


def cells(kept: Sequence[Kept], tracks: Sequence[ResponseTrack]) -> Iterator[str]:
    outcomes, absent, compared = [], [], []
    for one, track in zip(kept, tracks):
        if one.truth is None:
            absent.append(AbsentScore(video_uid=one.video_uid, score=track.score))
        else:
            scored = ScoredTrack(track=track, score=track.score)
            outcomes.append(Outcome(video_uid=one.video_uid, truth=one.truth, answers=(scored,)))
            compared.append((one, track, compare(one.truth, track)))
    report = evaluate(outcomes, absent, draws=0)
    for name in COLUMNS:
        yield f"{report.value(name, 'all'):.3g}"
    yield f"{report.auroc.value:.3f}" if absent else ""
    for among in (compared, [case for case in compared if case[0].plain]):
        yield f"{np.mean([overlap.stiou >= RIGHT_STIOU for *_, overlap in among]):.3f}" if among else ""
    yield f"{np.mean([track.first_frame > one.truth.last_frame for one, track, _ in compared]):.2f}"
    yield f"{np.mean([track.last_frame < one.truth.first_frame for one, track, _ in compared]):.2f}"


def sets_in(folder: Path) -> dict[str, list[Kept]]:
    """By NAME@WAY; parts, NAME.K@WAY, are one set."""
    sets: dict[str, list[Kept]] = {}
    for path in sorted(folder.glob("*@*.json.gz")):
        name, way = path.name.removesuffix(".json.gz").split("@")
        sets.setdefault(f"{name.split('.')[0]}@{way}", []).extend(load_kept(path))
    return sets


def _head_score_weight(model: Path) -> float:
    config = read_config(json.loads((model / "config.json").read_text()))
    assert isinstance(config, SimilarityConfig)
    return config.head_score_weight


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--only", help="variants whose names contain this")
    arguments = parser.parse_args()
    rule = load_rule(arguments.model)
    saved = _head_score_weight(arguments.model)
    for name, kept in sets_in(arguments.folder).items():
        print(f"\n{name}: {sum(one.truth is not None for one in kept)} questions,", end=" ")
        print(f"{sum(one.truth is None for one in kept)} absent\n")
        print(f"| variant | {' | '.join(COLUMNS)} | AUROC | hits | hits, plain | too late | too early |")
        print("|---" * (6 + len(COLUMNS)) + "|")
        for name, variant in VARIANTS.items():
            if arguments.only is None or arguments.only in name:
                tracks = [answer(one, variant, rule, saved) for one in kept]
                print(f"| {name} | {' | '.join(cells(kept, tracks))} |", flush=True)


if __name__ == "__main__":
    main()
