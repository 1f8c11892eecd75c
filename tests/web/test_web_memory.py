"""What a job has freed does not stay with the server."""

import subprocess
import sys

import pytest

PROGRAM = """
import numpy as np
from lastseen.web.memory import give_back

def held_mib():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024

blocks = [np.ones(8000) for _ in range(4000)]  # 250 MiB in pieces that are not given back one by one
del blocks[:-1]  # the last one is at the top of the heap
before = held_mib()
give_back()
print(before - held_mib())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and glibc")
def test_memory_in_small_pieces_is_given_back_to_the_system():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 150
