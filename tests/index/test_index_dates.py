"""Recording times that cannot be right are not believed, wherever they come from, and never in the way."""

import json
import os
import shutil
import sqlite3
import sys
import time
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
import pytest

from lastseen.errors import IndexStoreError
from lastseen.index import Index
from lastseen.index.answers import answers_text, list_dict, list_text
from lastseen.index.record import KNOWN, add_file, follow_file
from lastseen.index.search import search
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.sighting import Confidence
from lastseen.video.dates import believable, local

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import make_video, tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = {"it": Query.from_array(np.random.default_rng(0).integers(0, 255, (48, 48, 3), np.uint8))}
WRITTEN_AT = 1_600_000_000.0


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    return tiny_localizer()


@pytest.fixture(scope="module")
def made(tmp_path_factory, localizer) -> Path:
    """An index of two videos, the first of which was written long before the other."""
    root = tmp_path_factory.mktemp("made")
    with Index(root / "index", create=True) as index:
        for number, name in enumerate(("early", "late")):
            video = make_video(root / f"{name}.mp4", 4, number)
            os.utime(video, (WRITTEN_AT + 1e6 * number,) * 2)
            add_file(index, localizer, video)
    return root / "index"


def dated(path: Path, date: str) -> Path:
    """The video with a date in its metadata, written at WRITTEN_AT."""
    plain = make_video(path.with_name("plain.mp4"), 4, 3)
    with av.open(str(plain)) as source, av.open(str(path), "w") as out:
        out.metadata["creation_time"] = date
        copied = out.add_stream_from_template(source.streams.video[0])
        for packet in source.demux(video=0):
            if packet.dts is not None:
                packet.stream = copied
                out.mux(packet)
    os.utime(path, (WRITTEN_AT,) * 2)
    return path


@pytest.mark.parametrize(
    ("kind", "date"),
    [("mp4", "9999-12-31T23:59:59Z"), ("mkv", "2199-01-01T00:00:00Z"), ("mkv", "1970-01-01T00:00:00Z")],
)
def test_a_date_in_the_metadata_that_cannot_be_is_passed_over_and_said(tmp_path, localizer, kind, date, run):
    video = dated(tmp_path / f"walk.{kind}", date)
    with Index(tmp_path / "index", create=True) as index:
        done = add_file(index, localizer, video)
        assert done.video.recorded_at == pytest.approx(WRITTEN_AT - 4, abs=0.1)
        assert not done.video.date_is_doubtful
        assert f"walk.{kind}: says that it was recorded on " in done.note and "which cannot be" in done.note
    assert run("index", "list", "--index", tmp_path / "index")[0] == 0


def test_a_believable_date_in_the_metadata_is_taken_without_a_word(tmp_path, localizer):
    with Index(tmp_path / "index", create=True) as index:
        done = add_file(index, localizer, dated(tmp_path / "walk.mkv", "2020-03-04T05:06:07Z"))
        assert (done.video.recorded_at, done.note) == (1583298367.0, None)


@pytest.mark.parametrize("written", [4_102_444_800.0, 15_032_385_535.0, 253_402_300_799.0])
def test_of_a_file_from_the_future_the_date_is_now(tmp_path, localizer, written):
    """2100, the last date of usual file systems, and 9999: more than 64 bits of nanoseconds."""
    video = make_video(tmp_path / "walk.mp4", 4, 3)
    os.utime(video, (written,) * 2)
    with Index(tmp_path / "index", create=True) as index:
        done = add_file(index, localizer, video)
        assert add_file(index, localizer, video).outcome == KNOWN and index.verify(done.video) == []
        assert time.time() - 600 < done.video.recorded_at < time.time()
        assert "walk.mp4: says that it was written on " in done.note and "as if it had been" in done.note


