"""Shared by all tests."""

import sys

import pytest
import torch

from lastseen.cli import main
from lastseen.doctor import SETTINGS


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory):
    """Whoever runs the tests may have an index and settings of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.delenv(name, raising=False)
        for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


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


def pytest_collection_modifyitems(items):
    """The longest test first, so that no process waits for it in the end."""
    items.sort(key=lambda item: item.path.name != "test_wheel.py")
