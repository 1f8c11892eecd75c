"""What cannot be decoded is told from what is there: a frozen picture is no evidence."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest
from videos import number_in, overwrite_packets, pictures, write_streams, write_video

from lastseen.box import Box
from lastseen.errors import QueryError, VideoError
from lastseen.formats.answer_json import answer_dict, answer_json, answer_schema, parse_answer
from lastseen.query import Query
from lastseen.render import answer_text
from lastseen.video import Frame, Video

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from index_kill import tiny_localizer

pytestmark = pytest.mark.usefixtures("one_thread")
QUERY = Query.from_array(np.zeros((48, 64, 3), np.uint8))


def damaged(path: Path, first: int, last: int, frames: int = 500, bframes: int = 0, keys: int = 25) -> Path:
    """Packets `first` to `last`, 25 a second, in decoding order, are zeros."""
    params = f"keyint={keys}:min-keyint={keys}:scenecut=0:bframes={bframes}"
    write_video(path, pictures(frames), gop=keys, options={"x264-params": params})
    overwrite_packets(path, first, last, b"\0")
    return path


def samples(path: Path, **options: bool) -> list[Frame]:
    return list(Video(path, **options).frames(5))


@pytest.mark.parametrize("bframes", [0, 3])
@pytest.mark.parametrize("keys", [25, 250])
def test_moments_that_cannot_be_decoded_are_known(tmp_path: Path, keys: int, bframes: int) -> None:
    """As are those whose pictures may be made from lost ones, up to the next keyframe."""
    path = damaged(tmp_path / "v.mp4", 25, 470, bframes=bframes, keys=keys)
    frames = samples(path, allow_truncated=True)
    right = {frame.index for frame in frames if number_in(frame.image) == 5 * frame.index}
    readable = {frame.index for frame in frames if frame.readable}
    assert readable <= right <= {0, 1, 2, 3, 4, 95, 96, 97, 98, 99}
    assert {0, 1, 2, 3} <= readable and ({95, 96, 97, 98, 99} <= readable) == (keys == 25)
    ahead = Video(path, allow_truncated=True).frames(5, ahead=4)
    assert [frame.readable for frame in ahead] == [frame.readable for frame in frames]


def test_where_no_keyframe_comes_damage_heals(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.mp4", 25, 27, keys=600)
    unreadable = [frame.index for frame in samples(path) if not frame.readable]
    assert unreadable[0] == 5 and unreadable[-1] in (54, 55, 56)


def test_an_avi_too_whose_frames_have_no_stamps_of_their_own(tmp_path: Path) -> None:
    path = write_video(tmp_path / "v.avi", pictures(200), codec="mpeg4", gop=25)
    overwrite_packets(path, 50, 100, b"\0")
    frames = samples(path)
    right = {frame.index for frame in frames if number_in(frame.image) == 5 * frame.index}
    assert {frame.index for frame in frames if frame.readable} <= right
    unreadable = [frame.index for frame in frames if not frame.readable]
    assert unreadable[:10] == [10, 11, 12, 13, 14, 15, 16, 17, 18, 19] and len(unreadable) <= 16


def test_seconds_before_the_first_picture_keep_their_place(tmp_path: Path) -> None:
    frames = samples(damaged(tmp_path / "v.mp4", 0, 25, 100))
    assert [number_in(frame.image) for frame in frames] == [25] * 5 + list(range(25, 100, 5))
    assert [frame.readable for frame in frames] == [False] * 5 + [True] * 15


def test_frames_that_the_decoder_had_to_make_up_are_unreadable(tmp_path: Path) -> None:
    """The decoder hides errors inside a frame and flags it."""
    rng = np.random.default_rng(0)
    path = write_video(tmp_path / "v.mp4", rng.integers(0, 255, (50, 96, 128, 3), np.uint8), gop=5)
    import av

    with av.open(str(path)) as container:
        places = [(packet.pos, packet.size) for packet in container.demux(video=0) if packet.size]
    data = bytearray(path.read_bytes())
    for position, size in places[20:30]:
        assert position is not None
        data[position + size // 2 : position + size // 2 + 40] = b"\xa5" * 40
    path.write_bytes(data)
    frames = samples(path)
    assert 1 <= sum(not frame.readable for frame in frames) <= 4
    assert all(frame.readable for frame in frames[:4] + frames[7:])


def test_a_pause_a_changing_rate_and_sound_alone_are_no_damage(tmp_path: Path) -> None:
    times = [0.0, 0.04, 0.08, 30.0, 30.04, 30.5, 33.0]
    still = write_video(tmp_path / "v.mp4", pictures(7), times)
    fast = write_video(tmp_path / "b.mkv", pictures(200), fps=100, gop=250, options={"bf": "3"})
    webm = write_video(tmp_path / "v.webm", pictures(100), codec="libvpx", options={"auto-alt-ref": "1"})
    sound = write_streams(tmp_path / "s.mkv", pictures(25), sound_s=3.0)
    cut = write_video(tmp_path / "c.ts", pictures(100), gop=25)
    data = cut.read_bytes()
    cut.write_bytes(data[188 * (len(data) // 188 // 3) :])  # recordings of broadcasts begin anywhere
    for path in (still, fast, webm, sound, cut):
        assert all(frame.readable for frame in samples(path, allow_truncated=True)), path.name


def test_an_answer_says_how_much_could_not_be_decoded(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.mp4", 25, 75, 150)
    answer = tiny_localizer().ask(Video(path), QUERY)
    assert answer.unreadable_s == pytest.approx(2.0)
    note = "note: 2.0 s of the video could not be decoded; what was in view then is not known"
    assert answer_text(answer).splitlines()[-1] == note
    said = answer_dict(answer)
    assert said["unreadable"] == 2.0
    jsonschema.validate(said, answer_schema())
    assert parse_answer(answer_json(answer)).unreadable_s == 2.0
    sound = tiny_localizer().ask(Video(write_video(tmp_path / "s.mp4", pictures(50))), QUERY)
    assert sound.unreadable_s == 0.0
    assert "unreadable" not in json.loads(answer_json(sound)) and "note" not in answer_text(sound)


def test_the_end_that_is_missing_counts_as_unreadable(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.mp4", 100, 150, 150)
    assert tiny_localizer().ask(Video(path, allow_truncated=True), QUERY).unreadable_s == pytest.approx(2.0)


def test_a_video_that_is_mostly_unreadable_is_refused_unless_that_is_allowed(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.mp4", 25, 475)
    localizer = tiny_localizer()
    for ask in (localizer.ask, lambda video, query: localizer.predict(video, [query])):
        with pytest.raises(VideoError, match="more than half of it cannot be decoded; ") as caught:
            ask(Video(path), QUERY)
        message = str(caught.value)
        assert message.startswith(f"{path}: ") and "--allow-truncated" in message and "\n" not in message
    assert localizer.ask(Video(path, allow_truncated=True), QUERY).unreadable_s == pytest.approx(18.0)


def test_a_picture_of_the_thing_is_not_taken_from_a_moment_that_cannot_be_decoded(tmp_path: Path) -> None:
    video = Video(damaged(tmp_path / "v.mp4", 25, 75, 150))
    assert not video.frame_at(2.0).readable and video.frame_at(0.5).readable
    with pytest.raises(QueryError, match=r"at 2 s cannot be decoded; choose another moment"):
        Query.from_video(video, 2.0, Box(0, 0, 30, 30))


def test_samples_that_are_left_out_are_counted_too(tmp_path: Path) -> None:
    path = damaged(tmp_path / "v.mp4", 60, 190)
    lost = sum(not frame.readable for frame in samples(path))
    some = list(Video(path).frames(5, every=3))
    assert sum(frame.lost_before + (not frame.readable) for frame in some) == lost > 10
