"""What is computed in one pass is what was computed in several, by PyTorch and by Triton."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from lastseen.model import fused

pytestmark = pytest.mark.usefixtures("one_thread")


def lively(module: nn.Module) -> nn.Module:
    for value in module.parameters():
        nn.init.normal_(value, std=0.5)
    return module.requires_grad_(False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_add_and_norm_are_an_addition_and_a_norm(dtype):
    norm = lively(nn.LayerNorm(40, eps=1e-6)).to(dtype)
    for x in (torch.randn(3, 7, 40, dtype=dtype), torch.randn(1, 7, 40, dtype=dtype)):
        branch = torch.randn(3, 7, 40, dtype=dtype)
        total, normed = fused.add_norm(x, branch, norm)
        assert torch.equal(total, x + branch)
        assert torch.equal(normed, F.layer_norm(x + branch, (40,), norm.weight, norm.bias, 1e-6))
        assert torch.equal(fused.norm_of(x, branch, norm), normed)
    assert torch.equal(fused.norm_of(total, None, norm), normed)


def test_without_a_gpu_pytorch_computes():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert fused.problem() is not None


def test_kernels_give_what_pytorch_gives():
    """In Triton's interpreter, which needs no GPU."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no Triton here")
    here = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, here / "interpreted_kernels.py"],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(here.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
