"""The pipeline that SiamRCNN, NFM and CocoFormer share: they differ in head and training.

a video: frames -> backbone -> pyramid -> proposals, blind to the query -> RoIAlign -> projector -> vectors
a query: its picture -> backbone -> pyramid -> pooled -> projector -> vector
head(vectors of a frame's proposals, vector of the query) -> a logit for each proposal
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lastseen.baselines.proposals import Proposals, RegionProposals
from lastseen.baselines.pyramid import Pyramid, SimpleFeaturePyramid
from lastseen.baselines.roi_align import roi_align
from lastseen.box import Box, Letterbox
from lastseen.model import Backbone, BackboneConfig, EncodedQuery, Predictions
from lastseen.model.config import checked_size, config_dict, config_from_dict
from lastseen.model.inputs import letterboxed, normalised, resized
from lastseen.model.padding import PaddingGroups, padding_groups
from lastseen.model.protocol import weights_fingerprint

ROI_SIZE = 14  # cells along a side of a proposal
QUERY_MARGIN_PX = 16  # of the original picture, on each side of the box
QUERY_GREY = 125 / 255  # around a crop that is not square
ROIS_AT_ONCE = 4096  # go through the projector together: 0.8 GB each of its maps
CLIP_LENGTH = 16  # frames are read one by one: any length gives the same answer


@dataclass(frozen=True, kw_only=True)
class DetectorConfig:
    """The sizes of the originals, but for the backbone."""

    kind: ClassVar[str] = "detector"

    backbone: BackboneConfig
    image_size: int = 448  # px; the originals' pictures are 1333 px wide
    query_size: int = 252  # px; 256 in the originals, whose stride divides that
    channels: int = 256  # of the pyramid
    hidden: int = 1024  # of a proposal's vector
    proposals: int = 1000  # of a frame
    padding: float = 0.0  # grey value in [0, 1] around a frame that is not square

    def __post_init__(self) -> None:
        checked_size("image_size", self.image_size, 2 * self.backbone.patch)
        checked_size("query_size", self.query_size, self.backbone.patch)

    def to_dict(self) -> dict[str, Any]:
        return config_dict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        return config_from_dict(cls, data)


class RivalDetector(nn.Module):
    """Everything but the head.

    | frames   | [n, h, w, 3] uint8                                                             |
    | features | [n, 9 + hidden, proposals, 1]: boxes (`packed`), objectness, projected vectors |
    | query    | vectors [hidden]                                                               |

    Features do not depend on the query: a further question to a video costs the head alone.
    """

    name = "proposals alone"  # of the rival, as in papers

    def __init__(self, config: DetectorConfig) -> None:
        super().__init__()
        self.config = config
        self.backbone: nn.Module = Backbone(config.backbone)
        self.pyramid = SimpleFeaturePyramid(config.backbone.channels, config.channels)
        self.proposer = RegionProposals(config.channels)
        self.projector = Projector(config.channels, config.hidden)

    def head_logits(self, vectors: Tensor, there: Tensor, query: Tensor) -> Tensor:
        """Vectors [t, n, hidden] of proposals, which of them exist [t, n], and of a query [hidden] -> logits
        [t, n], whose sigmoid is the score of the original."""
        raise NotImplementedError

    # --- what training uses ---

    def pyramid_of(self, pictures: Tensor) -> Pyramid:
        """Normalised pictures [n, 3, size, size]"""
        return self.pyramid(self.backbone(pictures))

    def vectors_of(self, pyramid: Pyramid, boxes_unit: Tensor) -> Tensor:
        """Boxes [n, k, 4] -> [n, k, hidden]"""
        n, k = boxes_unit.shape[:2]
        together = max(1, ROIS_AT_ONCE // max(k, 1))
        parts = [
            self.projector(roi_align(fine, boxes, ROI_SIZE).flatten(0, 1))
            for fine, boxes in zip(torch.split(pyramid.fine, together), torch.split(boxes_unit, together))
        ]
        return torch.cat(parts).view(n, k, -1)

    def query_vectors_of(self, crops: Tensor) -> Tensor:
        """Normalised `query_square`s [b, 3, query size, query size] -> [b, hidden]"""
        return self.projector(F.adaptive_avg_pool2d(self.pyramid_of(crops).fine, ROI_SIZE))

    # --- lastseen.model.protocol ---

    @property
    def title(self) -> str:
        return f"{self.name} ({self.config.backbone.name}, {self.config.image_size} px)"

    @property
    def clip_length(self) -> int:
        return CLIP_LENGTH

    @property
    def context(self) -> int:
        return 0

    @property
    def padding(self) -> float:
        return self.config.padding

    @property
    def patch(self) -> int:
        return self.config.backbone.patch

    def fingerprint(self) -> str:
        return weights_fingerprint(self, self.config)

    def letterbox(self, width: int, height: int) -> Letterbox:
        return Letterbox.square(width, height, self.config.image_size)

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        return self._encoded(maps_of_frames(self, self.backbone, frames, group_padding))

    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        return self._encoded(self.backbone(pictures, groups))

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """All of the crop is the query, so a mask is not used."""
        crop = normalised(query_square(picture, box, self.config.query_size))
        return EncodedQuery(self.query_vectors_of(crop.to(self.dtype))[0])

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        """All proposals of each frame. The originals suppress overlapping ones and keep ten, of which only
        the best is ever read: it is the same one."""
        boxes, objectness, vectors = unpacked(features)
        there = objectness > -torch.inf
        logits = self.head_logits(vectors, there, query.vectors.to(vectors.dtype)).float()
        return Predictions(boxes[None], logits.masked_fill(~there, -torch.inf)[None])

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Frames do not depend on each other."""
        return self.localize_clip(features[first : len(features) - context], query)

    def frame_vectors(self, features: Tensor) -> Tensor:
        return F.normalize(features[:, 9:].float(), dim=1)

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        return F.normalize(query.vectors.float(), dim=0)[None]

    @property
    def dtype(self) -> torch.dtype:
        return next(self.projector.parameters()).dtype

    def in_half(self, backbone: nn.Module, dtype: torch.dtype) -> Self:
        """A copy that computes in `dtype`, with this backbone in place of its own."""
        other = copy.copy(self)
        other._modules = {name: copy.deepcopy(part).to(dtype) for name, part in self._rest()}
        other.backbone = backbone
        return other.eval()

    def _rest(self) -> Iterator[tuple[str, nn.Module]]:
        return ((name, part) for name, part in self.named_children() if name != "backbone")

    def _encoded(self, maps: Tensor) -> Tensor:
        pyramid = self.pyramid(maps)
        proposals = self.proposer.propose(pyramid, self.config.proposals)
        return packed(proposals, self.vectors_of(pyramid, proposals.boxes))


