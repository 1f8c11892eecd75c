"""Accessibility of the page in its main states, by axe-core, which is not in this repository:

npm pack axe-core && tar xzf axe-core-*.tgz && AXE=package/axe.min.js pytest tests/web/test_web_page_axe.py
"""

import os
from pathlib import Path

import pytest
from browser import DESKTOP, LATEST, PHONE, drag, find, give_whole
from photos import MARKED, PHOTO

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif("AXE" not in os.environ, reason="needs axe-core: AXE=package/axe.min.js"),
]


def findings(page) -> list[str]:
    """What axe-core finds, of any impact, in light and dark, on a desktop and on a phone."""
    found = []
    for size in (DESKTOP, PHONE):
        for scheme in ("light", "dark"):
            page.set_viewport_size(size)
            page.emulate_media(color_scheme=scheme)
            page.wait_for_timeout(100)
            page.evaluate(Path(os.environ["AXE"]).read_text())
            for each in page.evaluate("axe.run()")["violations"]:
                where = [node["html"][:150] for node in each["nodes"][:3]]
                found.append(f"{each['impact']}, {scheme}, {size['width']} wide: {each['help']} {where}")
    page.set_viewport_size(DESKTOP)
    return found


def test_axe_finds_nothing_from_the_first_video_to_the_answer(page, folder):
    playwright.expect(page.locator("#welcome")).to_be_visible()
    assert findings(page) == []
    page.set_input_files("#upload", folder / "text.mp4")
    page.wait_for_selector("#videos .problem")
    page.set_input_files("#upload", folder / "videos" / "walk.mp4")
    page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    assert findings(page) == []
    page.set_input_files("#choose", folder / "photo.jpg")
    page.wait_for_selector("#mark .picture:not([hidden])")
    assert findings(page) == []
    drag(page, "#mark canvas", MARKED, PHOTO)
    find(page)
    playwright.expect(page.locator("#answer mark")).to_have_text(LATEST)
    page.click("text=Save as")
    page.click("#zoom")
    assert findings(page) == []


def test_axe_finds_nothing_with_several_pictures_and_several_questions(walk, folder):
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    walk.click("#add")
    assert findings(walk) == []
    give_whole(walk, folder / "other.png")
    walk.click("#fold")
    playwright.expect(walk.locator("#outdated")).to_be_visible()
    assert findings(walk) == []
    walk.click('[aria-label="Remove picture 1"]')
    find(walk)
    playwright.expect(walk.locator("#answer .moment")).to_have_text("Not seen.")
    assert findings(walk) == []
    walk.click("#guess")
    assert findings(walk) == []
    walk.locator("#history li a").nth(1).click()
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    assert findings(walk) == []


def test_axe_finds_nothing_while_it_searches_and_in_the_list_of_requests(walk, folder, localizer):
    localizer.hold.set()
    try:
        give_whole(walk, folder / "thing.png")
        walk.click("#find")
        walk.wait_for_selector("#finding:not([hidden])")
        assert findings(walk) == []
    finally:
        localizer.hold.clear()
    walk.goto(walk.url.split("#")[0] + "api")
    walk.wait_for_selector("#requests section")
    assert findings(walk) == []
