"""Output files: never over an input, whole or not there, and no answer is lost for the sake of one."""

import json
import os
import resource
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from evidence import answer_of
from PIL import Image
from scenes import box_at, quick_localizer, thing, write_scene
from videos import numbers, pictures

from lastseen.errors import OutputError
from lastseen.files import check_apart, write_whole
from lastseen.formats import write_answer
from lastseen.localizer import Localizer
from lastseen.masks import add_mobile_sam
from lastseen.render import (
    write_cutout,
    write_figure,
    write_filmstrip,
    write_picture,
    write_report,
    write_video,
)
from lastseen.render.canvas import save_picture
from lastseen.track import ResponseTrack
from lastseen.video import Video, VideoWriter

PLACE = (100, 50)
pytestmark = pytest.mark.usefixtures("one_thread", "remembered")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("made")
    write_scene(root / "walk.mp4", [None] * 3 + [PLACE] * 5 + [None] * 3)
    Image.fromarray(thing()).save(root / "thing.png")
    return root


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return quick_localizer()


@pytest.fixture
def folder(made, tmp_path, monkeypatch) -> Path:
    """A copy of the files for each test: what fails here destroys them."""
    shutil.copytree(made, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def never_searched(monkeypatch):
    def from_pretrained(*_, **__):
        raise AssertionError("the model was loaded before the outputs were checked")

    monkeypatch.setattr(Localizer, "from_pretrained", from_pretrained)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "Traceback" not in text


# --- an output is never an input ---


@pytest.fixture
def aliases(folder):
    """Other names of the files, which have the endings of outputs."""
    (folder / "sub").mkdir()
    os.link("thing.png", "hard.jpg")
    Path("soft.png").symlink_to("thing.png")
    Path("film.mp4").symlink_to("walk.mp4")
    for name in ("page.html", "a.json", "strip.webp"):
        os.link("walk.mp4", name)
    return folder


@pytest.mark.parametrize(
    ("option", "out"),
    [
        ("--picture", "thing.png"),
        ("--picture", "./sub/../thing.png"),
        ("--picture", "hard.jpg"),
        ("--figure", "soft.png"),
        ("--filmstrip", "strip.webp"),
        ("--video", "walk.mp4"),
        ("--cutout", "film.mp4"),
        ("--report", "page.html"),
        ("--save", "a.json"),
    ],
)
def test_find_refuses_an_output_that_is_an_input_before_it_searches(
    run, aliases, never_searched, option, out
):
    before = contents(aliases)
    status, said, err = run("find", "thing.png", "walk.mp4", option, out, "-q")
    assert (status, said) == (2, "") and one_line(err)
    assert f"{option} {Path(out)} is the same file as the input " in err and "choose another name" in err
    assert contents(aliases) == before


@pytest.mark.parametrize(
    "words",
    [
        ["--picture", "o.jpg", "--filmstrip", "sub/../o.jpg"],
        ["--video", "o.mp4", "--cutout", "o.mp4"],
        ["--save", "o.csv", "--save", "link.csv"],
    ],
)
def test_two_outputs_in_one_file_are_refused(run, folder, never_searched, words):
    (folder / "sub").mkdir()
    Path("link.csv").symlink_to("o.csv")
    status, said, err = run("find", "thing.png", "walk.mp4", *words, "-q")
    assert (status, said) == (2, "") and one_line(err) and f"is the same file as {words[0]} o." in err


def test_other_inputs_are_safe_too(run, folder, never_searched):
    Path("model").mkdir()
    Path("model/rule.json").write_text("{}")
    before = contents(folder)
    for words in (
        ["find", "--thing", "a=thing.png", "walk.mp4", "--figure", "thing.png"],
        ["find", "thing.png", "walk.mp4", "--weights", "model", "--save", "model/rule.json"],
        ["find", "walk.mp4", "--at", "1", "--box", "0,0,20,20", "--cutout", "walk.mp4"],
        ["affinity", "thing.png", "walk.mp4", "--at", "1", "--out", "thing.png"],
    ):
        status, said, err = run(*words)
        assert (status, said) == (2, "") and one_line(err) and "is the same file as the input" in err, words
    assert contents(folder) == before


def test_the_videos_of_an_index_are_safe(run, folder, localizer, monkeypatch):
    """Also one that is not searched, and under another name."""
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    shutil.copy("walk.mp4", "other.mp4")
    with Path("other.mp4").open("ab") as file:
        file.write(b"\0\0\0\x08free")  # another content
    assert run("index", "walk.mp4", "other.mp4", "--index", "index", "-q")[0] == 0
    os.link("walk.mp4", "linked.mp4")
    before = contents(folder)
    asked = ["find", "thing.png", "--index", "index", "--in", "walk.mp4", "-q"]
    for words in (["--video", "walk.mp4"], ["--cutout", "linked.mp4"], ["--video", "other.mp4"]):
        status, said, err = run(*asked, *words)
        assert (status, said) == (2, "") and one_line(err) and "is the same file as the input" in err, words
    assert {name: data for name, data in contents(folder).items() if name in before} == before


def test_other_commands_refuse_it_too(run, folder, never_searched):
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)
    answer = answer_of(Video(folder / "walk.mp4"), [track])
    write_answer("answer.json", answer)
    os.link("walk.mp4", "walk.csv")
    Path("vq.json").write_text("{}")
    for name in ("rule.json", "out.json.partial"):
        os.link("vq.json", name)
    Path("scans").mkdir()
    os.link("thing.png", "scans/texture.png")
    os.link("thing.png", "checkpoint.pt")
    before = contents(folder)
    calibrated = ["calibrate", ".", "--annotations", "vq.json", "--videos", "."]
    evaluated = ["evaluate", "--annotations", "vq.json", "--videos", "."]
    for words in (
        ["export", "answer.json", "answer.json"],
        ["export", "answer.json", "walk.csv"],
        ["export", "answer.json", "walk.csv", "--video", "walk.mp4"],
        ["synth", "scans/texture.png", "--preview", "--scans", "scans"],
        calibrated,
    ):
        status, said, err = run(*words)
        assert (status, said) == (2, "") and one_line(err) and "is the same file as the input" in err, words
    status, _, err = run("convert", "checkpoint.pt", "checkpoint.pt")
    assert status == 2 and one_line(err) and "is a file: choose the name of a new folder" in err
    for out in ("vq.json", "out.json"):
        status, _, err = run(*evaluated, "--out", out)
        assert status == 2 and one_line(err), out
    assert contents(folder) == before