@pytest.mark.parametrize("recorded", [float("nan"), float("inf"), 0.0, -1e18, 4_102_444_800.0])
def test_a_date_that_cannot_be_is_refused(made, localizer, tmp_path, recorded):
    video = make_video(tmp_path / "new.mp4", 2, 4)
    with Index(tmp_path / "index", create=True) as index:
        for add in (add_file, follow_file):
            with pytest.raises(IndexStoreError, match="no video is from then; give a date from 1980"):
                add(index, localizer, video, recorded=recorded)
        assert index.catalogue.videos() == []


@pytest.mark.parametrize("moment", [253370764800.0, float("inf"), float("-inf"), -2e9, 0.0, 4102444800.0])
def test_an_impossible_date_in_an_index_is_flagged_and_wins_nothing(made, localizer, tmp_path, moment):
    place = shutil.copytree(made, tmp_path / "index")
    with Index(place) as index:
        index.catalogue.update(1, recorded_at=moment)
        first, second = index.videos()
        listed = list_dict(index, index.videos())["videos"]
        assert [video["date_doubtful"] for video in listed] == [True, False]
        assert "early.mp4" in list_text(index, [first]) and "cannot be right" in list_text(index, [first])
        assert first.began_at == pytest.approx(WRITTEN_AT - 4, abs=0.1), "dated by its file"
        every = search(index, seeing(localizer), QUERY, every=True)["it"]
        assert [found.video.name for found in every] == ["late.mp4", "early.mp4"]
        assert "date that the index has for early.mp4 cannot be right" in answers_text({"it": every}, False)
        index.catalogue.update(1, mtime_ns=None)
        assert index.videos()[0].began_at == 0.0, "without a file the oldest"
        index.remove(first)
        assert index.videos() == [second]


def seeing(localizer: Localizer) -> Localizer:
    """It has seen everything, everywhere."""
    return localizer.with_rule(replace(localizer.rule, confidence=Confidence(threshold=0.0)))


def test_what_can_be_believed():
    now = time.time()
    assert all(map(believable, (315_532_800.0, 1e9, now, now + 80_000)))
    assert not any(map(believable, (315_532_799.0, 0.0, -1.0, now + 90_000, float("nan"), float("inf"))))
    assert [local(time).year for time in (float("inf"), 1e18, -1e18, float("nan"))] == [9999, 9999, 1, 1970]


def test_an_index_knows_what_a_date_goes_by(tmp_path, localizer, run):
    """Also one of before, which did not write it down."""
    marked = dated(tmp_path / "marked.mkv", "2020-03-04T05:06:07Z")
    unmarked, said = (make_video(tmp_path / f"{name}.mp4", 4, n) for n, name in enumerate(("plain", "said")))
    os.utime(unmarked, (WRITTEN_AT + 0.25,) * 2)
    with Index(tmp_path / "index", create=True) as index:
        for video, recorded in ((marked, None), (unmarked, None), (said, 1.5e9)):
            add_file(index, localizer, video, recorded=recorded)
        assert [v.date_source for v in index.videos()] == ["container", "file time", "recorded"]
        listed = list_text(index, index.videos()).splitlines()
        assert ["(by the file's date)" in line for line in listed[:3]] == [False, True, False]
        assert add_file(index, localizer, unmarked, recorded=WRITTEN_AT).video.date_source == "recorded"
        by_file = index.catalogue.update(3, recorded_at=WRITTEN_AT + 0.5, dated_by="file time")
        assert add_file(index, localizer, said, recorded=by_file.recorded_at).video.date_source == "recorded"
        index.catalogue.update(2, recorded_at=WRITTEN_AT - 3.75)
    with sqlite3.connect(tmp_path / "index" / "catalogue.sqlite") as base:
        base.execute("ALTER TABLE videos DROP COLUMN dated_by")
    base.close()
    _, shown, _ = run("index", "list", "--index", tmp_path / "index", "--json")
    assert [v["date_source"] for v in json.loads(shown)["videos"]] == ["container", "file time", "file time"]
