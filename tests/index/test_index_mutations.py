"""Whatever is in a damaged catalogue, every command does its work or says in one line that it cannot."""

import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lastseen.errors import IndexStoreError
from lastseen.index import Index
from lastseen.index.answers import answers_dict, answers_text, list_dict, list_text
from lastseen.index.record import add_file
from lastseen.index.search import search
from lastseen.localizer import Localizer
from lastseen.query import Query

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = {"it": Query.from_array(np.random.default_rng(0).integers(0, 255, (48, 48, 3), np.uint8))}
WRONG = ("NULL", "'x'", "x'ff00'", "-1", "0", "7", "2.5", "9e999", "4611686018427387904")
WRONG_GRIDS = (
    "'[]'",
    "'{'",
    "'[1, 2]'",
    "'[0, 8, 8]'",
    "'[-32, 8, -8]'",
    "'[8, 32, 8]'",
    "'[32.5, 8, 8]'",
    "'null'",
)
COLUMNS = [
    *("name", "source", "kind", "identity", "sha256", "size", "mtime_ns", "width", "height", "fps"),
    *("duration_s", "recorded_at", "keep", "expected", "grid", "fine_bytes", "compact_bytes", "first"),
    *("frames", "complete", "unreadable", "dated_by"),
]


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return tiny_localizer()


@pytest.fixture(scope="module")
def made(tmp_path_factory, localizer) -> Path:
    root = tmp_path_factory.mktemp("made")
    with Index(root / "index", create=True) as index:
        for number, keep in enumerate(("full", "compact")):
            video = make_video(root / f"{keep}.mp4", 8 if keep == "full" else 2, number)
            add_file(index, localizer, video, keep=keep)
    return root / "index"


@pytest.fixture
def place(made, tmp_path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "index"))


def work(place: Path, localizer: Localizer) -> list[str]:
    """Every command in turn; returns the lines with which some of them refused."""
    said: list[str] = []

    def tried(command: Callable[[Index], object]) -> None:
        try:
            with Index(place, create=False) as index:
                command(index)
        except IndexStoreError as error:
            said.append(str(error))

    def listed(index: Index) -> None:
        videos = index.videos()
        list_text(index, videos)
        list_dict(index, videos)

    def asked(index: Index, exhaustive: bool) -> None:
        found = search(index, localizer, QUERY, every=True, exhaustive=exhaustive)
        answers_text(found, every=True)
        answers_dict("index", "model", found, every=True)

    tried(listed)
    tried(lambda index: [index.problems(), *(index.verify(video) for video in index.videos())])
    tried(lambda index: asked(index, exhaustive=False))
    tried(lambda index: asked(index, exhaustive=True))
    tried(lambda index: index.remove(index.named("full")))
    tried(lambda index: index.sweep())
    for line in said:
        assert "\n" not in line and line.isprintable(), line
    return said


def test_a_sound_catalogue_refuses_nothing(place, localizer):
    assert work(place, localizer) == []