def test_evaluate_refuses_its_annotations_as_output(run, tmp_path, monkeypatch, never_searched):
    """Nor does it advise to remove them."""
    monkeypatch.chdir(tmp_path)
    Path("vq.json").write_text(json.dumps({"version": "1", "videos": []}))
    status, _, err = run("evaluate", "--annotations", "vq.json", "--videos", ".", "--out", "vq.json")
    assert status == 2 and one_line(err)
    assert "--out vq.json is the same file as the input vq.json; choose another name" in err


def test_models_add_refuses_its_own_file_as_a_source(tmp_path, monkeypatch):
    monkeypatch.setenv("LASTSEEN_MODELS", str(tmp_path))
    (tmp_path / "mobile-sam").mkdir()
    (tmp_path / "mobile-sam" / "model.safetensors").write_bytes(b"mine")
    with pytest.raises(OutputError, match="is the same file as the input"):
        add_mobile_sam(tmp_path / "mobile-sam" / "model.safetensors")
    assert (tmp_path / "mobile-sam" / "model.safetensors").read_bytes() == b"mine"


def test_the_functions_that_write_refuse_the_answers_own_video(aliases):
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)
    answer = answer_of(Video(aliases / "walk.mp4"), [track])
    before = contents(aliases)
    for write, name in (
        (write_picture, "strip.webp"),
        (write_figure, "strip.webp"),
        (write_filmstrip, "strip.webp"),
        (write_report, "page.html"),
        (write_video, "walk.mp4"),
        (write_cutout, "film.mp4"),
        (write_answer, "a.json"),
    ):
        with pytest.raises(OutputError, match="is the same file as the input"):
            write(name, answer)
    assert contents(aliases) == before


def test_files_that_are_not_there_yet_are_told_apart_by_their_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    check_apart([("", "a.jpg"), ("", "sub/a.jpg")], ["b.jpg", "rtsp://camera/a.jpg"])
    with pytest.raises(OutputError, match=r"is the same file as a\.jpg"):
        check_apart([("", "a.jpg"), ("", tmp_path / "sub" / ".." / "a.jpg")])


# --- a full disk ---


