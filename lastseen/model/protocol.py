"""What everything outside this package needs of a model."""

from __future__ import annotations

import hashlib
from typing import Any, Protocol

from torch import Tensor, nn

from lastseen.box import Box, Letterbox
from lastseen.model.encoded_query import EncodedQuery
from lastseen.model.head import Predictions
from lastseen.model.padding import PaddingGroups


class Model(Protocol):
    """VQLoC, SimilarityModel and TrainingFreeModel have it.

    Features [n, c, rows, columns] of frames do not depend on a query, so they can be kept.
    """

    @property
    def title(self) -> str: ...
    @property
    def config(self) -> Any: ...
    @property
    def clip_length(self) -> int: ...
    @property
    def context(self) -> int:
        """How many frames on each side a frame's prediction depends on."""
        ...

    @property
    def padding(self) -> float: ...
    @property
    def patch(self) -> int:
        """Side of a patch in pixels."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...
    def fingerprint(self) -> str:
        """Equal for equal configs and weights."""
        ...

    def letterbox(self, width: int, height: int) -> Letterbox: ...
    def encode(self, pictures: Tensor, groups: PaddingGroups | None = None) -> Tensor:
        """Normalised pictures [n, 3, h, w] of the letterbox's canvas -> features"""
        ...

    def encode_frames(self, frames: Tensor, group_padding: bool = False) -> Tensor:
        """[n, h, w, 3] uint8 -> features; of padding only one patch a group is encoded if asked to"""
        ...

    def encode_query(self, picture: Tensor, box: Box, mask: Tensor | None = None) -> EncodedQuery:
        """A picture [h, w, 3] uint8, the thing's box in it and, if known, its mask [h, w] bool"""
        ...

    def localize_clip(self, features: Tensor, query: EncodedQuery) -> Predictions:
        """Features [t, c, rows, columns] of one clip -> Predictions [1, t, ..]"""
        ...

    def localize_run(self, features: Tensor, query: EncodedQuery, context: int, first: int) -> Predictions:
        """Several overlapping clips at once, see `SpatioTemporalTransformer.overlapping`"""
        ...

    def frame_vectors(self, features: Tensor) -> Tensor:
        """Features -> unit vectors [n, m, rows, columns] that can be compared with `query_vectors`"""
        ...

    def query_vectors(self, query: EncodedQuery) -> Tensor:
        """-> unit vectors [k, m]"""
        ...


def weights_fingerprint(model: nn.Module, *configs: object) -> str:
    """SHA-256 of a model's kind, configs and weights."""
    digest = hashlib.sha256(repr((type(model).__name__, *configs)).encode())
    for name, value in model.state_dict().items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().float().numpy().tobytes())
    return digest.hexdigest()
