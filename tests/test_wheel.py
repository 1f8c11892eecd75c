"""The product as it is installed: a wheel, an empty folder, the demo."""

import email
import json
import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

import lastseen
from lastseen.evaluate.metrics import compare
from lastseen.track import ResponseTrack

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """A fresh environment with the wheel in it; libraries are shared with this one to stay offline."""
    tmp = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp.glob("lastseen-*.whl")
    venv.create(tmp / "venv", with_pip=False)
    python = tmp / "venv" / "bin" / "python"
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    subprocess.run(install, check=True, capture_output=True)
    return python.parent


def test_the_wheel_is_typed_and_small_enough_for_package_indexes(installed):
    (wheel,) = installed.parents[1].glob("lastseen-*.whl")
    assert wheel.stat().st_size < 100e6
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {"lastseen/py.typed", "lastseen_synth/py.typed"} <= set(names)
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        said = email.message_from_string(archive.read(metadata).decode())
    assert said["Version"] == lastseen.__version__
    assert said["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in said.get_all("Classifier")


def test_the_installed_wheel_finds_the_demo_from_an_empty_folder(installed, tmp_path):
    clean = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "LASTSEEN_ENGINE")}
    clean["XDG_CACHE_HOME"] = str(
        installed.parents[1] / "cache"
    )  # networks are converted, as on a new machine
    where = [str(installed / "python"), "-c", "import lastseen; print(lastseen.__file__)"]
    package = subprocess.run(where, check=True, capture_output=True, text=True, cwd=tmp_path, env=clean)
    assets = Path(package.stdout.strip()).parent / "assets"
    assert str(installed.parent) in str(assets)  # not the checkout
    command = [str(installed / "lastseen"), "find", str(assets / "demo_query.jpg"), str(assets / "demo.mp4")]
    done = subprocess.run(
        [*command, "--before", "35", "--json", "--picture", "answer.jpg", "--video", "answer.mp4"],
        capture_output=True, text=True, cwd=tmp_path, env=clean, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["answer.jpg", "answer.mp4"]
    answer = ResponseTrack.from_dict(json.loads(done.stdout)["tracks"][-1])
    truth = ResponseTrack.from_json((assets / "demo_truth.json").read_text())
    overlap = compare(truth, answer)
    assert overlap.tiou > 0.8
    assert overlap.stiou >= 0.5