@contextmanager
def room_for(size: int):
    """Files end at this size, as on a disk that is full: the rest of a write is lost."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def film(path: Path) -> None:
    with VideoWriter(path, 64, 48, fps=5) as writer:
        for image in pictures(40):
            writer.write(image)


NOISE = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)


# x264 does not promise the same bytes twice: a first frame was once a byte longer than before.
FILM_MARGIN = 64


@pytest.mark.parametrize(
    ("name", "write", "margin"),
    [
        ("o.jpg", lambda path: save_picture(path, NOISE), 0),
        ("o.png", lambda path: save_picture(path, NOISE), 0),
        ("o.webp", lambda path: save_picture(path, NOISE), 0),
        ("o.json", lambda path: write_whole(path, bytes(50_000)), 0),
        ("o.mp4", film, FILM_MARGIN),
    ],
)
def test_what_does_not_fit_is_told_and_what_was_there_stays(tmp_path, name, write, margin):
    write(tmp_path / name)
    whole = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(b"old")
    for room in (len(whole) - 1 - margin, len(whole) - 500, len(whole) // 2, 100):
        with room_for(room), pytest.raises(OutputError) as caught:
            write(tmp_path / name)
        assert name in str(caught.value) and "\n" not in str(caught.value)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"old"}, room
    with room_for(len(whole) + margin):
        write(tmp_path / name)
    if write is film:
        assert numbers(Video(tmp_path / name)) == list(range(40))
    else:
        assert (tmp_path / name).read_bytes() == whole


@pytest.fixture
def small_disk(tmp_path):
    """48 KB that are really full when they are."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(place)]
    if sys.platform != "linux" or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a file system of its own needs root on Linux")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_every_way_that_a_disk_fills_up_is_told(small_disk):
    """Whatever is left, from nothing to almost enough."""
    save_picture(small_disk / "o.jpg", NOISE)
    size = (small_disk / "o.jpg").stat().st_size
    (small_disk / "o.jpg").unlink()
    pages = -(-size // 4096)
    for left in range(pages):
        (small_disk / "filler").write_bytes(bytes(4096 * (12 - left)))
        with pytest.raises(OutputError, match=r"o\.jpg cannot be written: No space left"):
            save_picture(small_disk / "o.jpg", NOISE)
        assert [path.name for path in small_disk.iterdir()] == ["filler"]


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_failed_output_costs_neither_the_answer_nor_the_other_outputs(
    run, folder, localizer, monkeypatch, words
):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    with room_for(4000):
        status, said, err = run(
            "find", "thing.png", "walk.mp4", "-q", *words,
            "--picture", "o.jpg", "--cutout", "c.mp4", "--save", "o.csv", "--save", "o.vtt",
        )  # fmt: skip
    assert status == 2
    assert json.loads(said)["found"] if words else said.startswith("Last seen from 0:00.")
    assert sorted(line.split(" ")[1] for line in err.splitlines()) == ["c.mp4:", "o.jpg"]
    assert all(line.startswith("lastseen: ") for line in err.splitlines())
    assert sorted(path.name for path in folder.iterdir()) == ["o.csv", "o.vtt", "thing.png", "walk.mp4"]


def test_data_files_of_the_index_are_written_without_the_video(run, folder, localizer, monkeypatch):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    where = ("--index", "index", "-q")
    assert run("index", "walk.mp4", *where)[0] == 0
    asked = ("find", "thing.png", *where, "--picture", "o.jpg", "--figure", "f.png", "--save")
    assert run(*asked, "with.json")[0] == 0
    Path("walk.mp4").unlink()
    Path("o.jpg").unlink()
    status, said, err = run(*asked, "without.json")
    assert status == 2 and "in walk.mp4 from" in said
    assert one_line(err) and "walk.mp4 is gone; put it back" in err
    kept, again = (json.loads(Path(f"{name}.json").read_text()) for name in ("with", "without"))
    assert again["found"] and kept.keys() == again.keys() and not Path("o.jpg").exists()


def test_outputs_are_written_even_if_nobody_reads_the_answer(folder):
    """Its own process, whose output is closed."""
    code = (
        "import sys; sys.path[:0] = sys.argv[1].split(':')\n"
        "from scenes import quick_localizer\n"
        "from lastseen.cli import main\n"
        "from lastseen.localizer import Localizer\n"
        "localizer = quick_localizer()\n"
        "Localizer.from_pretrained = lambda *_, **__: localizer\n"
        "sys.argv = ['lastseen', 'find', 'thing.png', 'walk.mp4', '-q', '--save', 'o.csv']\n"
        "main()\n"
    )
    command = [sys.executable, "-c", code, f"{Path(__file__).parent.parent}"]
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, timeout=300)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")
    assert Path("o.csv").read_text().startswith("video,track")
    if Path("/dev/full").exists():
        Path("o.csv").unlink()
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert done.returncode == 2 and one_line(done.stderr) and "No space left" in done.stderr
        assert Path("o.csv").exists()
