"""What a synthetic dataset is like, beside what is known of Ego4D: python benchmarks/synth_stats.py FOLDER"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

from lastseen.datasets.vq2d import load_absent, load_vq2d

EGO4D = {"track length, s": "~3 (mean)", "search window, s": "~140 (mean)"}


def main() -> None:
    root = Path(sys.argv[1])
    annotations = load_vq2d(root / "annotations.json")
    questions = annotations.questions
    tracks = [question.truth for question in questions if question.truth]
    sides = np.array(
        [
            np.sqrt(box.area) / question.original_width
            for question in questions
            if question.truth
            for box in question.truth.boxes
        ]
    )
    largest = np.array([max(box.area for box in track.boxes) for track in tracks])
    scale = np.array([1920 / question.original_width for question in questions if question.truth])
    items = [
        len(json.loads(path.read_text())["items"]) for path in sorted((root / "episodes").glob("*.json"))
    ]
    rows = {
        "track length, s": np.array([track.duration_s for track in tracks]),
        "search window, s": np.array([question.query_frame / 5 for question in questions]),
        "from the answer's end to the question, s": np.array(
            [q.query_frame / 5 - q.truth.end for q in questions if q.truth]
        ),
        "occurrences a thing": np.array([len(question.occurrences) for question in questions]),
        "side of the box, share of the width": sides,
        "different items a room": np.array(items),
    }
    absent = len(load_absent(root / "absent.json"))
    print(f"{len(annotations.clips)} episodes, {len(questions)} questions, {absent} about absent things\n")
    print("| | 10 % | median | mean | 90 % | Ego4D |\n|---|---|---|---|---|---|")
    for name, values in rows.items():
        low, middle, high = np.quantile(values, [0.1, 0.5, 0.9])
        numbers = " | ".join(f"{value:.3g}" for value in (low, middle, values.mean(), high))
        print(f"| {name} | {numbers} | {EGO4D.get(name, '')} |")
    area = largest * scale**2
    small, large = (area < 64**2).mean(), (area >= 192**2).mean()
    shares = f"small {small:.0%}, medium {1 - small - large:.0%}, large {large:.0%}"
    print(f"\nsize classes of answers, if the video were 1920 px wide: {shares}")


if __name__ == "__main__":
    main()
