"""Two processes on one batch take the same path as one."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from lastseen.train.distributed import with_shared_norms
from lastseen.train.loop import train
from lastseen.train.recipes import tiny

pytestmark = pytest.mark.usefixtures("one_thread")

# Without dropout, since each process draws its own. In double precision: where a gradient is zero but for
# rounding (a bias before a batch norm), AdamW turns the rounding into a step of full size.
RUN = """
import sys, torch
torch.set_num_threads(1)
from test_train_ddp import train_in_double
train_in_double(sys.argv[1])
"""


def train_in_double(out):
    config = tiny()
    optimiser = replace(config.optimiser, warmup_steps=1)
    config = replace(config, batch=4, steps=3, dropout=0.0, optimiser=optimiser, log_every=1)
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        train(replace(config, checkpoint_every=1, keep=3), out, device="cpu")
    finally:
        torch.set_default_dtype(default)


def start(out, world):
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **world}
    command = [sys.executable, "-c", RUN, out]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def weights(out, step):
    return load_file(out / "checkpoints" / f"{step:08d}" / "model.safetensors")


def test_two_processes_end_where_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # What torchrun sets.
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [start(tmp_path / "two", {**world, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")]
    train_in_double(tmp_path / "one")
    said = [process.communicate(timeout=300)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    assert said[0].count("step ") == 3
    assert said[1].count("step ") == 0  # only the first process reports
    before, one, two = (weights(tmp_path / name, step) for name, step in (("one", 1), ("one", 3), ("two", 3)))
    moved = [(one[name] - before[name]).abs().max() for name in one if one[name].is_floating_point()]
    assert max(moved) > 1e-3
    for name in one:
        assert torch.allclose(one[name], two[name], rtol=1e-7, atol=1e-7), name


def test_the_norms_of_one_process_are_torchs_own(tmp_path):
    """What the shared norm computes with a world of one, against the layer it replaces."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.BatchNorm2d(3))
    nn.init.normal_(plain[0].weight)
    shared = with_shared_norms(nn.Sequential(nn.BatchNorm2d(3)))
    shared.load_state_dict(plain.state_dict())
    assert type(shared[0]) is not type(plain[0])
    pictures = torch.randn(4, 3, 5, 5) * 2 + 7
    results = []
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        for norm in (plain, shared):
            x = pictures.clone().requires_grad_()
            norm(x).square().sum().backward()
            layer = norm[0]
            running = layer.running_mean, layer.running_var
            results.append((x.grad, layer.weight.grad, *running, norm(x), norm.eval()(x)))
    finally:
        dist.destroy_process_group()
    for ours, theirs in zip(*results):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-3)
