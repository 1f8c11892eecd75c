"""Damaged features are found when they are read, worked around, said, and repaired."""

import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scenes import texture

from lastseen.errors import IndexStoreError
from lastseen.index import Index, rows
from lastseen.index.answers import answers_dict, answers_text, left_out
from lastseen.index.fine import FineFeatures
from lastseen.index.record import KNOWN, REPAIRED, add_file
from lastseen.index.repair import repair
from lastseen.index.search import search
from lastseen.index.soundness import all_finite, in_words, joined, without
from lastseen.localizer import Localizer
from lastseen.query import Query
from lastseen.sighting import Confidence

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import contents, make_video, tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = {"it": Query.from_array(texture(3, 64, 48, 8))}
SECONDS = 20


@pytest.fixture(scope="module")
def localizer() -> Localizer:
    """Refines, and sees something everywhere."""
    plain = tiny_localizer()
    rule = plain.rule.with_step("extend", min_cosine=0.5).with_step("verify", min_cosine=0.9)
    return plain.with_rule(replace(rule, confidence=Confidence(threshold=0.0)))


@pytest.fixture(scope="module")
def made(tmp_path_factory, localizer) -> Path:
    """A folder with a video and an index of it, to be copied."""
    root = tmp_path_factory.mktemp("made")
    make_video(root / "walk.mp4", SECONDS, 0)
    for keep in ("full", "compact"):
        with Index(root / keep, create=True) as index:
            add_file(index, localizer, root / "walk.mp4", keep=keep)
    return root


@pytest.fixture
def place(made, tmp_path) -> Path:
    """A copy of the index; the video is where it was."""
    return Path(shutil.copytree(made / "full", tmp_path / "index"))


@pytest.fixture
def without_file(made):
    """The video's file is away while a test runs."""
    (made / "walk.mp4").rename(made / "away.mp4")
    yield
    (made / "away.mp4").rename(made / "walk.mp4")


def flip(place: Path, kind: str, frame: int) -> None:
    """One bit of a frame's stored numbers; the most significant one that keeps them finite."""
    with Index(place) as index:
        video = index.videos()[0]
        found = {"fine": index.fine, "compact": index.compact}[kind](video)
        path, at = found._file(0), frame * found.row_bytes + 1
        data = bytearray(path.read_bytes())
        data[at] ^= 0x80
        path.write_bytes(data)


def asked(place: Path, localizer: Localizer, **options):
    with Index(place) as index:
        return search(index, localizer, QUERY, every=True, **options)["it"]


def same(a, b) -> bool:
    return a.sightings == b.sightings and np.array_equal(a.curve.scores, b.curve.scores)


@pytest.mark.parametrize("exhaustive", [True, False])
def test_a_flipped_bit_does_not_change_the_answer_while_the_file_is_there(made, place, localizer, exhaustive):
    (sound,) = asked(made / "full", localizer, exhaustive=exhaustive)
    assert sound.damage == ()
    for kind in ("fine", "compact"):
        flip(place, kind, 40)
    (answer,) = asked(place, localizer, exhaustive=exhaustive)
    assert same(sound, answer)
    said = " ".join(answer.damage)
    assert "walk.mp4: frames 32-63 are damaged in the index and were encoded again from its file" in said
    assert "lastseen index repair 'walk.mp4'" in said
    assert ("compact tokens of frames 32-63 are damaged and were made again" in said) is not exhaustive


@pytest.mark.parametrize("exhaustive", [True, False])
@pytest.mark.parametrize("kinds", [["fine"], ["fine", "compact"]])
def test_without_the_file_damaged_frames_are_not_searched_and_the_rest_is(
    made, place, localizer, without_file, exhaustive, kinds
):
    for kind in kinds:
        flip(place, kind, 40)
    (answer,) = asked(place, localizer, exhaustive=exhaustive)
    searched = answer.curve.searched
    assert not searched[32:64].any()
    assert searched[:32].any() and searched[64:].any()
    assert np.isfinite(answer.curve.scores).all()
    (line,) = answer.damage
    assert line.startswith("walk.mp4: frames 32-63 are damaged in the index and were not searched")
    assert line in answers_text({"it": [answer]}, every=False).splitlines()
    assert answers_dict("i", "m", {"it": [answer]}, every=False)["things"][0]["damaged"] == [line]
    assert line in left_out(answer)
    if exhaustive:
        assert searched.sum() == SECONDS * 5 - 32
        (sound,) = asked(made / "full", localizer, exhaustive=True)
        far = slice(0, 32 - localizer.model.context - 1)
        assert np.array_equal(answer.curve.scores[far], sound.curve.scores[far])


