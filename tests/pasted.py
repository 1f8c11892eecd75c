"""Features of noise into which things are pasted: nothing but the query tells which one is meant."""

import torch

from lastseen.model import BackboneConfig, VQLoCConfig
from lastseen.train.batch import Batch

CHANNELS, SIDE, THING = 96, 16, 4
MODEL = VQLoCConfig(
    backbone=BackboneConfig(dim=CHANNELS, depth=1, heads=2),
    image_size=14 * SIDE,
    dim=64,
    query_scales=(THING / SIDE,),
    masked_query=True,
)
MIDDLE = slice((SIDE - THING) // 2, (SIDE + THING) // 2)


def pasted(seed, rows=8, frames=4):
    """Features of noise; a copy of the query's thing is in the first half of each clip's frames, and another
    clip's thing in the others. So nothing but the query tells which is meant."""
    generator = torch.Generator().manual_seed(seed)
    clips = torch.randn(rows, frames, CHANNELS, SIDE, SIDE, generator=generator)
    queries = torch.randn(rows, 1, CHANNELS, SIDE, SIDE, generator=generator)
    boxes = torch.zeros(rows, frames, 4)
    visible = torch.arange(frames).expand(rows, -1) < frames // 2
    for row in range(rows):
        for frame in range(frames):
            y, x = torch.randint(0, SIDE - THING + 1, (2,), generator=generator).tolist()
            of = row if visible[row, frame] else (row + 1) % rows
            clips[row, frame, :, y : y + THING, x : x + THING] = queries[of, 0, :, MIDDLE, MIDDLE]
            boxes[row, frame] = torch.tensor([x, y, x + THING, y + THING]) / SIDE
    return Batch(
        clips=clips,
        queries=queries,
        boxes_unit=boxes,
        visible=visible,
        unrelated=~torch.eye(rows, dtype=torch.bool),
        query_boxes_unit=torch.tensor([MIDDLE.start, MIDDLE.start, MIDDLE.stop, MIDDLE.stop]).expand(
            rows, 1, 4
        )
        / SIDE,
    )
