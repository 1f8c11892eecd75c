"""Appearance of the thing in this video: the patches of its box at a peak, compared with other frames."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lastseen.model.encoded_query import background_patches
from lastseen.model.inputs import patches_inside
from lastseen.refine.step import FrameAccess
from lastseen.sighting import Evidence


@dataclass(frozen=True, eq=False)
class Appearance:
    """The patches of one box."""

    patches: Tensor  # [channels, k] unit vectors
    foreground: Tensor  # [k] bool: not similar to the patches around the box
    offsets: Tensor  # [k, 2] x and y relative to the box centre, in the unit square


class BoxPatches:
    """Patch similarity inside and around the boxes of a video's evidence."""

    def __init__(self, evidence: Evidence, video: FrameAccess) -> None:
        self.evidence, self.video = evidence, video
        box = video.letterbox
        frame = np.array([[0, 0, box.frame_width, box.frame_height]])
        self.boxes = torch.from_numpy(box.to_unit(evidence.boxes_px)).float()  # [T, 4] in the canvas
        self.frame = torch.from_numpy(box.to_unit(frame)).float()  # [1, 4] the frame in its canvas

    def appearance(self, frame: int, background_cosine: float) -> Appearance:
        """Patches in the box of a frame; those whose cosine with a patch around the box is above
        `background_cosine` count as background."""
        shown, box = self.video.vectors(frame, frame + 1), self.boxes[frame : frame + 1]
        rows, columns = shown.shape[2:]
        inside = patches_inside(box, rows, columns).to(shown)
        background = background_patches(shown, inside, self.frame.to(shown), background_cosine)
        in_box = inside[0, 0] > 0
        offsets = centers(rows, columns)[in_box.flatten().cpu()] - (box[:, :2] + box[:, 2:]) / 2
        return Appearance(shown[0][:, in_box], ~background[0, 0][in_box].cpu(), offsets)

    def cosines(self, thing: Appearance, start: int, stop: int) -> Tensor:
        """Cosines of the thing's patches with those of frames [start, stop): [n, k, rows, columns]"""
        return torch.einsum("nchw,ck->nkhw", self.video.vectors(start, stop), thing.patches).cpu()

    def around(self, box: Tensor, cosine: Tensor, ratio: float, patches: int = 0) -> Tensor:
        """[rows, columns] bool: a box enlarged by `ratio` and by `patches` on every side, cut to the frame"""
        one = 1 / torch.tensor([cosine.shape[2], cosine.shape[1]])
        half = (ratio * (box[2:] - box[:2]) / 2) + patches * one
        middle = (box[:2] + box[2:]) / 2
        enlarged = torch.cat([middle - half, middle + half])[None]
        return self.inside(enlarged, cosine) & self.inside(self.frame, cosine)

    @staticmethod
    def inside(boxes: Tensor, cosine: Tensor) -> Tensor:
        return patches_inside(boxes, *cosine.shape[1:])[0, 0] > 0


def best_match(cosine: Tensor, where: Tensor) -> tuple[Tensor, Tensor]:
    """For each of the thing's patches the highest cosine [k] within the mask `where`, and its position [k]"""
    best, at = cosine.masked_fill(~where, -1.0).flatten(1).max(1)
    return best, at


def centers(rows: int, columns: int) -> Tensor:
    """Centres of the patches in the unit square: [rows * columns, 2] x and y"""
    down, across = (torch.arange(count) + 0.5 for count in (rows, columns))
    grid = torch.stack(torch.meshgrid(across / columns, down / rows, indexing="xy"), -1)
    return grid.flatten(0, 1)
