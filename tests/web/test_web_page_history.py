"""Questions that stay on the page, in a real browser, each with an address of its own."""

import re

import pytest
from browser import LATEST, drag, find, give_whole, without
from photos import MARKED, PHOTO

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")
LOADED = "(image) => image.decode().then(() => image.naturalWidth)"


@pytest.fixture
def asked(walk, folder):
    """Two questions: a thing that was found, and then one that was not."""
    walk.set_input_files("#choose", folder / "photo.jpg")
    drag(walk, "#mark canvas", MARKED, PHOTO)
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    give_whole(walk, folder / "other.png")
    find(walk)
    playwright.expect(walk.locator("#answer .moment")).to_have_text("Not seen.")
    playwright.expect(walk.locator("#history li a").first).to_have_attribute("aria-current", "true")
    return walk


def test_each_question_is_kept_with_pictures_words_and_an_address_that_survives_a_reload(asked):
    rows = asked.locator("#history li")
    playwright.expect(rows.nth(0)).to_contain_text("Not seen")
    playwright.expect(rows.nth(1)).to_contain_text(re.compile(r"Last seen 0:02\.\d to 0:03\.[4-8]"))
    playwright.expect(rows.nth(1)).to_contain_text(re.compile(r"walk\.mp4, \d\d:\d\d"))
    for picture in rows.nth(1).locator("img").all():
        assert picture.evaluate(LOADED) > 0
    assert rows.nth(1).locator("img").count() == 2  # of the question, and of the answer
    rows.nth(1).locator("a").click()
    playwright.expect(asked.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(rows.nth(1).locator("a")).to_have_attribute("aria-current", "true")
    address = asked.url
    asked.reload()
    playwright.expect(asked.locator("#answer mark")).to_have_text(LATEST)
    assert asked.url == address
    playwright.expect(asked.locator("#now")).to_have_text(re.compile(r"^0:03\.[4-8]"))
    assert asked.locator("#answer .asked img").evaluate(LOADED) > 0  # what it was asked with
    playwright.expect(asked.locator("#outdated")).to_be_hidden()


def test_a_question_can_be_forgotten(asked):
    forget = asked.locator("#history li").first.locator("button")
    kept = asked.locator("#history li").count()
    asked.once("dialog", lambda dialog: dialog.dismiss())
    forget.click()
    asked.once("dialog", lambda dialog: dialog.accept())
    address = asked.url
    forget.click()
    playwright.expect(asked.locator("#history li")).to_have_count(kept - 1)
    playwright.expect(asked.locator("#answer")).to_be_hidden()  # it was the one that was shown
    playwright.expect(asked.locator("#history [aria-current]")).to_have_count(0)
    assert "#" not in asked.url
    asked.goto(address)
    playwright.expect(asked.locator("#history-problem")).to_contain_text("No such question")


def test_a_question_goes_with_its_video(page, folder):
    page.fill("#path", "long.mp4")
    page.press("#path", "Enter")
    page.wait_for_selector('[aria-label="Remove long.mp4"]')
    page.locator("#videos .name", has_text="long.mp4").click()
    give_whole(page, folder / "other.png")
    find(page)
    playwright.expect(page.locator("#history li a").first).to_contain_text("long.mp4")
    without(page, "long.mp4")
    playwright.expect(page.locator("#history li", has_text="long.mp4")).to_have_count(0)
    playwright.expect(page.locator("#answer")).to_be_hidden()


def test_five_questions_are_listed_and_the_others_at_a_click(asked, folder):
    while asked.locator("#more").is_hidden():
        find(asked)
        playwright.expect(asked.locator("#finding")).to_be_hidden()
        asked.wait_for_timeout(100)
    playwright.expect(asked.locator("#history li")).to_have_count(5)
    asked.click("#more")
    playwright.expect(asked.locator("#more")).to_be_hidden()
    assert asked.locator("#history li").count() > 5
