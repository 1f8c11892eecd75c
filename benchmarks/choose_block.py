"""Which block of the backbone matches best? The training-free localizer with each, on annotated real video.

    python benchmarks/choose_block.py --annotations real_dev/annotations.json \\
        --absent real_dev/absent.json --videos real_dev/videos [--device cuda] [--blocks 5 6 7]

Prints a row for every block, with and without the final norm, then the whole report of the default.
Cosines of different blocks lie in different ranges, so for the rows the map from similarity to logit is
set for each block by the same rule from its own similarities, without looking at the answers.
Videos are decoded once and held in memory (690 kB a frame at 640x360).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from lastseen.datasets import AbsentQuestion, Question, VideoSection
from lastseen.datasets.vq2d import find_videos, load_absent, load_vq2d
from lastseen.evaluate.benchmark import query_of, to_annotated_px
from lastseen.evaluate.metrics import AbsentScore, Outcome, Report, ScoredTrack, evaluate
from lastseen.localizer import TRAINING_FREE_RULE, Localizer
from lastseen.model.training_free import TrainingFreeConfig, TrainingFreeModel
from lastseen.query import Query
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions
from lastseen.video import Frame, Video
from lastseen.weights import MATCHING_BLOCK, load_backbone

METRICS = ("tap25", "stap25", "recovery", "success")
ToLogits = Callable[[np.ndarray], np.ndarray]


class HeldVideo(Video):
    """A video whose sampled frames are kept after the first reading."""

    def __init__(self, section: VideoSection, fps: float) -> None:
        super().__init__(section.path, start_s=section.start_s or 0.0, end_s=section.end_s)
        self.held = list(super().frames(fps))

    def frames(self, fps: float = 5.0, start_s: float = 0.0, end_s: float | None = None) -> Iterator[Frame]:
        return (frame for frame in self.held if end_s is None or frame.time_s < end_s - 1e-6)


Case = tuple[HeldVideo, str, list[Question | AbsentQuestion], list[Query]]


def similarities(
    cases: list[Case], block: int, final_norm: bool, device: str
) -> list[list[FramePredictions]]:
    """For every question of every clip: boxes, and bare similarities in the place of logits."""
    backbone = load_backbone(blocks=(block,), final_norm=final_norm)
    bare = replace(TrainingFreeConfig(), even_similarity=0.0, similarity_scale=1.0)
    model = TrainingFreeModel(backbone, bare).eval()
    model.clip_length = 128  # fewer, larger steps; the answer is the same
    localizer = Localizer(model.to(device), device=device, batch=32)
    return [localizer.predict(video, queries) for video, _, _, queries in cases]


def report(cases: list[Case], found: list[list[FramePredictions]], to_logits: ToLogits, draws: int) -> Report:
    outcomes, absent = [], []
    for (video, uid, questions, _), predictions in zip(cases, found):
        for question, frames in zip(questions, predictions):
            evidence = Evidence.of(replace(frames, logits=to_logits(frames.logits)))
            guess = TRAINING_FREE_RULE.tracks(evidence)[1]
            assert guess is not None
            scale = to_annotated_px(question, video)
            track = replace(guess, boxes=tuple(box.scaled(*scale) for box in guess.boxes))
            if isinstance(question, Question):
                assert question.truth
                answers = (ScoredTrack(track=track, score=track.score),)
                outcomes.append(Outcome(video_uid=uid, truth=question.truth, answers=answers))
            else:
                absent.append(AbsentScore(video_uid=uid, score=track.score))
    return evaluate(outcomes, absent, draws=draws)


def fitted_blindly(found: list[list[FramePredictions]]) -> ToLogits:
    """Even odds at the 90th percentile of all frames' similarities, the scale from their spread."""
    every = np.concatenate([frames.logits for predictions in found for frames in predictions])
    middle, even, high = np.quantile(every, [0.5, 0.9, 0.99])
    return lambda similarity: (similarity - even) / (0.45 * (high - middle))


def shipped(similarity: np.ndarray) -> np.ndarray:
    config = TrainingFreeConfig()
    return (similarity - config.even_similarity) / config.similarity_scale


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--annotations", type=Path, required=True)
    parser.add_argument("--absent", type=Path, required=True)
    parser.add_argument("--videos", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--blocks", type=int, nargs="+", default=list(range(3, 12)))
    arguments = parser.parse_args()

    absent = load_absent(arguments.absent)
    cases: list[Case] = []
    for clip, section in find_videos(load_vq2d(arguments.annotations), arguments.videos):
        video = HeldVideo(section, clip.fps)
        questions = [*clip.questions, *(q for q in absent if q.clip_uid == clip.clip_uid)]
        cases.append((video, clip.video_uid, questions, [query_of(q, video, clip.fps) for q in questions]))
    print(
        f"| block (from 0) | final norm | {' | '.join(METRICS)} | auroc | seconds |\n|{'---|' * 8}",
        flush=True,
    )
    default = ""
    for block in arguments.blocks:
        for final_norm in (False, True):
            begin = time.perf_counter()
            found = similarities(cases, block, final_norm, arguments.device)
            row = report(cases, found, fitted_blindly(found), draws=0)
            values = " | ".join(f"{row.value(name):.3f}" for name in METRICS)
            seconds, norm = time.perf_counter() - begin, "yes" if final_norm else "no"
            print(f"| {block} | {norm} | {values} | {row.auroc.value:.3f} | {seconds:.0f} |", flush=True)
            if block == MATCHING_BLOCK and not final_norm:
                default = report(cases, found, shipped, draws=1000).to_text()
    print(default)


if __name__ == "__main__":
    main()
