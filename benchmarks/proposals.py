"""How many things the proposals hold: recall at 10, 100 and 1000 boxes a frame, at an IoU of .5.

    python benchmarks/proposals.py --weights runs/rivals/proposals-448 --set val --set real_dev --device cuda

On the frames of each question's true track, the question's thing alone, by its size in the whole track (the
metrics' classes): what bounds every method that picks its answer among proposals. Any detector's folder will
do.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import torch

from lastseen.baselines.detector import RivalDetector
from lastseen.baselines.proposals import recall
from lastseen.baselines.stored import load_rival
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import open_section
from lastseen.evaluate.metrics import SIZE_CLASSES
from lastseen.files import write_whole
from lastseen.model.inputs import letterboxed
from lastseen.video import Video

COUNTS = (10, 100, 1000)
AT_ONCE = 8  # frames

Found = dict[str, dict[int, list[bool]]]


@torch.inference_mode()
def measure(model: RivalDetector, folder: Path, device: str, most_videos: int | None) -> Found:
    """Size class -> number of boxes -> for each frame of a true track whether one of them is right"""
    found: Found = defaultdict(lambda: defaultdict(list))
    sections = find_videos(load_vq2d(folder / "annotations.json"), folder / "videos")
    for clip, section in sections[:most_videos]:
        video = open_section(section)
        wanted: dict[int, list[tuple[str, np.ndarray]]] = defaultdict(list)
        for question in clip.questions:
            if question.truth is None:
                continue
            scale = video.width / question.original_width, video.height / question.original_height
            largest = max(box.area for box in question.truth.boxes)
            size = next(name for name, (low, high) in SIZE_CLASSES.items() if low <= largest < high)
            for frame, box in enumerate(question.truth.boxes, question.truth.first_frame):
                wanted[frame].append((size, np.array(box.scaled(*scale).xyxy)))
        _of_video(model, video, clip.fps, wanted, device, found)
    return found


def _of_video(
    model: RivalDetector,
    video: Video,
    fps: float,
    wanted: dict[int, list[tuple[str, np.ndarray]]],
    device: str,
    found: Found,
) -> None:
    letterbox = model.letterbox(video.width, video.height)
    held: list[tuple[int, np.ndarray]] = []
    frames = [(frame.index, frame.image) for frame in video.frames(fps) if frame.index in wanted]
    for first in range(0, len(frames), AT_ONCE):
        held = frames[first : first + AT_ONCE]
        pictures = torch.from_numpy(np.stack([image for _, image in held])).to(device)
        pyramid = model.pyramid_of(letterboxed(pictures, letterbox, model.padding))
        proposals = model.proposer.propose(pyramid, max(COUNTS))
        for (number, _), boxes, logits in zip(held, proposals.boxes.cpu(), proposals.logits.cpu()):
            there = boxes[logits > -torch.inf]
            truth = torch.from_numpy(letterbox.to_unit(np.stack([box for _, box in wanted[number]]))).float()
            for count in COUNTS:
                for (size, _), hit in zip(wanted[number], recall(there[:count], truth).tolist()):
                    found[size][count].append(hit)


def row(found: Found) -> dict[str, dict[str, float]]:
    everything: dict[int, list[bool]] = {
        count: [hit for of_size in found.values() for hit in of_size[count]] for count in COUNTS
    }
    groups = {"all": everything, **{name: found[name] for name in SIZE_CLASSES if name in found}}
    return {
        group: {
            "frames": len(hits[COUNTS[0]]),
            **{f"recall_at_{count}": float(np.mean(hits[count])) for count in COUNTS},
        }
        for group, hits in groups.items()
        if hits[COUNTS[0]]
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weights", type=Path, required=True, help="a detector's folder")
    parser.add_argument("--set", type=Path, action="append", required=True, dest="sets", metavar="FOLDER")
    parser.add_argument("--most-videos", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model, _ = load_rival(given.weights)
    if not isinstance(model, RivalDetector):
        raise SystemExit(f"{given.weights} has no proposals")
    model = model.to(given.device)
    results = {}
    headings = " | ".join(f"recall@{count}" for count in COUNTS)
    print(f"| set | things | frames | {headings} |\n|---|---|---|---|---|---|")
    for folder in given.sets:
        results[folder.name] = row(measure(model, folder, given.device, given.most_videos))
        for group, values in results[folder.name].items():
            cells = [f"{values[f'recall_at_{count}']:.3f}" for count in COUNTS]
            print(f"| {folder.name} | {group} | {values['frames']} | {' | '.join(cells)} |")
    if given.out:
        write_whole(given.out, (json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
