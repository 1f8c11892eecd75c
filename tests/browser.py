"""The page in a browser, for tests: what is watched, and what a person does with it."""

from __future__ import annotations

import os
import re
import shutil

from lastseen.box import Box

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
NO_BROWSER = "there is no Chromium: apt install chromium, or let the variable CHROMIUM name a browser"


def find_chromium() -> str | None:
    """The browser that the variable CHROMIUM names, by its path or on PATH; else a known name on PATH."""
    named = os.environ.get("CHROMIUM")
    return next((path for name in ([named] if named else NAMES) if (path := shutil.which(name))), None)


CHROMIUM = find_chromium()
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 375, "height": 812}
PATIENCE_MS = 60_000  # a busy machine is no failure
LATEST = re.compile(r"0:03\.[4-8]")  # the thing leaves the view after 3.6 s


class Watched:
    """A page, and everything that went wrong in it or left this machine."""

    def __init__(self, browser, address: str, **options) -> None:
        self.context = browser.new_context(viewport=DESKTOP, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", self._said)
        self.page.on("request", lambda asked: self._went(asked.url, address))
        self.page.goto(address)

    def _said(self, message) -> None:
        if message.type == "error" and "status of 4" not in message.text:
            self.wrong.append(message.text)

    def _went(self, url: str, address: str) -> None:
        if not url.startswith(address):
            self.wrong.append(f"asked for {url}")


def without(page, name: str) -> None:
    """Remove a video that another test may have added."""
    remove = page.locator(f'[aria-label="Remove {name}"]')
    if remove.count():
        page.once("dialog", lambda dialog: dialog.accept())
        remove.click()
        from playwright.sync_api import expect  # tests without a browser do not need it

        expect(remove).to_have_count(0)


def seek(page, time_s: float) -> None:
    from playwright.sync_api import expect

    page.locator("input[type=range]").fill(f"{time_s:.2f}")
    shown = re.compile(rf"^0:0{int(time_s)}\.")
    expect(page.locator("#now")).to_have_text(shown)


def drag(page, selector: str, box: Box, size: tuple[int, int]) -> None:
    """Draw a box, given in pixels of the picture, on a canvas."""
    page.locator(selector).scroll_into_view_if_needed()
    area = page.locator(selector).bounding_box()
    sx, sy = area["width"] / size[0], area["height"] / size[1]
    page.mouse.move(area["x"] + box.x1 * sx, area["y"] + box.y1 * sy)
    page.mouse.down()
    page.mouse.move(area["x"] + box.x2 * sx - 5, area["y"] + box.y2 * sy - 5)
    page.mouse.move(area["x"] + box.x2 * sx, area["y"] + box.y2 * sy)
    page.mouse.up()


def give_whole(page, path) -> None:
    """A picture that is the thing, all of it."""
    page.set_input_files("#choose", path)
    page.wait_for_selector("#mark:not([hidden]) #whole:not(:checked)")
    page.check("#whole")


def find(page) -> None:
    page.wait_for_selector("#find:enabled")
    page.click("#find")
    page.wait_for_selector("#answer:not([hidden])")
