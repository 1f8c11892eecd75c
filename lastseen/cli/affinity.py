"""lastseen affinity: the paper's affinity figure, for one point of the thing and one frame of a video."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from lastseen.cli.outputs import PICTURES
from lastseen.cli.shared import Device, Verbose, Weights, model_files, open_localizer
from lastseen.errors import QueryError, VideoError


def affinity(
    picture: Annotated[Path, typer.Argument(metavar="PICTURE", help="A picture of the thing.")],
    video: Annotated[Path, typer.Argument(metavar="VIDEO", help="The video whose frame is compared.")],
    at: Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="The moment of VIDEO to look at.")],
    out: Annotated[Path, typer.Option(metavar="OUT.png", help="Write the figure.")],
    point: Annotated[
        str | None,
        typer.Option(metavar="X,Y", help="A point on the thing in PICTURE, in pixels (default: its middle)."),
    ] = None,
    box: Annotated[
        str | None, typer.Option(metavar="X1,Y1,X2,Y2", help="Where the thing is in the picture, in pixels.")
    ] = None,
    weights: Weights = None,
    device: Device = None,
    verbose: Verbose = False,
) -> None:
    """Draw which parts of a frame resemble one point of the thing.

    Example: lastseen affinity keys.jpg walk.mp4 --at 12.4 --point 30,42 --out affinity.png

    The point is a dot in the picture; a ring marks the most similar place in the frame; it is also printed.
    """
    from lastseen.box import Box
    from lastseen.files import check_apart, check_writable
    from lastseen.query import Query
    from lastseen.video import Video

    check_writable(out, PICTURES)
    check_apart([("--out", out)], [picture, video, *model_files(weights)])
    view = Query.from_image(picture, Box(*_numbers("--box", box, "X1,Y1,X2,Y2")) if box else None).views[0]
    x1, y1, x2, y2 = view.box.xyxy
    x, y = _numbers("--point", point, "X,Y") if point else ((x1 + x2) / 2, (y1 + y2) / 2)
    if not (x1 <= x <= x2 and y1 <= y <= y2):
        raise QueryError(f"--point {point} is outside the thing's box {x1:g},{y1:g},{x2:g},{y2:g}")
    footage = Video(video)
    if at >= footage.duration_s:
        raise VideoError(f"{video}: no frame at {at:g} s; the video lasts {footage.duration_s:.2f} s")
    frame = footage.frame_at(at).image

    import torch

    from lastseen.model.affinity import point_affinity
    from lastseen.render.affinity import over_frame, write_affinity

    localizer = open_localizer(weights, False, None, device, quiet=True)
    model: Any = localizer.model
    thing, searched = (torch.from_numpy(image.copy()).to(localizer.device) for image in (view.picture, frame))
    similarity = point_affinity(model, thing, view.box, (x, y), searched).float().cpu().numpy()
    letterbox = model.letterbox(footage.width, footage.height)
    write_affinity(out, view.picture, (x, y), frame, similarity, letterbox)
    heat = over_frame(similarity, letterbox)
    row, column = divmod(int(heat.argmax()), heat.shape[1])
    size = f"{footage.width}x{footage.height}"
    print(f"Most similar at x {column}, y {row} of the {size} frame: cosine {heat.max():.2f}.")


def _numbers(option: str, text: str, wanted: str) -> list[float]:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != wanted.count(",") + 1:
        example = {"X,Y": "30,42"}.get(wanted, "120,80,240,200")
        raise QueryError(f"{option} {text}: expected {wanted} in pixels, like {example}")
    return numbers