def test_damaged_tokens_are_made_again_from_sound_features(made, place, localizer, without_file):
    (sound,) = asked(made / "full", localizer, candidates=1)
    flip(place, "compact", 3)
    (answer,) = asked(place, localizer, candidates=1)
    assert same(sound, answer)
    with Index(place) as index:
        fine = FineFeatures(index, localizer, index.videos()[0])
        made_again = {start: np.array(part) for start, _, part in fine.token_pieces()}[0]
    whole = contents(made / "full")["walk.mp4:compact"]
    assert whole.startswith(made_again.tobytes())


def test_damaged_tokens_of_a_compact_video_are_made_again_from_the_file(made, tmp_path, localizer):
    place = Path(shutil.copytree(made / "compact", tmp_path / "index"))
    (sound,) = asked(place, localizer, candidates=1)
    flip(place, "compact", 3)
    (answer,) = asked(place, localizer, candidates=1)
    assert same(sound, answer) and "compact tokens of frames 0-31" in answer.damage[0]


def test_the_damage_of_a_video_without_an_answer_is_said_with_the_others(made, place, localizer, tmp_path):
    other = make_video(tmp_path / "other.mp4", 8, 1)
    with Index(place) as index:
        add_file(index, localizer, other, recorded=1e9)
        index.catalogue.update(1, recorded_at=9e8)
        shutil.rmtree(index.place(index.videos()[0]))
        (made / "walk.mp4").rename(made / "away.mp4")
        try:
            answers = search(index, localizer, QUERY, every=True, exhaustive=True)["it"]
            assert [answer.video.name for answer in answers] == ["other.mp4"]
            assert answers[0].damage[0].startswith("walk.mp4: frames 0-99 are damaged")
            with pytest.raises(IndexStoreError, match=r"walk.mp4: frames 0-99 are damaged .* not searched"):
                search(index, localizer, QUERY, videos=[index.videos()[0]])
        finally:
            (made / "away.mp4").rename(made / "walk.mp4")


def test_a_block_is_read_once_to_be_checked(place, localizer, monkeypatch):
    checked = []
    honest = rows.Rows.mapped

    def counting(self, first, end):
        checked.append((self.kind, first, end))
        return honest(self, first, end)

    monkeypatch.setattr(rows.Rows, "mapped", counting)
    with Index(place) as index:
        blocks = {("fine", block.first, block.end) for block in index.catalogue.blocks(1)}
        assert len(blocks) == 4  # of 32 frames at most, so that little is read to check a clip
        for _ in range(2):
            search(index, localizer, QUERY, exhaustive=True)
    # `_stored` reads 64 frames at a time here, so whole blocks are read to be checked only.
    assert all(checked.count(block) == 1 for block in blocks)


def test_numbers_that_are_not_finite_are_damage_not_a_matter_of_the_engine(made, place, localizer):
    (sound,) = asked(made / "full", localizer, exhaustive=True)
    with Index(place) as index:
        video, block = index.videos()[0], index.catalogue.blocks(1)[1]
        fine = index.fine(video)
        stored = fine.read(block.first, block.end)
        stored.view(np.float16)[5, 7] = np.nan
        fine.write(block.first, stored)
        changed = replace(block, fine=fine.checksum(block.first, block.end))
        blocks = [changed if old == block else old for old in index.catalogue.blocks(1)]
        index.catalogue.replace_blocks(1, blocks)
        assert index.verify(video) == ["walk.mp4: fine frames 32-63 are damaged"]
    (answer,) = asked(place, localizer, exhaustive=True)
    assert same(sound, answer) and "frames 32-63 are damaged" in answer.damage[0]


def test_features_that_the_engine_cannot_hold_are_not_indexed(made, tmp_path, localizer, monkeypatch):
    honest = localizer.encode_pictures
    monkeypatch.setattr(localizer, "encode_pictures", lambda pictures: honest(pictures) * torch.inf)
    with (
        Index(tmp_path / "index", create=True) as index,
        pytest.raises(IndexStoreError, match="choose another engine"),
    ):
        add_file(index, localizer, made / "walk.mp4")


# --- repair ---


def test_repair_makes_the_same_bits_again(made, place, localizer):
    whole = contents(made / "full")
    for kind, frame in (("fine", 40), ("fine", 99), ("compact", 3)):
        flip(place, kind, frame)
    with Index(place) as index:
        assert len(index.verify(index.videos()[0])) == 3
        done = repair(index, localizer, index.videos()[0])
        assert done.done == "frames 0-63, 96-99 made again (the same bits as before)" and done.stays == ""
        assert index.verify(index.videos()[0]) == []
        assert repair(index, localizer, index.videos()[0]).done == ""
    assert contents(place) == whole


def test_repair_covers_what_the_blocks_do_not(made, place, localizer):
    whole = contents(made / "full")
    with Index(place) as index:
        blocks = index.catalogue.blocks(1)
        index.catalogue.replace_blocks(1, [blocks[0], replace(blocks[1], first=20), blocks[3]])
        assert "do not cover" in index.verify(index.videos()[0])[0]
        assert repair(index, localizer, index.videos()[0]).stays == ""
        assert index.verify(index.videos()[0]) == []
    assert contents(place) == whole


