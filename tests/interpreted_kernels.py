"""Run by test_fused.py with TRITON_INTERPRET=1: kernels at many sizes against PyTorch in float32."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import cast
from unittest.mock import patch

import torch
import torch.nn.functional as F
from einops import rearrange
from models import randomised

from lastseen.box import Letterbox
from lastseen.engine import fused, kernels
from lastseen.engine.half import HalfVQLoC, half_precision
from lastseen.model import BackboneConfig, VQLoC, VQLoCConfig
from lastseen.model.encoded_query import EncodedQuery
from lastseen.model.padding import padding_groups
from lastseen.model.propagation import frames_seen

HALF, BRAIN = torch.float16, torch.bfloat16


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found.float(), expected.float(), rtol=0.01, atol=0.01)


def check_norms(columns: int, dtype: torch.dtype, tile: int, warps: int = 1) -> None:
    x, branch = (3 + 2 * torch.randn(3, 6, columns, dtype=dtype) for _ in range(2))
    weight, bias = torch.randn(2, columns, dtype=dtype)
    cases = {
        "both whole": (x, branch),
        "one for all": (x[:1], branch),
        "without the first tokens": (x[:, 2:], branch[:, 2:]),
        "a norm alone": (x, None),
        "frames of clips": (x.view(3, 2, 3, columns), branch.view(3, 2, 3, columns)),
        "not side by side": (x.transpose(0, 1), branch.transpose(0, 1)),
        "two dimensions": (x[0], branch[0]),
        "the same for all rows": (x, branch[0, 0]),
        "the same for all but the first tokens": (x[:, 2:], branch[0, 0].float()),
    }
    for one, other in cases.values():
        expected = one.float() if other is None else one.float() + other.float()
        normed = F.layer_norm(expected, (columns,), weight.float(), bias.float(), 1e-5)
        for keep in (True, False):
            found = kernels.add_norm(one, other, weight, bias, 1e-5, keep, tile, warps)
            same(found[1], normed)
            if keep:
                same(found[0], expected)


def check_bias_leaky(channels: int, dtype: torch.dtype) -> None:
    pictures = torch.randn(3, channels, 5, 7, dtype=dtype).to(memory_format=torch.channels_last)
    bias = torch.randn(channels, dtype=dtype)
    expected = F.leaky_relu(pictures.float() + bias.float()[:, None, None], 0.1)
    same(kernels.bias_leaky(pictures, bias, 0.1), expected)


def check_patch_rows(frame: tuple[int, int], box: Letterbox, dtype: torch.dtype) -> None:
    levels = torch.randint(0, 256, (2, *frame, 3), dtype=torch.uint8)
    patches = box.canvas_height * box.canvas_width // 14**2
    for given in (rearrange(levels, "n h w c -> n c h w"), rearrange(levels, "n h w c -> n c h w").half()):
        for layout in (given, given.contiguous()):
            found, expected = torch.zeros(2, 5 + patches, 592, dtype=dtype), torch.zeros(2, patches, 592)
            fused.patch_rows(layout, box, 0.3, 14, expected)
            kernels.patch_rows(layout, box, 0.3, 14, found[:, 5:])
            same(found[:, 5:], expected)
            assert not found[:, :5].any()
    if dtype == HALF and frame == (box.canvas_height, box.canvas_width):
        assert torch.equal(found[:, 5:].float(), expected), "levels are exact in halves"


def check_local_attention(space: int, dim: int, radius: int, lengths: torch.Tensor | None) -> None:
    qkv = torch.randn(2, 5, space, 3 * dim, dtype=HALF)
    seen = frames_seen(5, radius, lengths, torch.device("cpu"))
    same(kernels.local_attention(qkv, seen, 8), fused.local_attention(qkv.float(), seen, 8))


def check_attention(length: int, dim: int, heads: int, shape: tuple[int, int, int, int]) -> None:
    """Far-off logits too, of keys that are in the small block or not."""
    qkv = torch.randn(2, length, 3 * dim)
    qkv[:, :: length // 3] *= 5
    qkv = qkv.to(HALF)
    same(kernels.attention(qkv, heads, shape), fused._attention(qkv.float(), heads))
    bias = torch.randint(1, 13, (length,)).log().to(HALF)
    expected = fused._attention(qkv.float(), heads, bias.float().expand(length, -1))
    same(kernels.attention(qkv, heads, shape, bias), expected)


def check_into_tokens(length: int) -> None:
    """What attention mixes is added to the tokens."""
    tokens, qkv = torch.randn(2, length, 64, dtype=HALF), torch.randn(2, length, 192, dtype=HALF)
    weight = torch.randn(64, 64, dtype=HALF) / 8
    expected = fused.attended(tokens.float(), qkv.float(), 2, weight.float())
    with swapped(set()):
        same(fused.attended(tokens, qkv, 2, weight), expected)


@torch.inference_mode()
def check_a_model() -> None:
    """A half-precision model as on a GPU, against the exact one: everything is wired as it is meant."""
    backbone = BackboneConfig(dim=32, depth=2, heads=2, registers=2)
    config = VQLoCConfig(backbone=backbone, dim=32, image_size=112)
    exact = cast(VQLoC, randomised(VQLoC.from_config(config)))
    made = cast(HalfVQLoC, half_precision(exact, HALF))
    frames = torch.randint(0, 256, (5, 40, 60, 3), dtype=torch.uint8)
    box = exact.letterbox(60, 40)
    query = EncodedQuery(torch.randn(1, config.dim, config.side, config.side))
    expected = exact.encode_frames(frames)
    used: set[str] = set()
    with swapped(used):
        features = made.encode_features(made.backbone.of_frames(frames, box, config.padding))
        groups = padding_groups(box, 14)
        assert groups is not None
        grouped = made.encode_features(made.backbone.of_frames(frames, box, config.padding, groups))
        said = made.localize_clip(expected.half(), query.to(dtype=HALF))
    assert used == {"add_norm", "attention", "bias_leaky", "patch_rows", "local_attention"}, used
    assert F.cosine_similarity(features.float(), expected, dim=1).min() > 0.999
    expected_grouped = exact.encode_frames(frames, group_padding=True)
    assert F.cosine_similarity(grouped.float(), expected_grouped, dim=1).min() > 0.999
    wanted = exact.localize_clip(expected, query)
    torch.testing.assert_close(said.boxes.float(), wanted.boxes, rtol=0.05, atol=0.05)
    torch.testing.assert_close(said.logits.float(), wanted.logits, rtol=0.05, atol=0.05)


@contextmanager
def swapped(used: set[str]) -> Iterator[None]:
    """`fused` takes the kernels for halves, though they are on the CPU; `used` gets their names."""

    class Noted:
        def __getattr__(self, name: str) -> object:
            used.add(name)
            return getattr(kernels, name)

    with (
        patch.object(fused, "_kernels_for", lambda x: Noted() if x.dtype == HALF else None),
        patch.object(fused, "_on", lambda x: nullcontext()),
    ):
        yield


torch.manual_seed(0)
torch.set_num_threads(1)
fused.compare(kernels, torch.device("cpu"))  # in bfloat16 the interpreter has no products
for columns in (8, 100, 768, 2048):
    check_norms(columns, HALF, 2048)
check_norms(384, BRAIN, 2048)
check_norms(384, HALF, 512, 4)
check_bias_leaky(12, HALF)
check_bias_leaky(256, BRAIN)
check_patch_rows((28, 42), Letterbox(42, 28, 42, 28), HALF)
check_patch_rows((16, 28), Letterbox.square(35, 20, 28), HALF)
check_patch_rows((28, 16), Letterbox.square(20, 35, 28), BRAIN)
check_local_attention(64, 256, 2, None)
check_local_attention(128, 64, 1, None)
check_local_attention(16, 64, 4, torch.tensor([5, 2]))
check_attention(257, 128, 2, (128, 128, 8, 2))
check_attention(133, 64, 4, (64, 128, 4, 2))
check_attention(128, 64, 2, (128, 64, 4, 3))
check_attention(100, 32, 2, (64, 32, 4, 2))
check_attention(5, 128, 1, (128, 128, 8, 2))
for length in (128, 133):
    check_into_tokens(length)
check_a_model()
