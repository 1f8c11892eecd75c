"""The virtual head of the development sets: boxes through a window, what is visible, what is a sighting."""

import numpy as np
import pytest
from make_real_pan import there_and_back
from pan_sets import HEIGHT_PX, WIDTH_PX, draw_questions, runs_of, sightings
from virtual_head import View, draw_view

from lastseen.box import Box


def view(centre=(320.0, 180.0), height=180.0, roll_deg=0.0):
    return View(
        centre_px=np.array([centre]), height_px=np.array([height]), roll_rad=np.deg2rad(np.array([roll_deg]))
    )


def mapped(window, box):
    boxes, share = window.boxes(np.array([box], float))
    return boxes[0], share[0]


def test_without_roll_a_box_is_moved_and_scaled():
    box, share = mapped(view(), (300, 160, 360, 190))
    # The window is 240 x 180 from (200, 90), twice enlarged.
    assert box == pytest.approx([200, 140, 320, 200])
    assert share == pytest.approx(1)


def test_what_is_outside_is_cut_off_and_counted():
    box, share = mapped(view(), (180, 120, 220, 150))
    assert box == pytest.approx([0, 60, 40, 120])
    assert share == pytest.approx(0.5)


def test_a_thing_outside_has_nothing_inside():
    assert mapped(view(), (10, 10, 60, 40))[1] == 0


def test_a_quarter_turn_swaps_the_sides():
    box, _ = mapped(view(roll_deg=90), (310, 150, 330, 210))
    assert [box[2] - box[0], box[3] - box[1]] == pytest.approx([120, 40])


def test_a_turned_disc_keeps_its_bounds():
    box, _ = mapped(view(roll_deg=35), (300, 160, 340, 200))
    assert box == pytest.approx([200, 140, 280, 220])


@pytest.mark.parametrize("roll_deg", [-33.0, 0.0, 20.0])
@pytest.mark.parametrize("centre", [(320.0, 180.0), (290.0, 200.0)])
def test_the_box_is_where_the_thing_is_in_the_frame(roll_deg, centre):
    image = np.zeros((360, 640, 3), np.uint8)
    y, x = np.mgrid[:360, :640] + 0.5
    image[((x - 330) / 25) ** 2 + ((y - 170) / 12) ** 2 < 1] = 255
    window = view(centre, 200.0, roll_deg)
    box, share = mapped(window, (305, 158, 355, 182))
    rows, columns = np.nonzero(window.frame(0, image)[..., 0] > 127)
    assert share == pytest.approx(1)
    assert box == pytest.approx([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1], abs=2.5)


@pytest.mark.parametrize("rolls", [False, True])
def test_the_window_never_leaves_the_content(rolls):
    content = Box(81, 0, 559, 360)
    rng = np.random.default_rng(0)
    for _ in range(20):
        path = draw_view(content, 60, rng, rolls=rolls)
        for across, down in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            x = across * path.height_px / 2 * WIDTH_PX / HEIGHT_PX
            y = down * path.height_px / 2
            cosine, sine = np.cos(path.roll_rad), np.sin(path.roll_rad)
            corner = path.centre_px + np.stack([x * cosine - y * sine, x * sine + y * cosine], 1)
            assert (corner >= np.array([content.x1, content.y1]) - 1e-6).all()
            assert (corner <= np.array([content.x2, content.y2]) + 1e-6).all()


def test_a_path_is_smooth():
    path = draw_view(Box(0, 0, 640, 360), 100, np.random.default_rng(1), rolls=True)
    assert np.abs(np.diff(path.centre_px, axis=0)).max() < 90
    assert np.rad2deg(np.abs(np.diff(path.roll_rad))).max() < 15


def test_a_shot_is_played_there_and_back_within_its_frames():
    frames = there_and_back(10, 15, 40, np.random.default_rng(0))
    assert set(frames.tolist()) == {10, 11, 12, 13, 14}
    assert set(np.abs(np.diff(frames)).tolist()) == {1}


def test_a_shot_of_one_frame_stands_still():
    assert there_and_back(7, 8, 4, np.random.default_rng(0)).tolist() == [7, 7, 7, 7]


def shares(text):
    """One letter per frame: V visible, p a bit of it is in the picture, . nothing of it."""
    return np.array([{"V": 0.9, "p": 0.1, ".": 0.0}[letter] for letter in text])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (".VVV.", [(1, 4)]),
        (".VV..", []),
        ("VVV...VVV", [(0, 3), (6, 9)]),
        ("VVVpppVVV", [(0, 3), (6, 9)]),
        ("VVVppVVV", [(0, 8)]),
        ("VVV..VVV", [(0, 3), (5, 8)]),
        ("VpVV", [(0, 4)]),
        ("ppVVVpp", [(2, 5)]),
    ],
)
def test_sightings_are_runs_without_glimpses_and_tiny_gaps(text, expected):
    assert sightings(shares(text)) == expected


def test_a_quarter_of_the_box_is_enough():
    assert sightings(np.array([0.25] * 3)) == [(0, 3)]
    assert sightings(np.array([0.24] * 3)) == []


def test_runs_reach_to_both_ends():
    assert runs_of(np.array([True, False, True, True])) == [(0, 1), (2, 4)]


def test_the_answer_is_the_last_sighting_before_the_question():
    runs = [(5, 10), (20, 26), (28, 40)]  # two frames after the second, there is no time to ask
    for seed in range(50):
        for asked in draw_questions(runs, 60, np.random.default_rng(seed)):
            before = [run for run in runs if run[0] < asked.query_frame]
            assert before[-1] == asked.answer
            assert asked.query_frame >= asked.answer[1] + 3
            assert asked.query_frame <= 60


def test_an_earlier_sighting_is_asked_for_too():
    asked = draw_questions([(5, 10), (20, 26)], 60, np.random.default_rng(0))
    assert [one.answer for one in asked] == [(5, 10), (20, 26)]


def test_a_thing_that_stays_until_the_end_is_not_asked_for():
    assert draw_questions([(5, 59)], 60, np.random.default_rng(0)) == []