class Projector(nn.Module):
    """The content of boxes [m, channels, 14, 14] -> vectors [m, hidden]; one for proposals and queries."""

    def __init__(self, channels: int, hidden: int, blocks: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(_Residual(channels) for _ in range(blocks))
        self.first = nn.Linear(channels, hidden)
        self.second = nn.Linear(hidden, hidden)

    def forward(self, cells: Tensor) -> Tensor:
        for block in self.blocks:
            cells = block(cells)
        return self.second(F.relu(self.first(cells.mean((2, 3)))))


class _Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, cells: Tensor) -> Tensor:
        return F.relu(cells + self.conv2(F.relu(self.conv1(cells))))


def maps_of_frames(model: Any, backbone: nn.Module, frames: Tensor, group_padding: bool) -> Tensor:
    """[n, h, w, 3] uint8 -> the backbone's features of their letterboxed pictures"""
    letterbox = model.letterbox(frames.shape[2], frames.shape[1])
    groups = padding_groups(letterbox, model.patch) if group_padding else None
    of_frames = getattr(backbone, "of_frames", None)  # in half precision
    if of_frames is not None and frames.is_cuda:
        return of_frames(frames, letterbox, model.padding, groups)
    return backbone(letterboxed(frames, letterbox, model.padding), groups)


def query_square(picture: Tensor, box: Box, size: int) -> Tensor:
    """The thing with a margin of QUERY_MARGIN_PX, in the middle of a grey square: a picture [h, w, 3] uint8
    -> [1, 3, size, size] in [0, 1]"""
    height, width = picture.shape[:2]
    wide = Box(*(round(v) for v in box.xyxy))
    x1, y1 = max(0, int(wide.x1) - QUERY_MARGIN_PX), max(0, int(wide.y1) - QUERY_MARGIN_PX)
    x2, y2 = min(width, int(wide.x2) + QUERY_MARGIN_PX), min(height, int(wide.y2) + QUERY_MARGIN_PX)
    letterbox = Letterbox.square(x2 - x1, y2 - y1, size)
    content = resized(picture[None, y1:y2, x1:x2], letterbox.content_width, letterbox.content_height)
    right = size - letterbox.content_width - letterbox.left
    below = size - letterbox.content_height - letterbox.top
    return F.pad(content, (letterbox.left, right, letterbox.top, below), value=QUERY_GREY)


# --- Proposals as features --------------------------------------------------------------------------

COARSE = 64  # steps of the unit square that every float type holds exactly


def packed(proposals: Proposals, vectors: Tensor) -> Tensor:
    """-> [n, 9 + hidden, k, 1] in the type of the vectors. Each coordinate is a multiple of 1 / COARSE and a
    rest, since half precision alone would move boxes by pixels."""
    coarse = (proposals.boxes * COARSE).round() / COARSE
    parts = (coarse, proposals.boxes - coarse, proposals.logits[..., None])
    return torch.cat([*(part.to(vectors.dtype) for part in parts), vectors], -1).transpose(1, 2)[..., None]


def unpacked(features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes float32 [n, k, 4], objectness [n, k], vectors [n, k, hidden]"""
    coarse, rest, objectness, vectors = torch.split(features[..., 0], [4, 4, 1, features.shape[1] - 9], 1)
    boxes = (coarse.float() + rest.float()).transpose(1, 2)
    return boxes, objectness[:, 0], vectors.transpose(1, 2)
