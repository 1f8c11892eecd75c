"""What int8 would gain and cost: OpenVINO's network of the bundled model, quantised by NNCF.

    pip install nncf
    python benchmarks/int8.py --calibrate walks/*.mp4 --judge real_dev/videos/*.mp4
    python benchmarks/int8.py --calibrate walks/*.mp4 --set real_dev --questions 5 --out equal.jsonl

Weights and activations of matrix products are quantised after training (NNCF's settings for transformers,
with SmoothQuant and bias correction), calibrated on frames of the videos given. Only frames with padding
are: what zoom enlarges is encoded with bfloat16, like queries. Speed is a ratio to openvino-bf16 within one
run, in CPU time; cosines are those of patches that show the picture, to float32's. `--set` answers questions
with both, as equal_answers.py does, and says how many answers are the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from cpu_engines import picture_patches
from equal_answers import answer_set, loaded, print_table, rows_of

from lastseen import Localizer, Video
from lastseen.engine.openvino import Key, OpenVinoEngine, converted
from lastseen.model.inputs import letterboxed

EXACT, HALF, INT8 = "torch-fp32", "openvino-bf16", "openvino-int8"
BATCH = 4
FRAMES = 240  # to calibrate on
JUDGED = 12  # frames of each video


class Int8Engine(OpenVinoEngine):
    name = INT8
    rounding = "int8 of a benchmark"

    def __init__(self, model: Any, images: Sequence[np.ndarray]) -> None:
        super().__init__(model, torch.device("cpu"))
        self._images = images
        self._int8: dict[Key, Any] = {}

    def _network(self, key: Key) -> Any:
        if key[1] is None:
            return super()._network(key)
        if key not in self._int8:
            self._int8[key] = self._quantised(key)
        return self._int8[key]

    def _quantised(self, key: Key) -> Any:
        import nncf

        frames = torch.from_numpy(np.stack(self._images))
        box = self.model.letterbox(frames.shape[2], frames.shape[1])
        pictures = letterboxed(frames, box, self.model.padding)
        if key != self._key(box, key[0][0]):
            raise SystemExit(f"calibrate on videos of the same shape as those judged, {key[0]}")
        batches = [batch.numpy() for batch in pictures.split(key[0][0]) if len(batch) == key[0][0]]
        return nncf.quantize(
            converted(self.model, *key),
            nncf.Dataset(batches),
            subset_size=len(batches),
            model_type=nncf.ModelType.TRANSFORMER,
            preset=nncf.QuantizationPreset.MIXED,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calibrate", type=Path, nargs="+", required=True, metavar="VIDEO")
    parser.add_argument("--judge", type=Path, nargs="+", default=[], metavar="VIDEO")
    parser.add_argument("--set", type=Path, action="append", default=[], dest="sets", metavar="FOLDER")
    parser.add_argument("--questions", type=int, metavar="N", help="of each video; all unless given")
    parser.add_argument("--out", type=Path, help="the answers, for --set")
    arguments = parser.parse_args()
    if arguments.sets and not arguments.out:
        parser.error("--set needs --out")
    images = [
        image
        for path in arguments.calibrate
        for image in of_video(path, -(-FRAMES // len(arguments.calibrate)))
    ]
    engine = Int8Engine(Localizer.from_pretrained(engine=HALF).model, images)

    def load(name: str) -> Localizer:
        localizer = loaded(HALF if name == INT8 else name)
        if name == INT8:
            localizer.engine = engine
        return localizer

    if arguments.judge:
        judge(arguments.judge, {name: load(name) for name in (EXACT, HALF, INT8)})
    for folder in arguments.sets:
        answer_set(folder, (0, 1), (HALF, INT8), arguments.out, arguments.questions, load)
    if arguments.sets:
        print_table(rows_of(arguments.out), HALF)


def of_video(path: Path, most: int) -> list[np.ndarray]:
    """Frames over the whole video."""
    video = Video(path)
    rate = min(video.fps, most / video.duration_s)
    return [frame.image for frame in islice(video.frames(rate), most)]


def judge(paths: Sequence[Path], localizers: dict[str, Localizer]) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in localizers}
    for path in paths:
        images = of_video(path, JUDGED)
        features: dict[str, list[torch.Tensor]] = {name: [] for name in localizers}
        for at in range(0, len(images), BATCH):
            for name, localizer in localizers.items():
                began = time.process_time()
                features[name].append(localizer.encode_pictures(images[at : at + BATCH]))
                seconds[name].append(time.process_time() - began)
        shows = picture_patches(localizers[EXACT].model, *images[0].shape[1::-1])
        exact = torch.cat(features[EXACT]).float()[:, :, *shows]
        for name in (HALF, INT8):
            found = torch.cat(features[name]).float()[:, :, *shows]
            cosine = F.cosine_similarity(exact, found, dim=1).flatten()
            lowest = cosine.kthvalue(max(1, len(cosine) // 100)).values
            print(
                f"{path.name} {name}: mean cosine {cosine.mean():.4f}, lowest percent {lowest:.4f}",
                flush=True,
            )
    ratios = [a / b for a, b in zip(seconds[HALF][3:], seconds[INT8][3:])]
    took = {name: round(statistics.median(taken[3:]) / BATCH, 4) for name, taken in seconds.items()}
    print(f"CPU seconds a frame: {took}; int8 is {statistics.median(ratios):.2f} times as fast as bfloat16")


if __name__ == "__main__":
    main()
