"""What the page says while it searches, and how sure it is of what it says, in a real browser."""

import os
import re
from dataclasses import replace
from datetime import datetime

import pytest
from browser import LATEST, find, give_whole, seek, without
from scenes import quick_localizer
from web import PLACE, Paced, write_walk

from lastseen.localizer import TRAINING_FREE_RULE
from lastseen.refine.zoom import Zoom

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def localizer():
    """It looks closer, in several batches."""
    return Paced(quick_localizer(replace(TRAINING_FREE_RULE, refinement=(Zoom(),)), batch=2))


@pytest.fixture
def slow(localizer):
    """Encoding waits: a search that looks closer takes its time."""
    localizer.hold.set()
    yield localizer.hold
    localizer.hold.clear()


def test_the_answer_so_far_is_shown_as_preliminary_and_becomes_the_answer(walk, folder, slow):
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer .badge")).to_have_text("preliminary")
    playwright.expect(walk.locator("#answer mark")).to_have_text(re.compile(r"^0:03\.\d$"))
    assert walk.locator("#filmstrip .frame").count() > 0
    playwright.expect(walk.locator("#save")).to_have_count(0)  # it is not yet the answer
    playwright.expect(walk.locator("#finding-text")).to_have_text(
        re.compile(r"^Looking closer: \d+ of \d+ frames(, \d+\s(s|min)\sleft)?$")
    )
    assert walk.evaluate("document.activeElement.id") == "cancel"
    walk.locator("#sightings button").nth(1).click()
    slow.clear()
    walk.wait_for_selector("#finding", state="hidden")
    playwright.expect(walk.locator("#answer .badge")).to_have_count(0)
    # The sighting that was chosen meanwhile stays.
    playwright.expect(walk.locator("#answer mark")).to_have_text(re.compile(r"^0:01\.[4-8]$"))
    walk.locator("#sightings button").first.click()
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)


def test_whoever_goes_to_another_moment_meanwhile_is_not_taken_back(walk, folder, slow):
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer .badge")).to_have_text("preliminary")
    seek(walk, 2.2)
    walk.focus("input[type=range]")
    slow.clear()
    walk.wait_for_selector("#finding", state="hidden")
    playwright.expect(walk.locator("#answer .badge")).to_have_count(0)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:02\.[12]"))
    assert walk.evaluate("document.activeElement.type") == "range"
    walk.locator("#sightings button").first.click()
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:03\.[4-8]"))


def test_a_search_that_is_cancelled_after_its_preliminary_answer_leaves_none(walk, folder, slow):
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer .badge")).to_be_visible()
    walk.click("#cancel")
    playwright.expect(walk.locator("#answer")).to_be_hidden()
    playwright.expect(walk.locator("#find")).to_be_focused()
    assert "#" not in walk.url


def test_a_search_goes_on_when_its_page_is_loaded_again(walk, folder, slow):
    give_whole(walk, folder / "thing.png")
    find(walk)
    walk.reload()
    playwright.expect(walk.locator("#finding-text")).to_contain_text("Looking closer")
    slow.clear()
    walk.wait_for_selector("#finding", state="hidden")
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)


def test_an_uploaded_video_keeps_the_date_that_its_file_has(page, folder):
    path = write_walk(folder / "older.mp4", [None] * 6)
    written = datetime(2020, 5, 17, 12).timestamp()
    os.utime(path, (written, written))
    page.set_input_files("#upload", path)
    page.wait_for_selector('[aria-label="Remove older.mp4"]')  # it has been read
    row = page.locator("#videos li", has_text="older.mp4")
    playwright.expect(row).to_contain_text(re.compile(r"17 May 2020 \(the\sfile's\sdate\)"))
    without(page, "older.mp4")


def test_still_in_view_and_a_date_that_is_only_the_files_are_said_to_be(page, folder):
    write_walk(folder / "videos" / "stays.mp4", [None] * 6 + [PLACE] * 6)
    page.fill("#path", "stays.mp4")
    page.press("#path", "Enter")
    page.wait_for_selector('[aria-label="Remove stays.mp4"]')
    page.locator("#videos .name", has_text="stays.mp4").click()
    give_whole(page, folder / "thing.png")
    find(page)
    playwright.expect(page.locator("#answer .large")).to_have_text(
        "in stays.mp4, still in view when the video ends"
    )
    playwright.expect(page.locator("#answer")).to_contain_text(
        re.compile(r" at \d\d:\d\d, by the file's date\.")
    )
    page.locator("input[type=range]").fill("2.00")
    page.check("#before")
    find(page)
    playwright.expect(page.locator("#answer .large")).to_contain_text(
        "still in view where the search ends (0:0"
    )
    without(page, "stays.mp4")
