"""Small models with lively weights, and the reference's golden data."""

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import nn

from lastseen.model import BackboneConfig, EncodedQuery, SimilarityConfig, SimilarityModel, VQLoC, VQLoCConfig
from lastseen.weights import make_model

GOLDEN = Path(__file__).parent / "golden"
TINY = BackboneConfig(dim=32, depth=2, heads=2)
WIDE = BackboneConfig(dim=64, depth=2, heads=1)
SMALL = VQLoCConfig(backbone=TINY, image_size=112, dim=32)  # 8 x 8 patches
# The bundled model's shape, small: skip connection and background masks as it has.
SMALL_MAPS = SimilarityConfig(
    backbone=TINY, image_size=224, dim=32, query_scales=(1.0, 0.5), query_size=112, background_cosine=0.5
)

# The bundled model's config.json when there was one config for both models.
CONFIG_OF_BEFORE = {
    "backbone": {
        "dim": 384, "depth": 8, "heads": 6, "registers": 4, "ffn": "mlp", "blocks": [7],
        "final_norm": False, "patch": 14,
    },
    "image_size": 448, "clip_length": 30, "dim": 128, "fusion": "match", "spatial_layers": 1,
    "attention_radius": 2, "anchors": True, "match_dim": 384, "query_shares": [1.0, 0.5, 0.25],
    "query_size": 224, "heads_say": 0.25, "mask_query": True, "query_background": 0.7, "fine": True,
    "padding": 0.0,
}  # fmt: skip


class Evil:
    """Runs code when it is unpickled."""

    def __reduce__(self):
        return print, ("this must never run",)


def random_model(config: VQLoCConfig | SimilarityConfig) -> VQLoC | SimilarityModel:
    return randomised(make_model(config))


def random_query(config: VQLoCConfig | SimilarityConfig, batch: int = 1) -> torch.Tensor:
    """Normalised query crops [b, scales, 3, q px, q px], as training gives them."""
    shape = (batch, len(config.query_scales), 3, config.query_size, config.query_size)
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def query_of(vectors: torch.Tensor) -> EncodedQuery:
    """Unit vectors [b, s, m, q, q], zero where not on the thing, as a query without background."""
    on_thing = vectors.norm(dim=2) > 0
    return EncodedQuery(vectors, on_thing, torch.zeros_like(on_thing))


def randomised(module: nn.Module) -> nn.Module:
    """Random but lively weights: the head's own start (1e-6) would hide every difference."""
    generator = torch.Generator().manual_seed(0)
    for name, value in module.state_dict().items():
        if not value.is_floating_point():
            continue
        noise = torch.randn(value.shape, generator=generator)
        if value.ndim > 1:
            value.copy_(1.5 * noise / value[0].numel() ** 0.5)
        elif name.endswith(("weight", "running_var", "gamma")):
            value.copy_(1 + 0.1 * noise.abs())
        else:
            value.copy_(0.1 * noise)
    return module.eval()


def drawn(key: str, shape: list[int]) -> torch.Tensor:
    """A tensor of the reference's made-up checkpoint: seeded by its key, scaled by its role."""
    x = np.random.RandomState(zlib.crc32(key.encode())).standard_normal(shape)
    if key.endswith("running_var"):
        x = 1 + 0.1 * np.abs(x)
    elif key.endswith("running_mean"):
        x = 0.05 * x
    elif key.endswith("gamma") or (len(shape) == 1 and key.endswith("weight")):
        x = 1 + 0.05 * x
    elif len(shape) == 1:
        x = 0.02 * x
    else:
        x = x / np.sqrt(np.prod(shape[1:]))
    return torch.from_numpy(x.astype(np.float32))


def vqloc(clip_length: int = 30, positions: bool = False) -> VQLoC:
    config = VQLoCConfig(backbone=TINY, image_size=112, dim=32)
    state = randomised(VQLoC.from_config(config)).state_dict()
    if not positions:
        state["propagation.positions"] = torch.zeros(1, clip_length * 64, 32)
    model = VQLoC.from_config(replace(config, clip_length=clip_length))
    model.load_state_dict(state)
    return model.eval()
