"""Run by test_fused.py with TRITON_INTERPRET=1: kernels at many sizes against PyTorch in float32."""

import torch
import torch.nn.functional as F
from einops import rearrange

from lastseen.box import Letterbox
from lastseen.model import fused, kernels
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


torch.manual_seed(0)
torch.set_num_threads(1)
fused.compare(kernels, torch.device("cpu"))
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
check_local_attention(16, 64, 4, torch.tensor([5, 2]))
