"""Rendering in several processes: what goes wrong in one is one clear line."""

from functools import partial

import pytest
import torch

from lastseen.errors import SynthError
from lastseen_synth.assets import Library
from lastseen_synth.parallel import run_jobs


def mark(folder, library, number):
    assert isinstance(library, Library)
    (folder / str(number)).touch()


def run_out(folder, library, number):
    if number == 3:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.90 GiB.")
    mark(folder, library, number)


def test_every_job_is_done_once_in_other_processes(tmp_path):
    done = run_jobs(partial(mark, tmp_path), range(5), Library, workers=2)
    assert sorted(done) == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "4"]


def test_too_little_gpu_memory_is_told_with_what_to_do(tmp_path):
    with pytest.raises(SynthError, match=r"^the GPU's memory is too small for 2 processes .* use fewer$"):
        list(run_jobs(partial(run_out, tmp_path), range(5), Library, workers=2))
