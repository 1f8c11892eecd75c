"""The diagrams of docs/architecture.md: how the parts fit together, and the bundled model.

python docs/make_diagrams.py             # writes docs/pictures/architecture.svg and model.svg
python docs/make_diagrams.py --check     # status 1 if they are not up to date

Numbers of the model come from the config of the bundled one.
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import torch
from drawing import Drawing, Rect

from lastseen.model import SimilarityConfig, SimilarityModel
from lastseen.model.propagation import GRID
from lastseen.stored_config import read_config
from lastseen.weights import bundled_model

PICTURES = Path(__file__).parent / "pictures"
WIDTH, HIGH = 880.0, 84.0
LAST = 616.0  # left edge of the last box of each lane
LANES = (16.0, 190.0, 364.0, 538.0)


def architecture() -> Drawing:
    drawing = Drawing(WIDTH, 702, "lastseen: from a video and a photo of a thing to an answer")
    encode, localize, refine, show = (Rect(16, top, WIDTH - 32, 146) for top in LANES)
    drawing.lane(encode, "Encode", "once for each video")
    drawing.lane(localize, "Localize", "once for each question")
    drawing.lane(refine, "Refine and decide", "NumPy, and the features of a few frames", indent=80)
    drawing.lane(show, "Show")

    def row(lane: Rect, left: float, step: float, *boxes: tuple) -> list[Rect]:
        return [
            drawing.box(Rect(left + number * step, lane.y + 44, step - 26, HIGH), *box)
            for number, box in enumerate(boxes)
        ]

    def last(lane: Rect, *box) -> Rect:
        return drawing.box(Rect(LAST, lane.y + 44, 228, HIGH), *box)

    video, frames, features = row(
        encode, 36, 186,
        ("Video", ["file, camera, stream"], "video/"),
        ("Frames", ["5 a second, by the", "file's timestamps"], "video/"),
        ("Features", ["a vector for each", "patch of a frame"], "model/ engine/"),
    )  # fmt: skip
    index = last(encode, "Index", ["features of all videos,", "kept on disk"], "index/", "optional")
    query, compared, spread = row(
        localize, 36, 186,
        ("Query", ["a photo, and a box", "around the thing"], "query.py"),
        ("Correspondence", ["every patch with", "the query's patches"], "model/"),
        ("Propagation, head", ["between neighbouring", "frames; candidates"], "model/"),
    )  # fmt: skip
    said = last(localize, "Predictions", ["a box and a logit for", "every frame; never changed"], "track.py")
    steps = row(
        refine, 36, 142,
        ("Zoom", ["search again,", "enlarged"], "refine/"),
        ("Verify", ["do sightings", "look alike?"], "refine/"),
        ("Extend", ["follow the thing", "over time"], "refine/"),
        ("Mask", ["tighter boxes,", "if asked for"], "refine/", "optional"),
    )  # fmt: skip
    about = ["peaks, extents, and", "how likely each is right"]
    sightings = last(refine, "Sightings", about, "sighting.py rule.py")
    shown = row(
        show, 36, 142,
        ("The page", ["of lastseen", "serve"], "web/"),
        ("Terminal", ["words or JSON"], "cli/"),
        ("Pictures", ["films, reports"], "render/"),
        ("Other tools", ["CVAT, COCO,", "WebVTT ..."], "formats/"),
    )  # fmt: skip
    answer = last(show, "Answer", ["when, where, how sure;", "or the best guess"], "answer.py", "main")

    for parts in ((video, frames, features), (query, compared, spread, said), (*steps, sightings)):
        for before, after in itertools.pairwise(parts):
            drawing.arrow(before, after)
    drawing.path([(features.right + 2, features.cy - 14), (index.x - 2, features.cy - 14)])
    drawing.path([(index.x - 2, features.cy + 14), (features.right + 2, features.cy + 14)], "dashed")
    for start, end in ((features, compared), (said, steps[0])):
        gap = end.y - 58  # between two lanes
        drawing.path([(start.cx, start.bottom + 2), (start.cx, gap), (end.cx, gap), (end.cx, end.y - 2)])
    drawing.arrow(sightings, answer)
    trunk, over = answer.x - 20, answer.y - 14
    drawing.path(
        [(answer.x - 2, answer.cy), (trunk, answer.cy), (trunk, over), (shown[0].cx, over)], tip=False
    )
    for place in shown:
        drawing.path([(place.cx, over), (place.cx, place.y - 2)])
    return drawing


def model() -> Drawing:
    config = read_config(json.loads((bundled_model() / "config.json").read_text()))
    assert isinstance(config, SimilarityConfig)
    backbone, side, query_side = config.backbone, config.side, config.query_side
    with torch.device("meta"):
        built = SimilarityModel.from_config(config)
    maps = built.correspondence.read[0].in_channels
    scales = ", ".join(f"{scale:g}" for scale in config.query_scales)
    cells = 2 * GRID

    drawing = Drawing(WIDTH, 622, "The bundled model: similarity maps of frames and query")
    drawing.lane(
        Rect(16, 16, WIDTH - 32, 254), "Encode", "the same backbone for both; frames once for each video"
    )
    drawing.lane(Rect(16, 298, WIDTH - 32, 174), "Localize", "once for each question")
    drawing.lane(Rect(16, 486, WIDTH - 32, 120), "Choose")

    size, thing = config.image_size, config.query_size
    clip = drawing.box(
        Rect(36, 56, 190, 90),
        f"{config.clip_length} frames",
        [f"3 x {size} x {size},", "fitted into a square"],
    )
    crops = drawing.box(
        Rect(36, 162, 190, 90),
        f"Query, {len(config.query_scales)} crops",
        [f"3 x {thing} x {thing};", f"the thing is {scales}", "of their side"],
    )
    shared = drawing.box(
        Rect(262, 76, 196, 156),
        "Backbone",
        [
            f"DINOv2 ViT-S/{backbone.patch},",
            f"{backbone.registers} registers,",
            f"the first {backbone.depth} blocks,",
            "frozen for the heads",
        ],
        "backbone.py",
    )
    features = drawing.box(
        Rect(496, 56, 348, 90),
        "Features of frames",
        [f"unit vectors, {backbone.channels} x {side} x {side} for each,", "which an index keeps"],
    )
    query = drawing.box(
        Rect(496, 162, 306, 90),
        "Encoded query",
        [
            f"unit vectors, {backbone.channels} x {query_side} x {query_side} for each crop,",
            "and masks: the thing, its background",
        ],
        "encoded_query.py",
    )
    for start, end in ((clip, features), (crops, query)):
        drawing.path([(start.right + 2, start.cy), (shared.x - 2, start.cy)])
        drawing.path([(shared.right + 2, start.cy), (end.x - 2, end.cy)])

    compared = drawing.box(
        Rect(36, 338, 186, 120),
        "Similarity maps",
        ["cosines of each patch with", "the query's, in several ways:", f"{maps} maps of {side} x {side}"],
        "similarity_maps.py",
    )
    read = drawing.box(
        Rect(248, 338, 150, 120), "Two convolutions", [f"{config.dim} x {side} x {side}", "for each frame"]
    )
    spread = drawing.box(
        Rect(424, 338, 196, 120),
        "Propagation",
        [
            f"to {GRID} x {GRID}; attention between",
            f"frames at most {config.attention_radius} apart;",
            f"{len(built.propagation.layers)} layers reach {built.context} frames",
        ],
        "propagation.py",
    )
    head = drawing.box(
        Rect(646, 338, 198, 120),
        "Head",
        [f"{cells} x {cells} cells, 12 anchors:", f"{12 * cells**2:,} candidates,", "a box and a logit each"],
        "head.py",
    )
    for before, after in ((compared, read), (read, spread), (spread, head)):
        drawing.arrow(before, after)
    for x, start, bend, to_x in ((822, features, 288, 150), (query.cx, query, 278, 128)):
        drawing.path([(x, start.bottom + 2), (x, bend), (to_x, bend), (to_x, compared.y - 2)])

    prior = drawing.box(
        Rect(36, 526, 362, 62),
        "Prior: the best cosine in each cell",
        ["a logit for each candidate, before any head"],
    )
    best = drawing.box(
        Rect(496, 526, 348, 62),
        "The candidate with the highest logit",
        ["prior + head: one box and one logit a frame"],
        kind="main",
    )
    drawing.path([(compared.cx, compared.bottom + 2), (compared.cx, prior.y - 2)])
    drawing.arrow(prior, best)
    drawing.path([(head.cx, head.bottom + 2), (head.cx, best.y - 2)])
    return drawing


DRAWN = {"architecture.svg": architecture, "model.svg": model}


def main() -> None:
    made = {PICTURES / name: draw() for name, draw in DRAWN.items()}
    if "--check" in sys.argv:
        stale = [path.name for path, drawing in made.items() if path.read_text() != drawing.svg()]
        sys.exit(f"not up to date: {', '.join(stale)}; run python {sys.argv[0]}" if stale else 0)
    for path, drawing in made.items():
        drawing.save(path)
        print(path)


if __name__ == "__main__":
    main()
