"""Rendering in several processes: every job once, and a failure of one is one clear line."""

import time
from functools import partial

import pytest
import torch

from lastseen.errors import SynthError
from lastseen_synth.assets import AssetLibrary
from lastseen_synth.parallel import run_jobs

LAST = 5


def mark_or_run_out(folder, library, number):
    """Marks its number; the last job waits until all others were reported, then fails."""
    assert isinstance(library, AssetLibrary)
    if number < LAST:
        (folder / str(number)).touch(exist_ok=False)
        return
    while not (folder / "reported").exists():
        time.sleep(0.01)
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.90 GiB.")


def test_every_job_is_done_once_and_too_little_gpu_memory_is_told_with_what_to_do(tmp_path):
    reported = []
    with pytest.raises(SynthError, match=r"^the GPU's memory is too small for 2 processes .* use fewer$"):
        for number in run_jobs(partial(mark_or_run_out, tmp_path), range(LAST + 1), AssetLibrary, workers=2):
            reported.append(number)
            assert (tmp_path / str(number)).exists()
            if len(reported) == LAST:
                (tmp_path / "reported").touch()
    assert sorted(reported) == [0, 1, 2, 3, 4]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1", "2", "3", "4", "reported"]
