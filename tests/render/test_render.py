"""Pictures and films of an answer: that they show what they should, on any video and any track."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from evidence import answer_of
from PIL import Image
from scenes import box_at, frames, quick_localizer, thing, write_scene
from videos import numbered
from videos import write_video as film_of

from lastseen.box import Box, Letterbox
from lastseen.model.affinity import point_affinity
from lastseen.model.backbone import BackboneConfig
from lastseen.model.vqloc import VQLoC, VQLoCConfig
from lastseen.render import (
    clock,
    draw_affinity,
    draw_answer,
    draw_figure,
    draw_filmstrip,
    report_html,
    write_affinity,
    write_cutout,
    write_figure,
    write_filmstrip,
    write_picture,
    write_video,
)
from lastseen.render.affinity import over_frame
from lastseen.render.canvas import BLUE, CYAN, WHITE, YELLOW, Canvas
from lastseen.render.curve import score_curve, tick_text, time_ticks
from lastseen.render.moments import around, moments
from lastseen.render.still import answer_picture
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video
from lastseen.words import caption, headline

pytestmark = pytest.mark.usefixtures("one_thread")
PLACE = (100, 50)
FIRST, COUNT, TOTAL = 3, 5, 11


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    places = [None] * FIRST + [PLACE] * COUNT + [None] * (TOTAL - FIRST - COUNT)
    return Video(write_scene(tmp_path_factory.mktemp("render") / "walk.mp4", places))


@pytest.fixture(scope="module")
def track():
    return ResponseTrack(first_frame=FIRST, fps=5.0, boxes=(box_at(PLACE),) * COUNT, score=0.9)


@pytest.fixture(scope="module")
def predictions():
    logits = np.full(TOTAL, -3.0)
    logits[FIRST : FIRST + COUNT] = 2.0
    boxes = np.tile(np.array(box_at(PLACE).xyxy), (TOTAL, 1))
    return FramePredictions(fps=5.0, boxes_px=boxes, logits=logits)


def pixels(image: np.ndarray, colour: tuple[int, int, int], tolerance: int = 0) -> int:
    return int((np.abs(image.astype(int) - colour).max(-1) <= tolerance).sum())


# --- stills ---


def test_the_box_is_drawn_where_it_is(video, track):
    image = draw_answer(np.zeros((180, 320, 3), np.uint8), track.last_box)
    rows, columns = np.nonzero((image == YELLOW).all(-1))
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (100, 50, 164, 114)


def test_a_box_outside_the_picture_is_drawn_at_its_rim():
    image = draw_answer(np.zeros((60, 80, 3), np.uint8), Box(-50, -50, 500, 500))
    rows, columns = np.nonzero((image == YELLOW).all(-1))
    assert (columns.min(), rows.min(), columns.max(), rows.max()) == (0, 0, 79, 59)


@pytest.mark.parametrize(
    "box", [Box(2, 150, 60, 178), Box(250, 5, 315, 60), Box(2, 5, 60, 40), Box(250, 120, 318, 178)]
)
def test_words_and_the_thing_do_not_hide_the_box(box):
    bare = draw_answer(np.zeros((180, 320, 3), np.uint8), box)
    full = draw_answer(np.zeros((180, 320, 3), np.uint8), box, "last seen 0:33.6   score 0.87", thing())
    assert pixels(full, YELLOW) == pixels(bare, YELLOW)
    assert pixels(full, WHITE) > 300  # they are there


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.webp"])
def test_a_picture_is_written_by_its_ending(video, track, tmp_path, name):
    write_picture(tmp_path / name, answer_of(video, [track], thing()))
    with Image.open(tmp_path / name) as image:
        assert image.size == (320, 180)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_the_picture_of_a_thing_not_seen_shows_the_guess_as_one(video, track):
    guess = answer_picture(answer_of(video, [], guess=track))
    seen = answer_picture(answer_of(video, [track]))
    assert 0 < pixels(guess, YELLOW) < 0.7 * pixels(seen, YELLOW)  # dashed
    assert caption(answer_of(video, [], guess=track)) == "not seen; best guess 0:01.4   score 0.90"
    assert "best guess at 0:01.4" in report_html(answer_of(video, [], guess=track))


# --- the figure ---


def test_the_figure_shows_answer_and_peak_and_truth_only_if_known(video, track, predictions):
    plain = draw_figure(answer_of(video, [track], thing(), predictions))
    with_truth = draw_figure(answer_of(video, [track], thing(), predictions), truth=track)
    assert plain.shape[1] == 1600
    assert plain.shape == with_truth.shape
    assert pixels(plain, YELLOW) > 2000
    assert pixels(plain, BLUE) > 50
    assert pixels(plain, CYAN) == 0
    assert pixels(with_truth, CYAN) > 1000


def test_the_figure_without_predictions_has_no_plot(video, track, predictions):
    assert (
        draw_figure(answer_of(video, [track], thing())).shape[0]
        < draw_figure(answer_of(video, [track], thing(), predictions)).shape[0]
    )


def test_the_figure_of_a_thing_not_seen_shows_the_guess_or_the_video(video, track, predictions):
    guess = draw_figure(answer_of(video, [], thing(), predictions, guess=replace(track, score=0.2)))
    assert pixels(guess, YELLOW) > 2000
    nothing = draw_figure(answer_of(video, [], thing(), predictions))
    assert pixels(nothing, BLUE) == 0
    assert nothing.shape == guess.shape


def test_the_figure_doubles_for_print(video, track, predictions):
    single = draw_figure(answer_of(video, [track], thing(), predictions))
    double = draw_figure(answer_of(video, [track], thing(), predictions), scale=2)
    np.testing.assert_allclose(double.shape[:2], 2 * np.array(single.shape[:2]), atol=1)


@pytest.mark.parametrize(("width", "height"), [(90, 160), (320, 64), (66, 48)])
def test_the_figure_and_the_strip_suit_any_shape_of_video(tmp_path, width, height):
    tall = Video(film_of(tmp_path / "v.mp4", [numbered(i, width, height) for i in range(6)], fps=5))
    one = ResponseTrack(first_frame=5, fps=5.0, boxes=(Box(1, 1, 30, 30),), score=0.5)
    predictions = FramePredictions(fps=5.0, boxes_px=np.zeros((6, 4)), logits=np.arange(6.0))
    figure = draw_figure(answer_of(tall, [one], thing()[:8], predictions), truth=one)
    assert 300 < figure.shape[0] < 900
    strip = draw_filmstrip(answer_of(tall, [one], thing()[:, :8]))
    assert strip.shape[0] < 500  # one frame and the query, side by side


def test_figures_and_strips_are_written_whole(video, track, predictions, tmp_path):
    write_figure(tmp_path / "figure.png", answer_of(video, [track], thing(), predictions))
    write_filmstrip(tmp_path / "strip.jpg", answer_of(video, [track]))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure.png", "strip.jpg"]
    with Image.open(tmp_path / "strip.jpg") as image:
        assert image.width == 1600


def test_moments_are_spread_over_the_track_and_a_short_one_has_few(video, track):
    times = [moment.time_s for moment in moments(video, track, 4)]
    np.testing.assert_allclose(times, np.linspace(0.6, 1.4, 4))
    assert len(moments(video, track, 50)) == COUNT
    assert len(moments(video, replace(track, boxes=track.boxes[:1]), 4)) == 1
    assert [moment.box for moment in moments(video, None, 3)] == [None] * 3


@pytest.mark.parametrize(
    "box", [Box(0, 0, 5, 5), Box(600, 300, 640, 360), Box(0, 0, 640, 360), Box(9, 9, 9, 9)]
)
def test_a_zoom_keeps_its_shape_holds_the_box_and_stays_in_the_frame(box):
    window = around(box, 640, 360, 2.0)
    assert window.width / window.height == pytest.approx(2.0)
    assert min(window.x1, window.y1) >= 0
    assert window.x2 <= 640
    assert window.y2 <= 360
    if box.width < 640:
        assert window.clipped(640, 360).x1 <= box.x1
        assert window.x2 >= box.x2


def test_a_name_that_is_too_long_loses_its_middle():
    canvas = Canvas(10, 10)
    short = canvas.shortened("a_very_long_name_of_a_video_that_does_not_fit.mp4", 16, 150)
    assert canvas.text_width(short, 16) <= 150
    assert short.startswith("a_")
    assert short.endswith(".mp4")
    assert canvas.shortened("walk.mp4", 16, 150) == "walk.mp4"


# --- the curve ---


def test_a_long_video_is_drawn_coarsely_but_no_peak_is_lost():
    logits = np.full(18_000, -5.0)
    logits[9_000:9_010] = 3.0
    hour = FramePredictions(fps=5.0, boxes_px=np.zeros((18_000, 4)), logits=logits)
    track = ResponseTrack(first_frame=9_000, fps=5.0, boxes=(Box(0, 0, 1, 1),) * 10, score=0.9)
    curve = score_curve(answer_of(SimpleNamespace(duration_s=3600.0), [track], None, hour), columns=600)
    assert len(curve.smooth) == len(curve.times_s) == 600
    assert curve.smooth.max() == pytest.approx(0.9526, abs=1e-3)
    assert curve.peaks[0][0] == pytest.approx(1800, abs=2)
    assert curve.chosen == (1800.0, 1802.0)


def test_the_curve_knows_where_the_search_ended(predictions):
    for duration_s in (60.0, 2.2):
        curve = score_curve(answer_of(SimpleNamespace(duration_s=duration_s), [], None, predictions))
        assert curve.searched_s == pytest.approx(2.2)


@pytest.mark.parametrize("duration_s", [0.2, 3.0, 46.0, 600.0, 5_000.0, 200_000.0])
def test_ticks_are_few_and_start_at_0(duration_s):
    ticks = time_ticks(duration_s, 7)
    assert ticks[0] == 0
    assert 1 <= len(ticks) <= 7
    assert ticks[-1] <= duration_s
    assert len(ticks) > 2 or duration_s < 1


def test_times_are_written_as_clocks():
    assert [tick_text(t) for t in (0, 0.5, 90, 3600, 3725)] == [
        "0:00",
        "0:00.5",
        "1:30",
        "1:00:00",
        "1:02:05",
    ]
    assert clock(65.4) == "1:05.4"


def test_the_headline_tells_the_last_sighting_the_guess_or_nothing(video, track):
    assert headline(answer_of(video, [replace(track, first_frame=0), track], guess=None)).startswith(
        "Last seen 0:00.6 to 0:01.4"
    )
    assert headline(answer_of(None, [], guess=track)).startswith("Not seen; best guess 0:00.6")
    assert headline(answer_of(None, [], guess=None)) == "Not seen"


# --- films ---


def test_the_cutout_is_the_moment_as_it_was(video, track, tmp_path):
    write_cutout(tmp_path / "cut.mp4", answer_of(video, [track]), margin_s=0.4)
    cut = Video(tmp_path / "cut.mp4")
    assert cut.duration_s == pytest.approx(COUNT / 5 + 0.8, abs=0.05)
    original = video.frame_at(track.start).image
    assert difference(cut.frame_at(0.4).image, original) < 3


def test_films_with_boxes_show_them(video, track, tmp_path):
    write_cutout(tmp_path / "cut.mp4", answer_of(video, [track]), margin_s=0.4, boxes=True)
    write_video(tmp_path / "film.mp4", answer_of(video, [track]), margin_s=0.4)
    original = video.frame_at(track.start).image
    drawn = draw_answer(original, track.boxes[0], clock(track.start))
    for name in ("cut.mp4", "film.mp4"):
        image = Video(tmp_path / name).frame_at(0.4).image
        assert difference(image, drawn) < 3 < difference(image, original)


def difference(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(one.astype(int) - other).mean())


# --- affinity ---


def test_a_point_of_the_thing_is_most_like_the_thing_in_the_frame(tmp_path):
    matcher = quick_localizer().model
    picture, frame = torch.from_numpy(thing()), torch.from_numpy(frames([PLACE])[0])
    similarity = point_affinity(matcher, picture, Box(0, 0, 64, 64), (32, 32), frame)
    letterbox = matcher.letterbox(320, 180)
    assert similarity.shape == (letterbox.canvas_height // 14, letterbox.canvas_width // 14)
    heat = over_frame(similarity.numpy(), letterbox)
    y, x = np.unravel_index(heat.argmax(), heat.shape)
    assert 100 <= x < 164
    assert 50 <= y < 114
    write_affinity(
        tmp_path / "affinity.png", picture.numpy(), (32, 32), frame.numpy(), similarity.numpy(), letterbox
    )
    with Image.open(tmp_path / "affinity.png") as image:
        assert pixels(np.array(image.convert("RGB")), BLUE) > 50  # the point


def test_affinity_takes_a_vqloc_and_finds_the_same_patch_again():
    torch.manual_seed(0)
    backbone = BackboneConfig(dim=64, depth=2, heads=2)
    model = VQLoC.from_config(VQLoCConfig(backbone=backbone, image_size=224, dim=32, clip_length=4)).eval()
    picture = torch.from_numpy(frames([PLACE])[0][:180, :180].copy())
    similarity = point_affinity(model, picture, Box(0, 0, 180, 180), (150, 30), picture)
    assert similarity.shape == (16, 16)
    assert similarity.max() <= 1 + 1e-5
    row, column = divmod(int(similarity.argmax()), 16)
    assert abs(row - 30 / 180 * 16) < 2.5
    assert abs(column - 150 / 180 * 16) < 2.5


def test_heat_lies_on_the_frame_where_the_canvas_has_it():
    letterbox = Letterbox.square(640, 360, 448)
    similarity = np.zeros((32, 32), np.float32)
    similarity[16, 24] = 1.0
    heat = over_frame(similarity, letterbox)
    assert heat.shape == (360, 640)
    y, x = np.unravel_index(heat.argmax(), heat.shape)
    cell = np.array([24, 16, 25, 17]) / 32
    x1, y1, x2, y2 = letterbox.to_px(cell)
    assert x1 <= x <= x2
    assert y1 <= y <= y2


def test_flat_affinity_is_no_reason_to_fail():
    image = draw_affinity(
        thing(), (0, 0), frames([None])[0], np.ones((18, 32)), Letterbox.snug(320, 180, 448, 14)
    )
    assert image.shape[0] > 400
