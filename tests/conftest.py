"""Shared by all tests."""

import hashlib
import sys
from contextlib import contextmanager

import pytest
import torch
from browser import NO_BROWSER

from lastseen.cli import main
from lastseen.doctor import SETTINGS
from lastseen.model import Backbone


@pytest.fixture(scope="session", autouse=True)
def nobodys_home(tmp_path_factory):
    """Whoever runs the tests may have an index and settings of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for name in SETTINGS:
            patch.delenv(name, raising=False)
        for name in ("XDG_DATA_HOME", "LOCALAPPDATA"):
            patch.setenv(name, str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_engine():
    """The same engine on every machine: OpenVINO would convert a network for each size of video."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lastseen.engine.why_no_openvino", lambda: "tests name it where they mean it")
        patch.setenv("LASTSEEN_ENGINE", "torch-fp32-grouped")  # of other processes
        yield


@pytest.fixture(scope="module")
def one_thread():
    """For many small tensors: threads would only wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def features_by_picture():
    return {}


@pytest.fixture
def remembered(features_by_picture):
    """A backbone encodes a picture only once per session, whichever test or command asks for it.

    A picture is told by its pixels and the backbone by its weights, so any difference is computed anew.
    """
    with remembering(features_by_picture):
        yield


@pytest.fixture(scope="module")
def remembered_in_module(features_by_picture):
    """As `remembered`, for what lives longer than a test: a server."""
    with remembering(features_by_picture):
        yield


@contextmanager
def remembering(memory):
    real = Backbone.forward

    def forward(self, pictures, groups=None):
        if self.training or pictures.requires_grad or pictures.device.type != "cpu":
            return real(self, pictures, groups)
        if not hasattr(self, "digest_for_tests"):
            self.digest_for_tests = (
                repr(self.config),
                digest(torch.stack([p.sum() for p in self.parameters()])),
            )
        made_by = self.digest_for_tests, groups, tuple(pictures.shape[1:])
        keys = [(*made_by, digest(picture)) for picture in pictures]
        new = {key: picture for key, picture in zip(keys, pictures) if key not in memory}
        if new:
            memory.update(zip(new, real(self, torch.stack(list(new.values())), groups)))
        return torch.stack([memory[key] for key in keys])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Backbone, "forward", forward)
        yield


def digest(values):
    return hashlib.sha1(values.detach().contiguous().numpy().tobytes()).digest()


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


def pytest_terminal_summary(terminalreporter):
    """One line in the end, or whoever has no browser would think that the page was tested.

    Here, not in tests/web: with several processes the one that reports does not look into folders.
    """
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NO_BROWSER in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests of the page were skipped: {NO_BROWSER}")
