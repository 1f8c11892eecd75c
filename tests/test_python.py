"""What one guesses in Python works, in a script, a shell and a notebook."""

import base64
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from evidence import answer_of
from PIL import Image
from scenes import PLACES, THERE, box_at, quick_localizer, thing, write_scene

from lastseen import Index, LastSeenError, Query, ResponseTrack, Video
from lastseen.answer import VideoFacts

pytestmark = pytest.mark.usefixtures("one_thread", "remembered")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("python")
    write_scene(root / "walk.mp4", PLACES)
    Image.fromarray(thing()).save(root / "keys.png")
    return root


@pytest.fixture(scope="module")
def answer(folder):
    track = ResponseTrack(first_frame=16, fps=5.0, boxes=(box_at(THERE),) * 6, score=0.9)
    return answer_of(Video(folder / "walk.mp4"), [track], thing())


@pytest.fixture(scope="module")
def of_an_index(answer):
    """The same with facts about the video alone."""
    video = answer.video
    about = {name: getattr(video, name) for name in ("path", "width", "height", "fps", "duration_s")}
    return replace(answer, video=VideoFacts(**about))


def test_dir_lists_the_public_names_before_they_are_loaded(answer):
    code = (
        "import sys, lastseen\n"
        "assert {*lastseen.__all__, '__version__'} <= set(dir(lastseen)), dir(lastseen)\n"
        "assert 'torch' not in sys.modules and not {'Any', 'import_module'} & set(dir(lastseen))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert {"add", "ask"} <= set(dir(Index))
    assert {"last", "save", "save_picture", "save_video", "sightings"} <= set(dir(answer))


@pytest.mark.parametrize(
    "name", ["a.jpg", "a.png", "a.mp4", "a.html", "a.json", "a.coco.json", "a.xml", "a.vtt"]
)
def test_an_answer_is_saved_as_what_the_name_says(answer, of_an_index, tmp_path, name):
    for one in (answer, of_an_index):
        one.save(tmp_path / name)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        (tmp_path / name).unlink()


def test_picture_and_video_have_names_of_their_own(answer, of_an_index, tmp_path):
    for one in (answer, of_an_index):
        one.save_picture(tmp_path / "a.webp")
        one.save_video(str(tmp_path / "a.mp4"))
        with Image.open(tmp_path / "a.webp") as picture:
            assert picture.size == (320, 180)
        assert Video(tmp_path / "a.mp4").duration_s > 2


def test_what_cannot_be_saved_is_one_line(answer, of_an_index, tmp_path):
    empty = replace(answer, sightings=(), best_guess=None)
    gone = replace(of_an_index, video=replace(of_an_index.video, path=Path("gone.mp4")))
    other = replace(of_an_index, video=replace(of_an_index.video, width=100))
    for one, name, says in (
        (answer, "a.doc", "choose a name that ends in .jpg, "),
        (answer, "no/such/a.jpg", "does not exist"),
        (answer, answer.video.path, "same file as the input"),
        (empty, "a.jpg", "not even a guess"),
        (gone, "a.jpg", "gone.mp4"),
        (other, "a.mp4", "not the video of this answer any more"),
    ):
        with pytest.raises(LastSeenError, match=re.escape(says)) as said:
            one.save(tmp_path / name)
        assert "\n" not in str(said.value)
    assert not list(tmp_path.iterdir())


def test_a_notebook_shows_words_and_picture(answer, of_an_index):
    for one in (answer, of_an_index):
        shown = one._repr_html_()
        assert "Last seen from 0:03.2 to 0:04.2, score 0.90.<br>" in shown and "walk.mp4" in shown
        (data,) = re.findall(r"data:image/jpeg;base64,([\w+/=]+)", shown)
        assert base64.b64decode(data)[:3] == b"\xff\xd8\xff"
        assert one._repr_png_()[:4] == b"\x89PNG"
        assert repr(one) == "<Answer: Last seen 0:03.2 to 0:04.2, score 0.90>"
        assert repr(replace(one, preliminary=True)).startswith("<Answer so far: Last seen")
    gone = replace(of_an_index, video=replace(of_an_index.video, path=Path("<b>.mp4")))
    shown = gone._repr_html_()
    assert "Last seen" in shown and "no picture" in shown and "<img" not in shown and "<b>" not in shown
    assert gone._repr_png_() is None


def test_names_of_files_will_do_and_the_order_is_said(folder, tmp_path):
    localizer = quick_localizer()
    video, query = Video(folder / "walk.mp4"), Query.from_image(folder / "keys.png")
    plain = localizer.ask(video, query)
    assert localizer.ask(folder / "walk.mp4", str(folder / "keys.png")).last == plain.last is not None
    with Index(tmp_path / "index", localizer=localizer) as index:
        assert index.add(folder / "walk.mp4").outcome == "added"
        assert index.add(video).outcome == "known"
        assert index.ask(folder / "keys.png").last == plain.last
        with pytest.raises(LastSeenError, match=r"walk.mp4 is a video where the thing is expected"):
            index.ask(video)
    for wrong in ((query, video), (video, video), (None, query), (video, None)):
        with pytest.raises(LastSeenError, match=r"ask\(video, query\)|a query is a Query"):
            localizer.ask(*wrong)
