"""A query as models compare it with frames: vectors, and which of them show the thing."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lastseen.model.inputs import patches_inside

MIN_KEPT_SHARE = 0.4  # of the patches in a box: the least similar to the surroundings are never background
MIN_MASKED_SHARE = 0.25  # of the patches in a box that its mask must keep, or it is not trusted
MIN_SURROUNDING = 4  # patches around a box that are needed to know what the background looks like


@dataclass(frozen=True, eq=False)
class EncodedQuery:
    """One view of the thing, or a batch of them (then every tensor begins with b).

    | model               | vectors                | on_thing, background                          |
    |---------------------|------------------------|-----------------------------------------------|
    | VQLoC               | [scales, dim, q, q]    | bool [scales, q, q]; None: no patch is masked |
    | similarity maps     | [scales, c, q, q] unit | bool [scales, q, q]                           |
    | training-free       | [scales, c, q, q] unit | bool [scales, q, q]                           |

    `on_thing` are the patches in the thing's box. `background` are those among them that look like the box's
    surroundings: they tell that a frame shows the same place, not where in it the thing is.
    """

    vectors: Tensor
    on_thing: Tensor | None = None
    background: Tensor | None = None

    def to(self, device: torch.device | None = None, dtype: torch.dtype | None = None) -> EncodedQuery:
        """`dtype` is that of the vectors; masks stay bool."""
        masks = (
            None if mask is None else mask.to(device=device) for mask in (self.on_thing, self.background)
        )
        return EncodedQuery(self.vectors.to(device=device, dtype=dtype), *masks)

    def with_mask(self, covered: Tensor) -> EncodedQuery:
        """One view whose background is what a mask leaves out: `covered` [scales, q, q] is the share of each
        patch that is in the mask. At scales at which too little is left the background stays."""
        assert self.on_thing is not None and self.background is not None
        outside = self.on_thing & (covered < 0.5)
        kept, of = ((some.flatten(1).sum(1)) for some in (self.on_thing & ~outside, self.on_thing))
        masked = (kept >= MIN_MASKED_SHARE * of)[:, None, None]
        return EncodedQuery(self.vectors, self.on_thing, torch.where(masked, outside, self.background))

    def as_batch(self) -> EncodedQuery:
        """One view as a batch of one."""
        masks = (None if mask is None else mask[None] for mask in (self.on_thing, self.background))
        return EncodedQuery(self.vectors[None], *masks)

    def row(self, number: int) -> EncodedQuery:
        """One view of a batch."""
        masks = (None if mask is None else mask[number] for mask in (self.on_thing, self.background))
        return EncodedQuery(self.vectors[number], *masks)


def mask_picture(mask: Tensor) -> Tensor:
    """[h, w] bool -> [h, w, 3] uint8, to be cropped and resized like the picture that it belongs to."""
    return (mask.to(torch.uint8) * 255)[..., None].expand(-1, -1, 3)


def background_patches(features: Tensor, inside: Tensor, shown_unit: Tensor, cosine: float) -> Tensor:
    """Patches inside a box that look like its surroundings.

    | features   | [n, c, h, w] of pictures of things                                  |
    | inside     | [n, 1, h, w] bool or 0 and 1: patches in the thing's box             |
    | shown_unit | [n, 4] where the picture is in its square: beyond it edges repeat    |
    | cosine     | above which a patch in the box counts as background                  |
    | out        | bool [n, 1, h, w]                                                    |

    The MIN_KEPT_SHARE of a box's patches that are least similar to the surroundings are never background.
    """
    in_box = inside.flatten(1) > 0
    around = ~in_box & (patches_inside(shown_unit, *features.shape[2:]).flatten(1) > 0)
    with torch.autocast(features.device.type, enabled=False):  # the same decision in training and inference
        unit = F.normalize(features.float().flatten(2), dim=1)
        similarity = (unit.transpose(1, 2) @ unit).masked_fill(~around[:, None], -1.0).amax(2)
    similarity = similarity.masked_fill(around.sum(1, keepdim=True) < MIN_SURROUNDING, -1.0)
    kept = (MIN_KEPT_SHARE * in_box.sum(1, keepdim=True)).ceil().long().clamp(min=1)
    always_kept = similarity.masked_fill(~in_box, torch.inf).sort(1).values.gather(1, kept - 1)
    return (in_box & (similarity > always_kept.clamp(min=cosine))).view_as(inside)
