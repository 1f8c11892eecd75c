"""The page: one file that asks for nothing, is well-formed, and can be read anywhere."""

import base64
import io
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from evidence import answer_of
from PIL import Image
from scenes import box_at, thing, write_scene

from lastseen.render import report_html, write_report
from lastseen.render.curve import score_curve
from lastseen.render.svg import curve_html
from lastseen.track import FramePredictions, ResponseTrack
from lastseen.video import Video

PLACE = (100, 50)
VOID = {"meta", "img", "br", "hr", "input", "link"}


@pytest.fixture(scope="module")
def video(tmp_path_factory):
    places = [None] * 3 + [PLACE] * 5 + [None] * 3
    return Video(write_scene(tmp_path_factory.mktemp("report") / "a <b> & 'c'.mp4", places))


@pytest.fixture(scope="module")
def track():
    return ResponseTrack(first_frame=3, fps=5.0, boxes=(box_at(PLACE),) * 5, score=0.9)


@pytest.fixture(scope="module")
def predictions():
    return FramePredictions(fps=5.0, boxes_px=np.zeros((11, 4)), logits=np.linspace(-3, 3, 11))


@pytest.fixture(scope="module")
def page(video, track, predictions):
    return report_html(answer_of(video, [track], thing(), predictions, model="a <model>"), truth=track)


class Nesting(HTMLParser):
    """Fails at a tag that is closed in the wrong place, as browsers would silently mend it."""

    def __init__(self):
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_is_well_formed_as_html_and_as_xml(page):
    parser = Nesting()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    assert page.startswith("<!DOCTYPE html>")
    root = ET.fromstring(page)
    assert root.get("lang") == "en"
    assert [element.tag for element in root] == ["head", "body"]


def test_the_page_asks_for_nothing_outside_itself(page):
    root = ET.fromstring(page)
    for element in root.iter():
        assert element.tag not in ("script", "link", "iframe", "object", "video")
        for name, value in element.attrib.items():
            if name in ("src", "href", "srcset", "data", "poster"):
                assert value.startswith("data:image/jpeg;base64,")
    assert not re.search(r"https?:|@import|url\(", page)
    policy = root.find("head/meta[@http-equiv='Content-Security-Policy']").get("content")
    assert "default-src 'none'" in policy


def test_its_pictures_open_and_say_what_they_are(page):
    images = list(ET.fromstring(page).iter("img"))
    assert len(images) == 2 + 5  # the query, the last moment, the strip of a track of five
    for element in images:
        content = base64.b64decode(element.get("src").partition(",")[2])
        with Image.open(io.BytesIO(content)) as image:
            assert image.size == (int(element.get("width")), int(element.get("height")))
        assert element.get("alt")


def test_it_tells_the_answer_and_quotes_names_safely(page, video):
    root = ET.fromstring(page)
    assert root.find("body/main/h1").text == "Last seen 0:00.6 to 0:01.4, score 0.90"
    assert root.find("head/title").text == root.find("body/main/h1").text
    words = " ".join(root.itertext())
    assert video.path.name in words
    assert "a <model>" in words
    assert str(video.path.parent) not in page  # where it lies is nobody's business


def test_it_is_for_phones_and_for_the_dark(page):
    assert "width=device-width" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media (max-width: 600px)" in page


def test_the_curve_is_svg_with_every_score(page, predictions):
    svg = next(ET.fromstring(page).iter("svg"))
    lines = {line.get("class"): line.get("points").split() for line in svg.iter("polyline")}
    assert {name: len(points) for name, points in lines.items()} == {"raw": 11, "smooth": 11}
    assert {rect.get("class") for rect in svg.iter("rect")} == {"chosen", "true"}
    assert len(list(svg.iter("path"))) == 1


def test_the_curve_greys_out_what_was_not_searched(predictions, track):
    curve = score_curve(answer_of(SimpleNamespace(duration_s=10.0), [track, track], None, predictions))
    svg = next(ET.fromstring(curve_html(curve)).iter("svg"))
    assert {rect.get("class") for rect in svg.iter("rect")} == {"unsearched", "other", "chosen"}


@pytest.mark.parametrize("guessing", [True, False])
def test_not_seen_is_a_page_too(video, track, predictions, guessing):
    root = ET.fromstring(
        report_html(answer_of(video, [], thing(), predictions, guess=track if guessing else None))
    )
    assert root.find("body/main/h1").text.startswith("Not seen")
    assert len(list(root.iter("img"))) == (7 if guessing else 1)


def test_the_page_is_the_same_each_time_and_is_written_whole(video, track, predictions, page, tmp_path):
    write_report(
        tmp_path / "a.html", answer_of(video, [track], thing(), predictions, model="a <model>"), truth=track
    )
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page
    assert [path.name for path in tmp_path.iterdir()] == ["a.html"]
