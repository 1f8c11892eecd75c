"""What a memory of found views is worth: every question is asked again with what the first pass found.

    python runs/found_views.py --model runs/shipped/heads/shipped --set val --set real_pan --out found

Writes for each set and way of asking NAME@WAY.json.gz (first pass), NAME@WAY@found.json.gz (asked with the
frame of the highest logit and its box) and NAME@WAY@refused.json.gz (asked with the frame that the first pass
likes and the found view does not: a look-alike).
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import median_filter

from lastseen.box import Box
from lastseen.datasets.vq2d import load_absent, load_vq2d
from lastseen.evaluate.asking import WAYS
from lastseen.evaluate.benchmark import to_annotated_px
from lastseen.evaluate.calibration import Answered, save_answered
from lastseen.evaluate.encoded import AT_ONCE, EncodedClip, EncodedSet
from lastseen.localizer import Localizer
from lastseen.model import EncodedQuery, SimilarityModel
from lastseen.query import LEAST_SIDE_PX
from lastseen.sighting import Evidence
from lastseen.track import FramePredictions
from lastseen.weights import load_model


def view_of(
    model: SimilarityModel, frames: list[np.ndarray], found: FramePredictions, at: int, device: torch.device
) -> list[EncodedQuery]:
    """The frame `at` and its predicted box as a query."""
    picture = frames[at]
    height, width = picture.shape[:2]
    x1, y1, x2, y2 = found.boxes_px[at].clip(0, [width, height, width, height])
    least = LEAST_SIDE_PX + 4
    x1, y1 = min(x1, width - least), min(y1, height - least)
    box = Box(float(x1), float(y1), float(max(x2, x1 + least)), float(max(y2, y1 + least)))
    return [model.encode_query(torch.from_numpy(picture.copy()).to(device), box)]


@torch.inference_mode()
def ask_again(
    clip: EncodedClip, frames: list[np.ndarray], model: SimilarityModel
) -> dict[str, list[Answered]]:
    device = clip.features.device
    localizer = Localizer(model, device=device)
    ends = [localizer.frames_searched(clip.video, query) for query in clip.asked]

    def predicted(views: list[list[EncodedQuery]]) -> list[FramePredictions]:
        pieces = (model.encode_features(part.float()) for part in torch.split(clip.features, AT_ONCE))
        return list(localizer.predict_encoded(clip.video, pieces, views, ends))

    with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
        made = zip(clip.queries, clip.query_boxes_unit, clip.query_shown_unit)
        first = predicted(
            [
                [model.encode_query_features(query[None].float(), box[None], shown[None]).row(0)]
                for query, box, shown in made
            ]
        )
        surest = [int(np.argmax(median_filter(p.logits, 5, mode="nearest"))) for p in first]
        found = predicted([view_of(model, frames, p, at, device) for p, at in zip(first, surest)])
        unlike = [
            int(np.argmax(median_filter(p.logits - f.logits, 5, mode="nearest")))
            for p, f in zip(first, found)
        ]
        refused = predicted([view_of(model, frames, p, at, device) for p, at in zip(first, unlike)])
    kept: dict[str, list[Answered]] = {"": [], "@found": [], "@refused": []}
    for name, predictions in zip(kept, (first, found, refused)):
        for question, said in zip(clip.questions, predictions):
            factors = np.array(to_annotated_px(question, clip.video) * 2)
            evidence = Evidence.of(said)
            evidence = replace(evidence, boxes_px=evidence.boxes_px * factors)
            truth = getattr(question, "truth", None)
            kept[name].append(Answered(video_uid=clip.video_uid, evidence=evidence, truth=truth))
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--set", type=Path, action="append", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    device = torch.device(arguments.device)
    model = load_model(arguments.model)
    assert isinstance(model, SimilarityModel)
    model = model.float().to(device).eval()
    for root in arguments.set:
        annotations, absent = load_vq2d(root / "annotations.json"), load_absent(root / "absent.json")
        whole = EncodedSet.of(annotations, root / "videos", absent, model.backbone, model.config, device)
        decoded = [[frame.image for frame in clip.video.frames(5.0)] for clip in whole.clips]
        for way in WAYS:
            kept: dict[str, list[Answered]] = {}
            for clip, frames in zip(whole.asked_as(way, model.backbone, model.config).clips, decoded):
                for name, answered in ask_again(clip, frames, model).items():
                    kept.setdefault(name, []).extend(answered)
            for name, answered in kept.items():
                save_answered(answered, arguments.out / f"{root.name}@{way}{name}.json.gz")
            print(root.name, way, len(kept[""]), flush=True)


if __name__ == "__main__":
    main()
