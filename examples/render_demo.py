"""The bundled demo: a walk of the synthetic world, of things that are drawn at run time.

    python examples/render_demo.py --seed 21 --question 1 --device cuda   writes lastseen/assets/demo*
    python examples/render_demo.py --try 0-19 --device cuda   what the localizer makes of other walks

No files are needed and nobody's work is in it, so no attribution either.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from lastseen.datasets import Question
from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.engine.devices import best_device
from lastseen.evaluate.benchmark import query_of
from lastseen.evaluate.metrics import compare
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.video import Video, VideoWriter
from lastseen_synth.dataset_writer import write_dataset
from lastseen_synth.episode import EpisodeSettings
from lastseen_synth.library import open_library

ASSETS = Path(__file__).parents[1] / "lastseen" / "assets"
SETTINGS = EpisodeSettings(
    width_px=640,
    height_px=360,
    fps=10.0,
    duration_s=(46.0, 46.0),
    things=(4, 4),
    view_share=(0.14, 0.3),
    fov_deg=(78.0, 115.0),
)
CRF = 29  # under 3 MB


def rendered(folder: Path, seed: int, device: str) -> tuple[Video, list[Question]]:
    annotations = write_dataset(
        folder,
        partial(open_library, "val"),
        split="val",
        episodes=1,
        seed=seed,
        settings=SETTINGS,
        device=device,
    )
    video = Video(folder / "videos" / f"val-{seed}-0000.mp4")
    return video, list(load_vq2d(annotations).questions)


def judge(video: Video, questions: list[Question], localizer: Localizer) -> list[tuple[float, float, float]]:
    """For each question: stIoU, tIoU and score of the localizer's answer to the whole video."""
    queries = [Query(query_of(question, video, 5.0).views) for question in questions]
    results = []
    for question, answer in zip(questions, localizer.ask_many(video, queries)):
        guess = answer.shown[-1]
        last = question.occurrences[-1]
        overlap = compare(last, guess)
        results.append((overlap.stiou, overlap.tiou, guess.score))
    return results


def write_assets(folder: Path, video: Video, question: Question) -> None:
    """The last occurrence in the whole video is the answer: the demo does not say when it asks."""
    with VideoWriter(ASSETS / "demo.mp4", video.width, video.height, SETTINGS.fps, crf=CRF) as writer:
        for frame in video.frames(SETTINGS.fps):
            writer.write(frame.image)
    view = query_of(question, video, 5.0).views[0]
    tight = view.box.expanded(1.1).clipped(view.picture.shape[1], view.picture.shape[0])
    x1, y1, x2, y2 = (round(v) for v in tight.xyxy)
    Image.fromarray(view.picture[y1:y2, x1:x2]).save(ASSETS / "demo_query.jpg", quality=92)
    (ASSETS / "demo_truth.json").write_text(question.occurrences[-1].to_json() + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--try", dest="attempts", metavar="A-B")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--question", type=int, default=0)
    parser.add_argument("--device", default=str(best_device()))
    parser.add_argument("--keep", type=Path, help="keep what is rendered here")
    arguments = parser.parse_args()
    first, last = map(int, arguments.attempts.split("-")) if arguments.attempts else [arguments.seed] * 2
    localizer = Localizer.from_pretrained(device=arguments.device)
    for seed in range(first, last + 1):
        folder = (arguments.keep or Path(tempfile.mkdtemp())) / str(seed)
        video, questions = rendered(folder, seed, arguments.device)
        results = judge(video, questions, localizer)
        absent = [query_of(q, video, 5.0) for q in load_absent(folder / "absent.json")]
        refused = [answer.shown[-1].score for answer in localizer.ask_many(video, absent)]
        for number, (question, (stiou, tiou, score)) in enumerate(zip(questions, results)):
            end = question.occurrences[-1].end
            size = np.sqrt(max(box.area for box in question.occurrences[-1].boxes))
            row = {"seed": seed, "question": number, "title": question.object_title, "stiou": round(stiou, 3)}
            row |= {
                "tiou": round(tiou, 3),
                "score": round(score, 3),
                "end_s": end,
                "size_px": round(float(size)),
            }
            print(json.dumps(row | {"absent": [round(s, 2) for s in refused]}), flush=True)
        if arguments.seed is not None:
            write_assets(folder, video, questions[arguments.question])
        if not arguments.keep:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
