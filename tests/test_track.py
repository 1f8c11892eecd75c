import json

import pytest

from lastseen.box import Box
from lastseen.errors import TrackError
from lastseen.track import ResponseTrack


def test_boxes_between_sampled_frames_are_interpolated():
    track = ResponseTrack(first_frame=10, fps=5.0, boxes=(Box(0, 0, 10, 10), Box(10, 0, 20, 10)), score=0.9)
    assert track.box_at(2.1) == Box(5, 0, 15, 10)
    assert track.box_at(1.95) == Box(0, 0, 10, 10)
    assert track.box_at(1.8) is None
    assert track.box_at(2.5) is None


def test_a_track_goes_to_json_and_back():
    track = ResponseTrack(first_frame=7, fps=5.0, boxes=(Box(1.5, 2, 3, 4), Box(2, 2, 4, 4)), score=0.75)
    again = ResponseTrack.from_json(track.to_json())
    assert again == track
    assert json.loads(track.to_json())["start"] == 1.4


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        "null",
        '{"schema": "something else"}',
        '{"schema": "lastseen/track@1"}',
        '{"schema": "lastseen/track@1", "fps": 5, "score": 1, "boxes": []}',
        '{"schema": "lastseen/track@1", "fps": 0, "score": 1, "boxes": [{"frame":1,"x1":0,"y1":0,"x2":1,"y2":1}]}',  # noqa: E501
        '{"schema": "lastseen/track@1", "fps": 5, "score": 1, "boxes": [{"frame":1,"x1":0,"y1":0,"x2":1}]}',
        '{"schema": "lastseen/track@1", "fps": 5, "score": "high", "boxes": []}',
    ],
)
def test_a_broken_track_is_one_clear_line(broken):
    with pytest.raises(TrackError) as caught:
        ResponseTrack.from_json(broken)
    assert "\n" not in str(caught.value)


def test_a_track_with_a_gap_is_refused():
    track = ResponseTrack(first_frame=0, fps=5.0, boxes=(Box(0, 0, 1, 1),) * 3, score=1.0).to_dict()
    del track["boxes"][1]
    with pytest.raises(TrackError, match="consecutive"):
        ResponseTrack.from_dict(track)
