"""Decoding ahead gives the same frames, and ends when nobody asks any more."""

import threading
import time

import numpy as np
import pytest
from scenes import texture
from videos import write_video

from lastseen.errors import VideoError
from lastseen.video import Video
from lastseen.video.ahead import done_ahead


def counted(log: list[str], until: int = 1000):
    try:
        for number in range(until):
            log.append(f"made {number}")
            yield number
    finally:
        log.append("closed")


def threads() -> int:
    return threading.active_count()


@pytest.mark.parametrize("workers", [1, 4])
def test_results_come_in_order(workers):
    def slowly(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number * number

    got = list(done_ahead(counted([], 40), slowly, depth=5, workers=workers))
    assert got == [number * number for number in range(40)]


def test_only_so_many_are_made_before_they_are_asked_for():
    log: list[str] = []
    results = done_ahead(counted(log), str, depth=3, workers=2)
    assert log == []
    assert next(results) == "0"
    time.sleep(0.3)
    assert 4 <= len(log) <= 6
    results.close()


def test_whoever_stops_asking_ends_the_threads():
    before, log = threads(), []
    for result in done_ahead(counted(log), str, depth=3, workers=2):
        if result == "5":
            break
    del result
    for _ in range(50):
        if threads() == before:
            break
        time.sleep(0.05)
    assert threads() == before
    assert log[-1] == "closed"


def test_an_interrupt_where_results_are_used_ends_the_threads():
    before, log = threads(), []
    results = done_ahead(counted(log), str, depth=3, workers=2)
    with pytest.raises(KeyboardInterrupt):
        next(results)
        results.throw(KeyboardInterrupt())
    assert threads() == before
    assert log[-1] == "closed"


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()])
def test_what_is_raised_comes_out_in_its_place(error):
    def items():
        yield 1
        yield 2
        raise error

    results = done_ahead(items(), str, depth=5, workers=1)
    assert [next(results), next(results)] == ["1", "2"]
    with pytest.raises(type(error)):
        next(results)

    def work(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    results = done_ahead(counted([]), work, depth=5, workers=2)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="two"):
        next(results)


def test_frames_decoded_ahead_are_the_same_frames(tmp_path):
    video = Video(write_video(tmp_path / "v.mp4", [texture(i, 64, 48, 8) for i in range(40)], fps=8))
    for fps in (3.0, 8.0, 20.0):  # fewer than there are, all, and repeated ones
        for start_s, end_s in ((0.0, None), (1.3, 3.9)):
            plain = list(video.frames(fps, start_s, end_s))
            ahead = list(video.frames(fps, start_s, end_s, ahead=4))
            assert [frame.index for frame in plain] == [frame.index for frame in ahead]
            assert all(np.array_equal(a.image, b.image) for a, b in zip(plain, ahead))
    images = [frame.image for frame in video.frames(20.0, ahead=4)]
    images[0][:] = 0
    assert images[1].any()


def test_a_damaged_video_is_an_error_ahead_too(tmp_path):
    path = write_video(tmp_path / "v.mp4", [texture(i, 64, 48, 8) for i in range(60)], fps=5)
    video = Video(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(VideoError):
        list(video.frames(5.0, ahead=4))
