"""An index answers as if every video were searched anew, and says clearly when it cannot."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import SIDE, box_at, quick_localizer, texture, thing, write_scene

from lastseen.errors import IndexStoreError, QueryError
from lastseen.index import Index, default_folder
from lastseen.index.compact import FRAME_BYTES, CompactGrid
from lastseen.index.originals import expanded, shard
from lastseen.index.record import ADDED, BUSY, KNOWN, add_file
from lastseen.index.search import search
from lastseen.localizer import Localizer
from lastseen.procedure import Published
from lastseen.progress import Progress
from lastseen.query import Query
from lastseen.rule import Rule
from lastseen.search.ranking import representatives
from lastseen.sighting import Confidence
from lastseen.video import Video

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from index_kill import contents, make_video, tiny_localizer  # noqa: E402

pytestmark = pytest.mark.usefixtures("one_thread")
KINDS = {
    "patches": {},
    "vqloc": {},
    "maps": {"query_scales": (1.0, 0.5), "background_cosine": 0.5},
}
HERE, THERE = (40, 60), (210, 90)


def localizer_of(name: str, **options) -> Localizer:
    return tiny_localizer(**{"kind": name, **KINDS[name], **options})


@pytest.fixture(scope="module")
def videos(tmp_path_factory) -> list[Path]:
    """A second apart in recording time, the last one shortest."""
    root = tmp_path_factory.mktemp("videos")
    paths = [make_video(root / f"{name}.mp4", s, i) for i, (name, s) in enumerate([("a", 12.0), ("b", 7.9)])]
    for number, path in enumerate(paths):
        os.utime(path, (1_000_000_000 + 3600 * number,) * 2)
    return paths


def picture(seed: int) -> np.ndarray:
    return texture(seed, 64, 48, 8)


def built(folder, localizer, paths, **options) -> Index:
    index = Index(folder, create=True)
    for path in paths:
        add_file(index, localizer, path, **options)
    return index


# --- the same answers as one-shot ---


@pytest.mark.parametrize(
    ("name", "keep"),
    [*((name, "full") for name in KINDS), ("patches", "compact"), ("vqloc", "compact")],
)
def test_indexed_answers_are_those_of_one_shot(videos, tmp_path, name, keep):
    localizer = localizer_of(name)
    rule = localizer.rule.with_step("extend", min_cosine=0.5).with_step("verify", min_cosine=0.9)
    localizer = localizer.with_rule(replace(rule, confidence=Confidence(threshold=0.0)))
    several = Query.joined([Query.from_array(picture(1)), Query.from_array(picture(2))])
    with built(tmp_path, localizer, videos, keep=keep) as index:
        for query in (several, Query.from_array(picture(3), asked_at=7.3)):
            found = search(index, localizer, {"it": query}, every=True, exhaustive=True)["it"]
            assert [f.video.name for f in found if f.sightings] in (["b.mp4", "a.mp4"], ["a.mp4", "b.mp4"])
            for answer in found:
                alone = localizer.ask(Video(answer.video.path), query)
                assert np.array_equal(answer.curve.scores, alone.curve.scores)
                assert np.array_equal(answer.curve.boxes_px, alone.curve.boxes_px)
                assert answer.sightings == alone.sightings
                assert answer.steps == alone.steps == ("verify", "extend")
        # The same question by candidates, unrefined: where the exact model ran, it said the same.
        plain = localizer.with_rule(localizer.rule.without(["verify", "extend"]))
        exact = search(index, plain, {"it": query}, every=True, exhaustive=True)["it"]
        curves = {answer.video.name: answer.curve for answer in exact}
        for answer in search(index, plain, {"it": query}, every=True, candidates=2)["it"]:
            ran, whole = answer.curve.searched, curves[answer.video.name]
            assert ran.any()
            assert np.array_equal(answer.curve.scores[ran], whole.scores[ran])
            assert np.array_equal(answer.curve.boxes_px[ran], whole.boxes_px[ran])


def test_paper_mode_answers_from_an_index_too(videos, tmp_path):
    localizer = localizer_of("vqloc", procedure=Published())
    assert localizer.feature_dtype == torch.float32
    with built(tmp_path, localizer, videos) as index:
        found = search(index, localizer, {"it": Query.from_array(picture(3))}, every=True)["it"]
        for answer in found:
            alone = localizer.locate(Video(answer.video.path), Query.from_array(picture(3)))
            assert answer.sightings == (alone,)


def test_features_do_not_depend_on_where_encoding_begins_or_ends(videos):
    localizer, video = localizer_of("vqloc"), Video(videos[0])
    whole = torch.cat(list(localizer.encoded(video, 0, 60)))
    assert whole.dtype == torch.float16
    for start, end in ((0, 5), (8, 33), (56, 59), (40, 41)):
        assert torch.equal(torch.cat(list(localizer.encoded(video, start, end))), whole[start:end])


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """Three real searches: the thing twice in "early", once in "late", never in "empty"."""
    root = tmp_path_factory.mktemp("library")
    scenes = {
        "early": [*[None] * 8, *[HERE] * 6, *[None] * 30, *[THERE] * 8, *[None] * 10],  # over a border
        "late": [*[None] * 3, *[THERE] * 5, *[None] * 4],
        "empty": [None] * 8,
    }
    localizer = quick_localizer()
    with Index(root / "index", create=True) as index:
        for number, (name, places) in enumerate(scenes.items()):
            path = write_scene(root / f"{name}.mp4", places)
            add_file(
                index, localizer, path, recorded=1e9 + 1000 * number, keep="compact" if number else "full"
            )
        yield index, localizer


def test_the_shortlist_finds_what_the_whole_search_finds(library):
    index, localizer = library
    things = {"it": Query.from_array(thing())}
    everywhere = search(index, localizer, things, every=True, exhaustive=True)["it"]
    quickly = search(index, localizer, things, every=True, candidates=4)["it"]
    assert [f.video.name for f in quickly] == ["late.mp4", "early.mp4"]
    assert [f.sightings for f in quickly] == [f.sightings for f in everywhere]
    assert [len(f.sightings) for f in quickly] == [1, 2]


def test_the_latest_recording_answers_and_before_a_date_an_earlier_one(library):
    index, localizer = library
    things = {"it": Query.from_array(thing()), "other": Query.from_array(texture(99, SIDE, SIDE, 4))}
    found = search(index, localizer, things)
    assert [f.video.name for f in found["it"]] == ["late.mp4"]
    assert found["it"][0].sightings[-1].boxes[2].iou(box_at(THERE)) > 0.5
    last = found["it"][0]
    assert last.video.began_at + last.last.end == pytest.approx(1e9 + 1000 + 1.4, abs=0.4)
    assert [f.sightings for f in found["other"]] == [()] and found["other"][0].best_guess is not None
    for exhaustive in (False, True):
        earlier = search(index, localizer, things, before=1e9 + 900, exhaustive=exhaustive)["it"]
        assert [f.video.name for f in earlier] == ["early.mp4"]
        first = search(index, localizer, things, before=1e9 + 6.0, exhaustive=exhaustive)["it"]
        assert first[0].sightings[-1].boxes[2].iou(box_at(HERE)) > 0.5
    with pytest.raises(QueryError, match="nothing in the index was recorded before"):
        search(index, localizer, things, before=5.0)


def test_one_video_can_be_asked_alone(library):
    index, localizer = library
    question, early = {"it": Query.from_array(thing())}, [index.named("early")]
    found = search(index, localizer, question, videos=early, candidates=1)["it"][0]
    assert found.video.name == "early.mp4"
    assert found.sightings[-1].boxes[2].iou(box_at(THERE)) > 0.5
    ran = found.curve.searched
    assert ran.any() and not ran.all(), "the exact model sees a part"
    whole = search(index, localizer, question, videos=early, exhaustive=True)["it"][0]
    assert found.sightings[-1] == whole.sightings[-1], "and yet the track is whole"


# --- what is stored ---


def test_a_compact_frame_stays_under_27_kb(videos, library, tmp_path):
    assert FRAME_BYTES * 18_000 <= 500e6
    for channels, rows, columns in ((384, 18, 32), (384, 32, 18), (768, 32, 32), (256, 32, 32), (64, 32, 32)):
        letterbox = quick_localizer().model.letterbox(columns * 14, rows * 14)
        grid = CompactGrid.fitting(channels, rows, columns, letterbox)
        assert 0.8 * FRAME_BYTES < grid.row_bytes <= FRAME_BYTES or grid.tokens == rows * columns
    index, _ = library
    for name in ("late", "empty"):
        video = index.named(name)
        size = sum(path.stat().st_size for path in index.place(video).iterdir())
        assert size == index.size_bytes(video) <= 27_000 * video.frames
        assert index.fine(video) is None


def test_tokens_are_packed_to_a_percent_and_every_place_is_met():
    letterbox = quick_localizer().model.letterbox(448, 252)
    grid = CompactGrid.fitting(384, 18, 32, letterbox)
    features = torch.nn.functional.normalize(
        torch.randn(40, 384, 18, 32, generator=torch.Generator().manual_seed(0)), dim=1
    )
    tokens = grid.similarity(grid.pack(features, 100), torch.eye(features.shape[1]))  # its numbers
    exact = grid._picked(features, 100)
    products = grid.similarity(grid.pack(features, 100), exact[0])
    torch.testing.assert_close(products, tokens @ exact[0].T)
    assert torch.nn.functional.cosine_similarity(tokens, exact, dim=-1).min() > 0.999
    places = torch.arange(18 * 32.0).view(1, 18, 32)
    met = grid._picked(places.expand(40, -1, -1, -1), 0).unique()
    assert len(met) > 0.95 * 18 * 32


def test_representatives_are_near_all_others():
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(8, 32, generator=generator).repeat_interleave(30, 0)
    vectors = torch.nn.functional.normalize(centres + 0.1 * torch.randn(240, 32, generator=generator), dim=1)
    chosen = representatives(vectors, 8)
    assert (vectors @ chosen.T).amax(1).min() > 0.9


def test_an_indexed_video_costs_nothing_the_second_time_nor_under_another_name(videos, tmp_path, monkeypatch):
    localizer = localizer_of("patches")
    with built(tmp_path / "index", localizer, videos[:1]) as index:
        monkeypatch.setattr(localizer.model, "encode_frames", None)
        assert add_file(index, localizer, videos[0]).outcome == KNOWN
        copy = Path(shutil.copy(videos[0], tmp_path / "copy.mp4"))
        assert add_file(index, localizer, copy).outcome == KNOWN
        assert [video.name for video in index.videos()] == ["a.mp4"]


def test_a_moved_video_is_found_where_it_is(videos, tmp_path):
    localizer = localizer_of("patches")
    first = Path(shutil.copy(videos[0], tmp_path / "first.mp4"))
    with built(tmp_path / "index", localizer, [first], keep="compact") as index:
        second = first.rename(tmp_path / "second.mp4")
        with pytest.raises(IndexStoreError, match=r"first.mp4 is gone; put it back"):
            search(index, localizer, {"it": Query.from_array(picture(1))})
        assert add_file(index, localizer, second).outcome == KNOWN
        assert search(index, localizer, {"it": Query.from_array(picture(1))})["it"]


def test_two_videos_of_one_name_are_told_apart(videos, tmp_path):
    (tmp_path / "x").mkdir()
    other = Path(shutil.copy(videos[1], tmp_path / "x" / "a.mp4"))
    with built(tmp_path / "index", localizer_of("patches"), [videos[0], other]) as index:
        assert [video.name for video in index.videos()] == ["a.mp4", "a.mp4 (2)"]
        assert index.named(str(other)).name == "a.mp4 (2)"
        with pytest.raises(IndexStoreError, match=r"is not in .*; it holds a.mp4, a.mp4"):
            index.named("walk.mp4")


def test_removing_frees_the_space_and_leaves_the_rest(videos, tmp_path):
    with built(tmp_path, localizer_of("patches"), videos) as index:
        first, second = index.videos()
        before = sum(path.stat().st_size for path in tmp_path.rglob("*.bin"))
        freed = index.remove(first)
        assert freed > 0
        assert before - sum(path.stat().st_size for path in tmp_path.rglob("*.bin")) == freed
        assert index.videos() == [second]
        assert not index.place(first).exists()
        # Files that a killed remove left behind are swept away, those of others are not.
        shutil.copytree(index.place(second), index.place(first))
        index.sweep()
        assert not index.place(first).exists() and index.place(second).exists()
        with pytest.raises(IndexStoreError, match="removed from the index meanwhile"):
            index.catalogue.video(first.id)


def test_verify_finds_a_flipped_byte_and_a_missing_file(videos, tmp_path):
    with built(tmp_path, localizer_of("patches"), videos) as index:
        first, second = index.videos()
        assert index.verify(first) + index.verify(second) + index.catalogue.problems() == []
        for kind in ("fine", "compact"):
            path = next(index.place(second).glob(f"{kind}-*.bin"))
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
            damaged = index.verify(second)
            assert len(damaged) == 1 and f"{kind} frames" in damaged[0] and "b.mp4" in damaged[0]
            data[len(data) // 2] ^= 1
            path.write_bytes(data)
        path.write_bytes(data[:-1])
        assert "cut off" in index.verify(second)[0]
        path.unlink()
        assert "is missing" in index.verify(second)[0]
        assert index.verify(first) == []


def test_a_torn_tail_is_cut_and_never_read(videos, tmp_path):
    localizer = localizer_of("patches")
    with built(tmp_path / "whole", localizer, videos[:1]) as index:
        whole = contents(tmp_path / "whole")
    with Index(tmp_path / "torn", create=True) as index:
        with pytest.raises(KeyboardInterrupt):
            add_file(index, localizer, videos[0], commit_s=0, progress=_interrupt_at(24))
        video = index.videos()[0]
        assert 0 < video.frames <= 24
        for path in index.place(video).glob("*.bin"):
            with path.open("ab") as file:
                file.write(b"torn" * 1000)
        assert index.verify(video) == []
        name = "a.mp4:fine"
        assert contents(tmp_path / "torn")[name] == whole[name][: video.frames * video.fine_bytes]
        assert add_file(index, localizer, videos[0]).outcome == ADDED
        assert contents(tmp_path / "torn") == whole


def _interrupt_at(frame: int):
    def progress(told: Progress) -> None:
        if told.done >= frame:
            raise KeyboardInterrupt

    return progress


def test_a_run_with_another_batch_size_goes_on_where_it_can(videos, tmp_path):
    with Index(tmp_path, create=True) as index:
        with pytest.raises(KeyboardInterrupt):
            add_file(index, localizer_of("patches"), videos[0], commit_s=0, progress=_interrupt_at(36))
        before = index.videos()[0].frames
        other = localizer_of("patches")
        other.batch = 16
        assert before % 16 and add_file(index, other, videos[0]).outcome == ADDED
        video = index.videos()[0]
        assert video.frames == 60 and index.verify(video) == []


def test_shards_cover_everything_once(tmp_path):
    for name in ("c.mp4", "a.MOV", "sub/b.mkv", "notes.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = expanded([str(tmp_path), str(tmp_path / "c.mp4"), "rtsp://here/1"])
    assert sorted(Path(p).name for p in found) == ["1", "a.MOV", "b.mkv", "c.mp4"]
    for parts in (1, 2, 3, 7):
        shards = [shard(found, f"{i}/{parts}") for i in range(1, parts + 1)]
        assert sorted(path for part in shards for path in part) == sorted(found)
    for bad in ("0/2", "3/2", "x", "1/0", "1"):
        with pytest.raises(IndexStoreError, match="expected I/N"):
            shard(found, bad)


# --- what can go wrong ---


def test_another_model_is_refused(videos, tmp_path):
    with built(tmp_path, localizer_of("patches"), videos[:1]) as index:
        question = {"it": Query.from_array(picture(1))}
        for other, says in (
            (localizer_of("vqloc"), "not by VQLoC"),
            (localizer_of("patches", seed=1), "the same with other weights"),
            (localizer_of("patches").at(2.5), "2.5 frames a second"),
        ):
            with pytest.raises(IndexStoreError, match=says):
                search(index, other, question)
            with pytest.raises(IndexStoreError, match=says):
                add_file(index, other, videos[1])
        other_rule = localizer_of("patches").with_rule(Rule(confidence=Confidence(threshold=0.1)))
        assert search(index, other_rule, question)["it"], "the rule is applied after the features"


def test_a_video_that_changed_is_noticed(videos, tmp_path):
    localizer = localizer_of("patches")
    path = Path(shutil.copy(videos[0], tmp_path / "walk.mp4"))
    with built(tmp_path / "index", localizer, [path], keep="compact") as index:
        os.utime(path, (1, 1))  # touched, not changed
        assert search(index, localizer, {"it": Query.from_array(picture(1))})["it"]
        shutil.copy(videos[1], path)
        for attempt in (
            lambda: search(index, localizer, {"it": Query.from_array(picture(1))}),
            lambda: add_file(index, localizer, path),
        ):
            with pytest.raises(IndexStoreError, match="not the file that was indexed; forget the old one"):
                attempt()


def test_a_damaged_catalogue_and_a_missing_index_are_one_clear_line(videos, tmp_path):
    with pytest.raises(IndexStoreError, match=r"no index at .*; make one: lastseen index"):
        Index(tmp_path / "nowhere", create=False)
    built(tmp_path / "index", localizer_of("patches"), videos[:1]).close()
    file = tmp_path / "index" / "catalogue.sqlite"
    file.write_bytes(b"not a catalogue" * 1000)
    with pytest.raises(IndexStoreError, match="is damaged"):
        Index(tmp_path / "index", create=False)
    (tmp_path / "plain").write_text("")
    with pytest.raises(IndexStoreError, match="no index can be made there"):
        Index(tmp_path / "plain", create=True)
    with Index(tmp_path / "empty", create=True) as empty, pytest.raises(IndexStoreError, match="is empty"):
        search(empty, localizer_of("patches"), {"it": Query.from_array(picture(1))})


def test_a_video_that_another_process_writes_is_left_to_it(videos, tmp_path):
    localizer = localizer_of("patches")
    with built(tmp_path, localizer, videos[:1]) as index:
        index.catalogue.update(1, complete=0)
        with index.writing(index.videos()[0]) as mine, Index(tmp_path) as other:
            assert mine
            assert add_file(other, localizer, videos[0]).outcome == BUSY
            with pytest.raises(IndexStoreError, match="being indexed by another process"):
                other.remove(other.videos()[0])


def test_the_folder_is_named_or_the_users_own(monkeypatch, tmp_path):
    monkeypatch.setenv("LASTSEEN_INDEX", "here")
    assert default_folder() == Path("here")
    monkeypatch.delenv("LASTSEEN_INDEX")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert default_folder() == tmp_path / "lastseen" / "index"


def test_listing_needs_no_torch():
    code = "import sys, lastseen.index, lastseen.index.answers; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