def test_repair_says_what_it_cannot_do_and_does_the_rest(place, localizer, without_file):
    flip(place, "fine", 40)
    flip(place, "compact", 99)
    with Index(place) as index:
        done = repair(index, localizer, index.videos()[0])
        assert done.done == "frames 96-99 made again (the same bits as before)"
        assert done.stays.startswith("frames 32-63 stay damaged: walk.mp4: ") and "is gone" in done.stays
        assert index.verify(index.videos()[0]) == ["walk.mp4: fine frames 32-63 are damaged"]


def test_repair_does_not_take_another_file_for_the_one_that_was_indexed(made, place, localizer):
    flip(place, "fine", 40)
    (made / "walk.mp4").rename(made / "away.mp4")
    try:
        make_video(made / "walk.mp4", SECONDS, 5)
        with Index(place) as index:
            done = repair(index, localizer, index.videos()[0])
            assert done.done == "" and "is not the file that was indexed" in done.stays
            problems = index.verify(index.videos()[0])
            assert any("walk.mp4 is not the file that was indexed" in line for line in problems)
    finally:
        (made / "away.mp4").replace(made / "walk.mp4")


@pytest.mark.parametrize("loss", ["file", "end", "folder"])
def test_adding_again_repairs_what_is_missing(made, place, localizer, loss):
    with Index(place) as index:
        folder = index.place(index.videos()[0])
        path = folder / "fine-00000000.bin"
        if loss == "folder":
            shutil.rmtree(folder)
        elif loss == "file":
            path.unlink()
        else:
            os.truncate(path, path.stat().st_size - 5)
        done = add_file(index, localizer, made / "walk.mp4")
        assert done.outcome == REPAIRED and "made again (the same bits as before)" in done.note
        assert index.verify(index.videos()[0]) == []
        assert add_file(index, localizer, made / "walk.mp4").outcome == KNOWN
    assert contents(place) == contents(made / "full")


@pytest.mark.parametrize("kind", ["fine", "compact"])
def test_adding_again_repairs_rows_that_are_damaged(made, place, localizer, kind):
    flip(place, kind, 40)
    with Index(place) as index:
        quick = add_file(index, localizer, made / "walk.mp4", check=False)
        assert quick.outcome == KNOWN, "of a folder only files that are missing are noticed"
        done = add_file(index, localizer, made / "walk.mp4")
        assert done.outcome == REPAIRED and "made again (the same bits as before)" in done.note
        assert index.verify(index.videos()[0]) == []
    assert contents(place) == contents(made / "full")


def test_verify_finds_files_that_are_too_long_or_too_many(place, localizer):
    with Index(place) as index:
        video = index.videos()[0]
        folder = index.place(video)
        (folder / "compact-00000512.bin").write_bytes(b"x" * 100)
        with (folder / "fine-00000000.bin").open("ab") as file:
            file.write(b"x")
        (index.folder / "videos" / "000009").mkdir()
        lines = index.verify(video)
        assert [line.rpartition("/")[2] for line in lines] == [
            f"fine-00000000.bin is too long: {100 * video.fine_bytes + 1} bytes instead of "
            f"{100 * video.fine_bytes}",
            "compact-00000512.bin does not belong there",
        ]
        assert [line.rpartition("/")[2] for line in index.problems()] == ["000009 belongs to no video"]
        assert repair(index, localizer, video).done == "2 files removed or cut that were too much"
        assert index.verify(video) == []


def test_an_identity_that_is_not_of_the_content_is_found(place):
    with Index(place) as index:
        index.catalogue.update(1, sha256="0" * 64)
        assert any("two contents" in line for line in index.verify(index.videos()[0]))


def test_ranges_of_frames_are_joined_and_cut():
    assert joined([(8, 10), (0, 4), (3, 6), (6, 7)]) == [(0, 7), (8, 10)]
    assert without(0, 10, [(2, 3), (5, 20), (30, 40)]) == [(0, 2), (3, 5)]
    assert without(5, 10, [(0, 6), (12, 14), (16, 18)]) == [(6, 10)]
    assert in_words([(0, 32), (64, 96)]) == "frames 0-31, 64-95"
    assert in_words([(0, 32), (64, 66), (96, 128), (200, 202)]) == "frames 0-31, 64-65, 96-127 ... (4 places)"


def test_infinities_and_nan_are_told_from_the_largest_numbers(made):
    with Index(made / "full") as index:
        video = index.videos()[0]
        stored = index.fine(video).read(0, 2)
    for number, finite in ((65504, True), (-65504, True), (np.inf, False), (-np.inf, False), (np.nan, False)):
        stored.view(np.float16)[1, 5] = number
        assert all_finite(video, "fine", stored) is finite
