"""lastseen index and find without a video, as a user types them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from scenes import box_at, quick_localizer, texture, thing, write_scene

from lastseen.formats.answer_json import parse_answer
from lastseen.index import Index
from lastseen.index.answers import parse_moment
from lastseen.localizer import Localizer
from lastseen.video import Video

HERE, THERE = (40, 60), (210, 90)
DATE = "2026-11-14 10:00"
DATES = ("name", "recorded_at", "date_doubtful", "date_source", "seen_at", "looked_again")
pytestmark = pytest.mark.usefixtures("one_thread", "remembered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("cli")
    write_scene(root / "walk.mp4", [None] * 3 + [HERE] * 5 + [None] * 3)
    write_scene(root / "later.mp4", [THERE] * 5 + [None] * 4)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(texture(99, 64, 64, 4)).save(root / "other.png")
    return root


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return quick_localizer()


@pytest.fixture(autouse=True)
def quick(monkeypatch, folder, localizer):
    """The real backbone at half the resolution; the index beside the videos, and work there."""
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
    monkeypatch.setenv("LASTSEEN_INDEX", str(folder / "index"))
    monkeypatch.chdir(folder)


@pytest.fixture(scope="module")
def indexed(folder, localizer):
    """Both videos, a day apart; once for all tests, by the commands themselves."""
    from typer.testing import CliRunner

    from lastseen.cli import app

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer)
        for name, date, keep in (("walk", DATE, "full"), ("later", "2026-11-15 10:00", "compact")):
            arguments = ["index", str(folder / f"{name}.mp4"), "--index", str(folder / "index"), "-q"]
            done = CliRunner().invoke(app, [*arguments, "--recorded", date, "--keep", keep])
            assert done.exit_code == 0, done.output
            assert done.stdout.startswith(f"{name}.mp4: {11 if name == 'walk' else 9} frames kept, ")
    return folder


def one_line(text: str) -> bool:
    return text.startswith("lastseen: ") and text.count("\n") == 1 and "Traceback" not in text


def test_a_picture_alone_asks_everything_remembered(run, indexed, tmp_path):
    picture, film = tmp_path / "out.jpg", tmp_path / "out.mp4"
    status, out, err = run("find", "thing.png", "-q", "--picture", picture, "--video", film)
    assert (status, err) == (0, "")
    assert out.startswith("Last seen on 2026-11-15 at 10:00:0")
    assert ", in later.mp4 from 0:00.0 to 0:0" in out and "of the 320x180 frame" in out
    with Image.open(picture) as image:
        assert image.size == (320, 180)
    assert Video(film).duration_s > 1
    status, _, err = run("find", "thing.png", "thing.png", "--all", "--save", tmp_path / "a.csv")
    assert status == 0 and "Files show the latest answer, in later.mp4 (--in chooses).\n" in err


def test_the_json_is_that_of_one_video_with_dates(run, indexed):
    status, out, _ = run("find", "thing.png", "thing.png", "--all", "--json", "-q", "--exhaustive")
    answers = json.loads(out)
    assert status == 0
    assert answers["schema"] == "lastseen/answers@1" and answers["index"] == str(indexed / "index")
    (found,) = answers["things"]
    assert found["found"] and [a["name"] for a in found["answers"]] == ["later.mp4", "walk.mp4"]
    assert found["answers"][1]["recorded_at"].startswith("2026-11-14T10:00:00.000")
    for answer, place in zip(found["answers"], (THERE, HERE)):
        assert parse_answer(json.dumps(answer)).sightings[-1].boxes[2].iou(box_at(place)) > 0.4
        dates = {key: answer.pop(key) for key in DATES}
        status, alone, _ = run("find", "thing.png", dates["name"], "--json", "-q", "--all")
        assert {**json.loads(alone), "video": answer["video"]} == answer


def test_one_video_and_a_time_before(run, indexed):
    assert "in walk.mp4 from" in run("find", "thing.png", "-q", "--in", "walk")[1]
    assert "in walk.mp4 from" in run("find", "thing.png", "-q", "--before", "2026-11-14 12:00")[1]
    status, out, _ = run("find", "thing.png", "-q", "--in", "walk", "--before", "0.5")
    assert status == 1 and out.startswith("Not seen.\nThe best guess is walk.mp4, 0:00.")
    assert parse_moment("60") == (60.0, None)


def test_several_things_in_one_pass(run, indexed):
    things = ("--thing", "disc=thing.png", "--thing", "disc=thing.png", "--thing", "rug=other.png")
    status, out, _ = run("find", *things, "-q")
    assert status == 1, "not all were seen"
    assert "disc: Last seen on 2026-11-15" in out and "rug: Not seen." in out
    status, out, _ = run("find", *things, "walk.mp4", "-q")
    assert status == 1
    assert out.startswith("disc: Last seen from 0:00.") and "rug: Not seen." in out
    status, out, _ = run("find", "--thing", "disc=thing.png", "walk.mp4", "-q", "--json")
    assert (status, json.loads(out)["things"][0]["thing"]) == (0, "disc")


def test_a_moment_of_a_video_can_be_the_picture(run, indexed):
    box = "40,60,104,124"
    status, out, _ = run("find", "walk.mp4", "--at", "1.0", "--box", box, "--in", "later", "-q")
    assert status == 0 and "in later.mp4" in out


def test_list_info_verify_and_remove(run, indexed, tmp_path):
    status, out, _ = run("index", "list")
    assert status == 0
    assert out.splitlines()[0].startswith("walk.mp4   0:02.2, 2026-11-14 10:00, full, ")
    assert out.splitlines()[-1].startswith("2 videos, ")
    listed = json.loads(run("index", "list", "--json")[1])
    assert [video["keep"] for video in listed["videos"]] == ["full", "compact"]
    assert "training-free" in listed["made_by"]
    status, out, _ = run("index", "info", "walk")
    assert status == 0 and "recorded_at: 2026-11-14T10:00" in out
    assert run("index", "verify") == (0, "2 videos: sound\n", "")
    copied = shutil.copytree(indexed / "index", tmp_path / "copy")
    damaged = next((copied / "videos").rglob("fine-*.bin"))
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    status, out, _ = run("index", "verify", "--index", copied, "--json")
    assert status == 1 and json.loads(out)["sound"] is False
    status, out, _ = run("index", "remove", "walk.mp4", "--index", copied)
    assert status == 0 and "forgotten" in out and "freed" in out
    assert run("index", "verify", "--index", copied)[0] == 0


def test_repair_says_what_it_did_and_what_it_could_not(run, indexed, tmp_path):
    copied = shutil.copytree(indexed / "index", tmp_path / "copy")
    damaged = next((copied / "videos").rglob("fine-*.bin"))
    damaged.write_bytes(b"x" + damaged.read_bytes()[1:])
    status, out, err = run("find", "thing.png", "--in", "walk", "--index", copied, "-q")
    assert (status, err) == (0, "")
    assert re.search(
        r"walk.mp4: frames 0-\d+ are damaged in the index and were encoded again from its f", out
    )
    status, out, _ = run("index", "repair", "walk.mp4", "--index", copied, "-q")
    assert status == 0
    assert re.fullmatch(r"walk.mp4: frames 0-\d+ made again \(the same bits as before\)\n", out)
    assert run("index", "repair", "--index", copied, "-q")[1] == "walk.mp4: sound\nlater.mp4: sound\n"
    for damage in (damaged.unlink, lambda: damaged.write_bytes(b"x" + damaged.read_bytes()[1:])):
        damage()
        assert run("index", "walk.mp4", "--index", copied, "-q")[:2] == (
            0,
            "walk.mp4: known already, but it was damaged, and is sound again\n",
        )
    damaged.unlink()
    moved = (indexed / "walk.mp4").rename(indexed / "gone.mp4")
    try:
        status, out, _ = run("index", "repair", "walk", "--index", copied, "-q", "--json")
        (video,) = json.loads(out)["videos"]
        assert status == 1 and video["name"] == "walk.mp4" and video["done"] == ""
        assert video["stays_damaged"].startswith("frames 0-10 stay damaged: walk.mp4: ")
        status, out, err = run("find", "thing.png", "--in", "walk", "--index", copied, "-q")
        assert status == 2 and one_line(err) and "frames 0-10 are damaged in the index and were not" in err
        status, out, _ = run("find", "thing.png", "--index", copied, "-q", "--json")
        assert "walk.mp4: frames 0-10 are damaged" in json.loads(out)["things"][0]["damaged"][0]
    finally:
        moved.rename(indexed / "walk.mp4")


def test_indexing_again_says_that_it_is_known_and_one_bad_file_does_not_stop_the_rest(run, indexed, tmp_path):
    assert run("index", "walk.mp4", "-q")[:2] == (0, "walk.mp4: known already\n")
    (tmp_path / "text.mp4").write_text("no video\n" * 50)
    shutil.copy(indexed / "walk.mp4", tmp_path / "z.mp4")
    status, out, err = run("index", tmp_path, "-q", "--index", tmp_path / "index", "--keep", "compact")
    assert status == 2 and one_line(err) and "text.mp4" in err
    assert out.startswith("z.mp4: 11 frames kept, ")
    parts = [run("index", tmp_path, "-q", "--shard", f"{i}/2", "--index", tmp_path / "i") for i in (1, 2)]
    assert sum("z.mp4: 11 frames kept" in out for _, out, _ in parts) == 1
    assert sum("text.mp4" in err for _, _, err in parts) == 1


def test_a_date_can_be_corrected(run, indexed, tmp_path):
    copied = shutil.copytree(indexed / "index", tmp_path / "copy")
    where = ("--index", copied, "-q")
    assert run("index", "walk.mp4", *where, "--recorded", "2026-11-16 08:00")[:2] == (
        0,
        "walk.mp4: known already\n",
    )
    assert "Last seen on 2026-11-16 at 08:00:0" in run("find", "thing.png", *where)[1]


def test_adding_and_removing_as_json(run, indexed, tmp_path):
    where = ("--index", tmp_path / "index", "--json")
    added = json.loads(run("index", "walk.mp4", *where, "-q")[1])
    (video,) = added["videos"]
    assert added["schema"] == "lastseen/index-add@1" and added["failed"] == []
    assert (video["name"], video["outcome"], video["frames"]) == ("walk.mp4", "added", 11)
    status, out, err = run("index", "thing.png", *where, "-q")
    assert status == 2 and one_line(err) and "is a picture" in json.loads(out)["failed"][0]["error"]
    removed = json.loads(run("index", "remove", "walk", *where)[1])
    assert removed["removed"] == [{"name": "walk.mp4", "bytes": video["bytes"]}]


def test_when_the_video_is_gone_the_answer_stands_and_the_picture_does_not(run, folder, tmp_path):
    shutil.copy(folder / "walk.mp4", tmp_path / "gone.mp4")
    where = ("--index", tmp_path / "index", "-q")
    assert run("index", tmp_path / "gone.mp4", *where)[0] == 0
    (tmp_path / "gone.mp4").unlink()
    status, out, err = run("find", "thing.png", *where, "--picture", tmp_path / "out.jpg")
    assert status == 2 and "in gone.mp4 from" in out
    assert one_line(err) and "gone.mp4 is gone; put it back" in err
    assert run("find", "thing.png", *where)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["find", "thing.png", "--index", "nowhere"], "thing.png is a picture, and there is no index at"),
        (["find", "--index", "nowhere"], "a photo alone asks the index, and there is none at nowhere"),
        (["find"], "what to find in the index?"),
        (["find", "thing.png", "--in", "nothing"], "nothing is not in"),
        (["find", "thing.png", "--before", "60"], "60 seconds of which video?"),
        (["find", "thing.png", "--before", "noon"], "expected seconds, or a date"),
        (["find", "thing.png", "--before", "1999-01-01"], "nothing in the index was recorded before"),
        (["find", "thing.png", "walk.mp4", "--before", "2026-01-01"], "a date is for questions to the index"),
        (["find", "--thing", "disc"], "expected NAME=PICTURE"),
        (["find", "--thing", "a=no.png"], "no.png: no such picture"),
        (["find", "thing.png", "--thing", "a=thing.png"], "not with other pictures"),
        (
            ["find", "--thing", "a=thing.png", "--thing", "b=other.png", "--picture", "o.jpg"],
            "show one thing, not 2",
        ),
        (["index", "nowhere.mp4"], "nowhere.mp4: no such file"),
        (["index", "thing.png"], "is a picture, not a video"),
        (["index", "walk.mp4", "--keep", "some"], "choose small, full or compact"),
        (["index", "walk.mp4", "--shard", "3/2"], "expected I/N"),
        (["index", "walk.mp4", "--recorded", "60"], "expected a date"),
        (["index", "walk.mp4", "--recorded", "9999-12-31"], "no video is from then; give a date from 1980"),
        (["index", "walk.mp4", "--recorded", "1904-01-01"], "no video is from then; give a date from 1980"),
        (["index", "walk.mp4", "later.mp4", "--name", "a"], "--name goes with one video"),
        (["index", "rtsp://127.0.0.1:9/x", "--keep", "compact"], "a stream cannot be decoded again"),
        (["index", "list", "--index", "nowhere"], "no index at nowhere"),
        (["index", "remove", "nothing"], "nothing is not in"),
        (["index", "info", "nothing"], "nothing is not in"),
    ],
)
def test_a_mistake_is_one_clear_line_and_status_2(run, indexed, arguments, says):
    before = sorted(path.name for path in indexed.iterdir())
    quiet = ["-q"] if arguments[0] == "find" or arguments[1] not in ("list", "remove", "info") else []
    status, out, err = run(*arguments, *quiet)
    assert (status, out) == (2, "")
    assert one_line(err), err
    assert says in err
    assert sorted(path.name for path in indexed.iterdir()) == before


def test_another_model_is_one_clear_line(run, indexed, monkeypatch, localizer):
    monkeypatch.setattr(Localizer, "from_pretrained", lambda *_, **__: localizer.at(2.0))
    status, _, err = run("find", "thing.png", "-q")
    assert status == 2 and one_line(err) and "was made by another model" in err


@pytest.mark.parametrize("command", [[], ["add"], ["list"], ["info"], ["remove"], ["verify"], ["repair"]])
def test_help_opens_with_an_example(run, command):
    status, out, _ = run("index", *command, "--help")
    assert status == 0
    assert f"Example: lastseen index {'' if command in ([], ['add']) else command[0]}" in out


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; sys.argv = ['lastseen', 'index', 'add', '--help']\n"
        "from lastseen.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "assert not {'torch', 'av', 'numpy', 'sqlite3'} & set(sys.modules)\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=root)


def test_the_index_is_for_its_owner_alone(indexed):
    with Index(indexed / "index") as index:
        private = [index.folder, *(index.place(video) for video in index.videos())]
    assert all(path.stat().st_mode & 0o077 == 0 for path in private)
