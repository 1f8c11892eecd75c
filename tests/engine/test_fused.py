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

from lastseen.engine import fused
from lastseen.engine.half_parts import (
    ConvLeaky,
    HalfBlock,
    HalfSpatialLayer,
    HalfTemporalLayer,
    biases_of,
)
from lastseen.model.backbone import Block
from lastseen.model.correspondence import SpatialLayer
from lastseen.model.propagation import TemporalLayer, frames_seen

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
    one = branch[0, 0]
    assert torch.equal(fused.norm_of(total, one, norm), norm(total + one))


@pytest.mark.parametrize("lengths", [None, torch.tensor([6, 3])])
@pytest.mark.parametrize("radius", [1, 2, 5])
def test_a_quick_temporal_layer_is_a_temporal_layer(radius, lengths):
    layer = lively(TemporalLayer(32, 4, 64))
    tokens, seen = torch.randn(2, 6, 9, 32), frames_seen(6, radius, lengths, torch.device("cpu"))
    expected = layer(tokens, radius, seen)
    torch.testing.assert_close(HalfTemporalLayer(layer)(tokens, radius, seen), expected)


def test_a_quick_spatial_layer_is_a_spatial_layer():
    layer = lively(SpatialLayer(32, 4, 64))
    tokens, query = torch.randn(2, 12, 32), torch.randn(2, 5, 32)
    made = HalfSpatialLayer(layer)
    torch.testing.assert_close(made.attend_to_frame(tokens), layer.attend_to_frame(tokens))
    torch.testing.assert_close(made.attend_to_query(tokens, query), layer.attend_to_query(tokens, query))


def test_halves_of_a_convolution_give_its_halves():
    whole = lively(ConvLeaky(nn.Conv2d(6, 8, 3, padding=1), 0.1))
    pictures = torch.randn(2, 6, 5, 4)
    expected = F.leaky_relu(whole.conv(pictures), 0.1)
    torch.testing.assert_close(whole(pictures), expected)
    torch.testing.assert_close(torch.cat([half(pictures) for half in whole.halves()], 1), expected)


@pytest.mark.parametrize("ffn", ["mlp", "swiglu"])
def test_a_quick_block_is_a_block_without_the_biases_of_two_products(ffn):
    block, tokens = lively(Block(32, 2, ffn)), torch.randn(2, 5, 32)
    first, second = biases_of(block)
    owed = torch.randn(32)  # by blocks before it
    normed = block.norm1(tokens + owed)
    # On the CPU GELU is exact there too.
    found = HalfBlock(block)(tokens.clone(), normed, owed + first) + owed + first + second
    torch.testing.assert_close(found, block(tokens + owed), rtol=1e-4, atol=1e-4)


@torch.inference_mode()
def test_blocks_compile_to_one_graph():
    blocks = [HalfBlock(lively(Block(32, 2, "mlp"))) for _ in range(2)]
    tokens, normed, owed, graphs = torch.randn(2, 5, 32), torch.randn(2, 5, 32), torch.randn(2, 32), []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    for block, biases in zip(blocks, owed):
        expected = block(tokens, normed, biases)
        block.compile(dynamic=False, fullgraph=True, backend=backend)
        torch.testing.assert_close(block(tokens, normed, biases), expected)
    assert len(graphs) == 1
    torch.compiler.reset()


def test_without_a_gpu_pytorch_computes():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert fused.problem() is not None


@pytest.mark.parametrize("dtype", fused.HALVES)
def test_with_a_gpu_kernels_compute(dtype):
    if not torch.cuda.is_available() or importlib.util.find_spec("triton") is None:
        pytest.skip("no GPU or no Triton here")
    assert fused.problem(dtype=dtype) is None


def test_kernels_give_what_pytorch_gives():
    """In Triton's interpreter, which needs no GPU."""
    if importlib.util.find_spec("triton") is None:
        pytest.skip("no Triton here")
    here = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, here / "interpreted_kernels.py"],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(here.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
