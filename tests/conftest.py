"""Shared by all tests."""

import sys

import pytest
import torch

from lastseen.cli import main


@pytest.fixture(scope="module")
def one_thread():
    """For many small tensors: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run(monkeypatch, capsys):
    """Call `lastseen ...` in this process: (exit status, stdout, stderr)."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["lastseen", *map(str, arguments)])
        with pytest.raises(SystemExit) as done:
            main()
        printed = capsys.readouterr()
        return done.value.code or 0, printed.out, printed.err

    return call
