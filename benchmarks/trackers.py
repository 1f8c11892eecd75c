"""How well trackers find the ends of a track, started with the true box in the middle of the true track.

    python benchmarks/trackers.py --set real_dev --every 3 --tracker nano --tracker-weights nanotrack_v2.pth
    python benchmarks/trackers.py --set val --tracker particles --device cuda --out stops.json

A target is followed both ways, at 5 frames a second, until its confidence is below the lowest of --stops; the
rows of the table are what each stop alone would have given. Means over questions; recovery is over all true
frames. `--onnx BACKBONE HEAD` compares NanoTrack's network with the published ONNX files instead (OpenVINO).
A stop must be chosen on rendered rooms, not on the set that is reported.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from lastseen.baselines.nanotrack import NanoTrack
from lastseen.baselines.nanotrack_network import load_nanotrack
from lastseen.baselines.particle_filter import ParticleFilter
from lastseen.baselines.tracking import Tracker
from lastseen.box import Box
from lastseen.datasets import ClipAnnotation, Question
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.metrics import compare
from lastseen.files import write_whole
from lastseen.track import ResponseTrack
from lastseen.video import Video
from lastseen.weights import bundled_model, load_model

Step = tuple[Box, float]


@dataclass(frozen=True)
class Followed:
    """A question's true track, and what the tracker said on each side of its middle."""

    truth: ResponseTrack
    start: Box
    backward: list[Step]
    forward: list[Step]

    def until(self, stop: float, keeps_lost: bool) -> ResponseTrack:
        before, after = (_kept(steps, stop, keeps_lost) for steps in (self.backward, self.forward))
        middle = middle_of(self.truth)
        return ResponseTrack(
            first_frame=middle - len(before),
            fps=self.truth.fps,
            boxes=(*reversed(before), self.start, *after),
            score=1.0,
        )


def _kept(steps: list[Step], stop: float, keeps_lost: bool) -> list[Box]:
    boxes = []
    for box, confidence in steps:
        if confidence >= stop or keeps_lost:
            boxes.append(box)
        if confidence < stop:
            break
    return boxes


def middle_of(truth: ResponseTrack) -> int:
    return (truth.first_frame + truth.last_frame) // 2


def follow_all(
    folder: Path, tracker: Tracker, every: int, lowest: float
) -> Iterator[tuple[Followed, int, float]]:
    """Also the number of pictures that were followed, and the seconds that took."""
    sections = find_videos(load_vq2d(folder / "annotations.json"), folder / "videos")
    asked = [(clip, s, q) for clip, s in sections for q in clip.questions if q.truth][::every]
    frames: dict[Path, list[np.ndarray]] = {}
    for clip, section, question in asked:
        if section.path not in frames:
            video = Video(section.path, start_s=section.start_s or 0.0, end_s=section.end_s)
            frames = {section.path: [frame.image for frame in video.frames(clip.fps)]}
        yield _followed(clip, question, frames[section.path], tracker, lowest)


def _followed(
    clip: ClipAnnotation, question: Question, pictures: list[np.ndarray], tracker: Tracker, lowest: float
) -> tuple[Followed, int, float]:
    truth = question.truth
    assert truth is not None
    height, width = pictures[0].shape[:2]
    scale = width / question.original_width, height / question.original_height
    truth = replace(truth, boxes=tuple(box.scaled(*scale) for box in truth.boxes))
    middle = middle_of(truth)
    start = truth.boxes[middle - truth.first_frame]
    began = time.perf_counter()
    sides = []
    for order in (range(middle - 1, -1, -1), range(middle + 1, min(question.query_frame, len(pictures)))):
        target, steps = tracker.start(pictures[middle], start), []
        for number in order:
            steps.append(target.follow(pictures[number]))
            if steps[-1][1] < lowest:
                break
        sides.append(steps)
    took_s = time.perf_counter() - began
    return Followed(truth, start, *sides), sum(map(len, sides)), took_s


