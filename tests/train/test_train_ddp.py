"""Two processes on one batch take the same path as one."""

import os
import socket
import subprocess
import sys

import torch
from safetensors.torch import load_file

# Without dropout, since each process draws its own. In double precision: where a gradient is zero but for
# rounding (a bias before a batch norm), AdamW turns the rounding into a step of full size.
RUN = """
import sys, torch
torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
from dataclasses import replace
from lastseen.train.loop import train
from lastseen.train.recipes import tiny
config = tiny()
optimiser = replace(config.optimiser, warmup_steps=1)
config = replace(config, batch=4, steps=3, dropout=0.0, optimiser=optimiser, log_every=1, checkpoint_every=1)
train(replace(config, keep=3), sys.argv[1], device="cpu")
"""


def start(out, world):
    command = [sys.executable, "-c", RUN, out]
    env = {**os.environ, "OMP_NUM_THREADS": "1", **world}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


def weights(out, step):
    return load_file(out / "checkpoints" / f"{step:08d}" / "model.safetensors")


def test_two_processes_end_where_one_does(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    # What torchrun sets.
    world = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [start(tmp_path / "one", {})]
    for rank in ("0", "1"):
        processes.append(start(tmp_path / "two", {**world, "RANK": rank, "LOCAL_RANK": rank}))
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0], said
    assert said[1].count("step ") == 3
    assert said[2].count("step ") == 0  # only the first one speaks
    before, one, two = (weights(tmp_path / name, step) for name, step in (("one", 1), ("one", 3), ("two", 3)))
    moved = [(one[name] - before[name]).abs().max() for name in one if one[name].is_floating_point()]
    assert max(moved) > 1e-3
    for name in one:
        assert torch.allclose(one[name], two[name], rtol=1e-7, atol=1e-7), name


def test_the_norms_of_one_process_are_torchs_own():
    """What the shared norm computes with a world of one, against the layer it replaces."""
    code = """
import torch, torch.distributed as dist, tempfile
from lastseen.train.distributed import with_shared_norms
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
torch.manual_seed(0)
plain = torch.nn.Sequential(torch.nn.BatchNorm2d(3))
torch.nn.init.normal_(plain[0].weight)
shared = with_shared_norms(torch.nn.Sequential(torch.nn.BatchNorm2d(3)))
shared.load_state_dict(plain.state_dict())
pictures = torch.randn(4, 3, 5, 5) * 2 + 7
outs = []
for norm in (plain, shared):
    x = pictures.clone().requires_grad_()
    norm(x).square().sum().backward()
    layer = norm[0]
    outs.append((x.grad, layer.weight.grad, layer.running_mean, layer.running_var, norm(x), norm.eval()(x)))
for ours, theirs in zip(*outs):
    assert torch.allclose(ours, theirs, atol=1e-3), (ours, theirs)
assert type(shared[0]) is not type(plain[0])
"""
    subprocess.run([sys.executable, "-c", code], check=True)