@pytest.mark.parametrize("seed", range(30))
def test_bytes_that_were_changed(place, localizer, seed):
    rng = random.Random(seed)
    file = place / "catalogue.sqlite"
    data = bytearray(file.read_bytes())
    kind = rng.choice(["flip", "flip", "flip", "zero", "cut", "noise"])
    at = rng.randrange(len(data))
    if kind == "flip":
        for _ in range(rng.choice([1, 3, 20])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif kind == "cut":
        del data[at:]
    else:
        size = rng.choice([1, 16, 512, 4096])
        new = bytes(size) if kind == "zero" else rng.randbytes(size)
        data[at : at + size] = new[: len(data) - at]
    file.write_bytes(data)
    work(place, localizer)


@pytest.mark.parametrize("column", COLUMNS)
def test_values_that_cannot_be(place, localizer, column, tmp_path):
    for number, value in enumerate(WRONG + (WRONG_GRIDS if column == "grid" else ())):
        copy = Path(shutil.copytree(place, tmp_path / str(number)))
        change(copy, f"UPDATE videos SET {column} = {value} WHERE id = 1")
        work(copy, localizer)


@pytest.mark.parametrize("column", ["first", "rows", "fine", "compact"])
def test_blocks_that_cannot_be(place, localizer, column, tmp_path):
    for number, value in enumerate(WRONG):
        copy = Path(shutil.copytree(place, tmp_path / str(number)))
        if (column, value) == ("first", "NULL"):
            continue  # a key of the table, which SQLite itself keeps from that
        change(copy, f"UPDATE blocks SET {column} = {value} WHERE first = 0")
        said = work(copy, localizer)
        if value in ("'x'", "-1", "7", "2.5", "4611686018427387904"):
            assert said == [], "the rest is answered, damage is made again from the file"


@pytest.mark.parametrize("key", ["schema", "fingerprint", "made_by", "fps", "engine"])
def test_properties_that_cannot_be(place, localizer, key, tmp_path):
    values = ("''", "'{'", "'[]'", "'null'", "'0'", "'1e400'", "'-1'", "'\"x\"'", "7", "x'ff'")
    for number, value in enumerate(values):
        copy = Path(shutil.copytree(place, tmp_path / str(number)))
        change(copy, f"UPDATE about SET value = {value} WHERE key = '{key}'")
        work(copy, localizer)
    change(place, f"DELETE FROM about WHERE key = '{key}'")
    work(place, localizer)


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE about",
        "DROP TABLE videos",
        "DROP TABLE blocks",
        "DELETE FROM about",
        "DELETE FROM blocks",
        "DELETE FROM videos",
        "ALTER TABLE videos DROP COLUMN grid",
        "ALTER TABLE videos DROP COLUMN recorded_at",
        "ALTER TABLE blocks RENAME COLUMN fine TO coarse",
        "ALTER TABLE videos RENAME TO films; CREATE VIEW videos AS SELECT * FROM films",
        "CREATE TRIGGER t BEFORE DELETE ON videos BEGIN SELECT RAISE(ABORT, 'no way'); END",
        "UPDATE videos SET name = 'a' || char(10) || 'b' WHERE id = 2",
        "UPDATE videos SET source = printf('/%5000d', 1)",
        "UPDATE videos SET recorded_at = 253370764800.0",
        "UPDATE videos SET recorded_at = -1e18",
        "UPDATE videos SET frames = 2000000",
        "UPDATE videos SET frames = 39",
        "UPDATE videos SET width = 99999, height = 1",
        "UPDATE videos SET width = 1, height = 99999",
        "INSERT INTO blocks VALUES (1, 5, 20, 1, 1)",
        "INSERT INTO videos SELECT 99, 'z', 'z', kind, 'z', sha256, size, mtime_ns, width, height, fps, "
        "duration_s, recorded_at, keep, expected, grid, fine_bytes, compact_bytes, first, frames, complete, "
        "unreadable, NULL, NULL FROM videos WHERE id = 1",
    ],
)
def test_tables_that_are_not_as_they_should_be(place, localizer, statement):
    change(place, statement)
    work(place, localizer)


def change(place: Path, statement: str) -> None:
    """As another program would; without the checks that the tables declare."""
    base = sqlite3.connect(place / "catalogue.sqlite", isolation_level=None)
    try:
        if statement.startswith("UPDATE"):
            base.execute("PRAGMA writable_schema = ON")
            base.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
            base.execute("PRAGMA writable_schema = OFF")
            base.close()
            base = sqlite3.connect(place / "catalogue.sqlite", isolation_level=None)
        base.executescript(statement)
    finally:
        base.close()


@pytest.mark.parametrize("column, value", [("height", "width"), ("frames", "20"), ("source", "'/elsewhere'")])
def test_a_value_that_was_not_written_there_is_told_and_its_video_can_be_forgotten(
    place, localizer, column, value
):
    change(place, f"UPDATE videos SET {column} = {value} WHERE id = 1")
    with Index(place, create=False) as index:
        with pytest.raises(IndexStoreError, match=r"video 1: .*lastseen index remove 1\)"):
            search(index, localizer, QUERY)
        assert [line for line in index.problems() if line.startswith("video 1: ")]
        assert [video.id for video in index.catalogue.sound_videos()] == [2]
        index.remove_damaged(1)
        assert [video.id for video in index.videos()] == [2]
        assert not index.problems() and not list((place / "videos").glob("000001*"))
        assert list(search(index, localizer, QUERY)) == ["it"]


def test_entries_of_before_have_no_checksum_until_they_are_changed(place):
    change(place, "UPDATE videos SET name = 'walk', checksum = NULL WHERE id = 1")
    with Index(place, create=False) as index:
        assert index.catalogue.update(1, recorded_at=1e9).name == "walk"
    change(place, "UPDATE videos SET name = 'run' WHERE id = 1")
    with Index(place, create=False) as index, pytest.raises(IndexStoreError, match="not as it was written"):
        index.videos()


def test_a_column_whose_name_was_damaged_is_not_taken_for_one_that_an_older_index_lacks(place):
    """It would be added anew, without what was in it."""
    with sqlite3.connect(place / "catalogue.sqlite") as base:
        base.execute("ALTER TABLE videos RENAME COLUMN dated_by TO daved_by")
    base.close()
    with pytest.raises(
        IndexStoreError, match=r"is damaged \(videos have a column 'daved_by', unknown to this"
    ):
        Index(place)


@pytest.mark.parametrize(
    "change_of", ["key = 'finferprint' WHERE key = 'fingerprint'", "value = '4.0' WHERE key = 'fps'"]
)
def test_properties_that_were_not_written_so_are_told(place, change_of):
    change(place, f"UPDATE about SET {change_of}")
    with pytest.raises(IndexStoreError, match="not as they were written"):
        Index(place, create=False)