def judged(followed: list[Followed], stop: float, keeps_lost: bool) -> dict[str, float]:
    overlaps = [compare(one.truth, one.until(stop, keeps_lost)) for one in followed]
    ious = np.concatenate([overlap.frame_ious for overlap in overlaps])
    stiou = np.array([overlap.stiou for overlap in overlaps])
    return {
        "stop": stop,
        "tiou": float(np.mean([overlap.tiou for overlap in overlaps])),
        "stiou": float(stiou.mean()),
        "stiou_25_percent": float(100 * (stiou >= 0.25).mean()),
        "recovery_percent": float(100 * (ious >= 0.5).mean()),
    }


def make_tracker(name: str, weights: Path | None, device: str) -> Tracker:
    if name == "particles":
        backbone = load_model(bundled_model()).backbone
        return ParticleFilter(backbone=backbone.to(device))
    if weights is None:
        raise SystemExit("--tracker nano needs --tracker-weights nanotrack_v2.pth")
    return NanoTrack(network=load_nanotrack(weights).to(device))


def compare_onnx(weights: Path, backbone: Path, head: Path) -> None:
    """Whether the network that is read from nanotrack_v2.pth computes what the published ONNX files do."""
    from openvino import Core

    network, core = load_nanotrack(weights), Core()
    exact = {"INFERENCE_PRECISION_HINT": "f32"}
    encode, compare_maps = (core.compile_model(file, "CPU", exact) for file in (backbone, head))
    generator = torch.Generator().manual_seed(0)
    template, search = (255 * torch.rand(1, 3, side, side, generator=generator) for side in (127, 255))
    features, cells = network.encode(search), network.encode(template)
    scores, sides = network.compare(cells, features)
    logits, others = compare_maps([cells.numpy(), features.numpy()]).values()
    for name, ours, theirs in (
        ("features", features, torch.from_numpy(encode(search.numpy())[0])),
        ("scores", scores, torch.from_numpy(logits).softmax(1)[:, 1]),
        ("sides", sides, torch.from_numpy(others)),
    ):
        print(
            f"{name}: differ by {float((ours - theirs).abs().max()):.1e} at most of {float(ours.max()):.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--set", type=Path, dest="folder", metavar="FOLDER")
    parser.add_argument("--tracker", choices=("nano", "particles"), required=True)
    parser.add_argument("--tracker-weights", type=Path)
    parser.add_argument("--every", type=int, default=1, help="of the questions, in the order of the file")
    parser.add_argument("--most", type=int, help="questions at most")
    parser.add_argument("--stops", type=float, nargs="+", default=[0.65, 0.7, 0.75, 0.8, 0.85, 0.9])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    parser.add_argument(
        "--onnx", type=Path, nargs=2, metavar="FILE", help="backbone and head, to compare with"
    )
    given = parser.parse_args()
    if given.onnx:
        with torch.inference_mode():
            return compare_onnx(given.tracker_weights, *given.onnx)
    tracker = make_tracker(given.tracker, given.tracker_weights, given.device)
    torch.set_grad_enabled(False)
    followed, pictures, seconds = [], 0, 0.0
    for one, count, took_s in follow_all(given.folder, tracker, given.every, min(given.stops)):
        followed.append(one)
        pictures, seconds = pictures + count, seconds + took_s
        if len(followed) == given.most:
            break
    rows = [judged(followed, stop, tracker.keeps_lost_frame) for stop in sorted(given.stops)]
    best = max(rows, key=lambda row: row["stiou"])
    print(f"{tracker.name}: {len(followed)} questions, {1000 * seconds / pictures:.0f} ms a frame")
    print("| stop | mean tIoU | mean stIoU | stIoU >= .25 % | recovery % |\n|---|---|---|---|---|")
    for row in rows:
        cells = [f"{row['tiou']:.3f}", f"{row['stiou']:.3f}"]
        cells += [f"{row[name]:.1f}" for name in ("stiou_25_percent", "recovery_percent")]
        print(f"| {row['stop']:g}{' (best stIoU)' if row is best else ''} | {' | '.join(cells)} |")
    if given.out:
        kept = {"tracker": tracker.name, "questions": len(followed), "best_stop": best["stop"], "rows": rows}
        write_whole(given.out, (json.dumps(kept, indent=2) + "\n").encode())
    return None


if __name__ == "__main__":
    main()
