"""The page in a real browser, as a person uses it."""

import re
from pathlib import Path

import pytest
from browser import LATEST, PHONE, drag, find, give_whole, seek, without
from scenes import SIDE, box_at, frames
from videos import write_video
from web import EARLIER, PLACE, PLACES

from lastseen.box import Box

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")


def yellow_at(page, box: Box) -> bool:
    """Whether the answer's colour is on the left edge of a box on the player."""
    return page.locator("#stage canvas").evaluate(
        """(canvas, [x1, y1, x2, y2]) => {
          const [sx, sy] = [canvas.width / 320, canvas.height / 180];
          const pen = canvas.getContext("2d");
          const reach = Math.round(24 * sx);
          const x = Math.max(0, Math.round(x1 * sx) - reach);
          const row = pen.getImageData(x, Math.round(((y1 + y2) / 2) * sy), 2 * reach, 1).data;
          for (let i = 0; i < row.length; i += 4)
            if (row[i] > 240 && row[i + 1] > 190 && row[i + 2] < 60 && row[i + 3] > 200) return true;
          return false;
        }""",
        list(box.xyxy),
    )


def test_a_box_drawn_in_the_video_finds_the_thing_and_its_moments_can_be_visited(walk):
    seek(walk, 1.2)
    drag(walk, "#stage canvas", box_at(EARLIER), (320, 180))
    walk.wait_for_selector("#thing .picture:not([hidden])")
    playwright.expect(walk.locator("#thing-where")).to_contain_text("walk.mp4 at 0:01.2")
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:03\.[4-8] / 0:04\.6$"))
    playwright.expect(walk.locator("#sightings h2")).to_have_text("Seen 2 times")
    assert yellow_at(walk, box_at(PLACE))
    assert walk.locator("#filmstrip .frame").count() >= 4
    assert walk.locator("#filmstrip svg").count() == walk.locator("#filmstrip .frame").count()
    walk.locator("#filmstrip .frame").first.click()
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:0(2\.[6-9]|3\.0)"))
    walk.locator(".band").first.click()  # the earlier sighting, on the curve
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:01\.[4-8]"))
    assert yellow_at(walk, box_at(EARLIER))
    walk.locator(".curve").click(position={"x": 20, "y": 30})
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:00\."))
    with walk.expect_download() as saved:
        walk.click("text=Save as")
        walk.click("text=CSV")
    assert "x1" in Path(saved.value.path()).read_text()


def test_a_picture_finds_the_thing_and_the_second_question_is_quick(walk, folder):
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    drag(walk, "#thing canvas", Box(4, 4, 60, 60), (SIDE, SIDE))
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    walk.check("#before")
    seek(walk, 2.4)
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(re.compile(r"0:01\.[4-8]"))


def test_not_seen_is_said_plainly_and_the_guess_is_behind_a_click(walk, folder):
    give_whole(walk, folder / "other.png")
    find(walk)
    playwright.expect(walk.locator("#answer .moment")).to_have_text("Not seen.")
    assert walk.locator("mark").count() == 0
    assert walk.locator("#filmstrip .frame").count() == 0
    walk.click("#guess")
    playwright.expect(walk.locator("#answer")).to_contain_text("The best guess is")
    assert walk.locator("#filmstrip .frame").count() > 0
    assert walk.locator("#filmstrip rect.guess").count() > 0


def test_pasted_and_dropped_pictures_are_taken(walk, folder):
    picture = (folder / "thing.png").read_bytes()
    give = """([kind, bytes]) => {
      const data = new DataTransfer();
      data.items.add(new File([new Uint8Array(bytes)], "thing.png", { type: "image/png" }));
      const event = kind === "paste" ? new ClipboardEvent("paste", { clipboardData: data, bubbles: true })
                                     : new DragEvent("drop", { dataTransfer: data, bubbles: true });
      document.body.dispatchEvent(event);
    }"""
    for kind in ("paste", "drop"):
        walk.evaluate(give, [kind, list(picture)])
        walk.wait_for_selector("#mark .picture:not([hidden])")
        walk.click("#clear")
        playwright.expect(walk.locator("#mark")).to_be_hidden()
        playwright.expect(walk.locator("#find")).to_be_disabled()


def test_everything_can_be_done_with_the_keyboard(walk):
    walk.locator("#stage canvas").focus()
    seek(walk, 0.0)
    walk.locator("#stage canvas").focus()
    walk.keyboard.press("ArrowRight")
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:01\.0"))
    walk.keyboard.press("Shift+ArrowRight")
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:01\.2"))
    walk.keyboard.press("Space")
    playwright.expect(walk.locator("#play")).to_have_text("Pause")
    walk.keyboard.press("Space")
    playwright.expect(walk.locator("#play")).to_have_text("Play")
    seek(walk, 1.2)
    walk.locator("#stage canvas").focus()
    walk.keyboard.press("b")  # a box in the middle, 0.3 of the picture
    for _ in range(11):
        walk.keyboard.press("ArrowLeft")
    walk.keyboard.press("Shift+ArrowDown")
    walk.keyboard.press("Enter")
    walk.wait_for_selector("#find:enabled")
    walk.keyboard.press("Enter")
    walk.wait_for_selector("#answer:not([hidden])")
    assert walk.evaluate("document.activeElement.id") == "answer"


def test_reading_a_video_shows_progress_can_be_cancelled_and_goes_on(page, localizer):
    without(page, "long.mp4")
    localizer.hold.set()
    try:
        page.fill("#path", "long.mp4")
        page.press("#path", "Enter")
        playwright.expect(page.locator("#videos")).to_contain_text(re.compile(r"Reading, [1-9]\d? %"))
        page.click('[aria-label="Cancel reading long.mp4"]')
        page.wait_for_selector('[aria-label="Go on reading long.mp4"]')
    finally:
        localizer.hold.clear()
    page.click('[aria-label="Go on reading long.mp4"]')
    page.wait_for_selector('[aria-label="Remove long.mp4"]')


def test_a_search_can_be_cancelled(page, folder, localizer):
    without(page, "long.mp4")
    localizer.hold.set()
    try:
        page.fill("#path", "long.mp4")
        page.press("#path", "Enter")
        page.wait_for_selector('[aria-label="Cancel reading long.mp4"]')
        give_whole(page, folder / "thing.png")
        page.wait_for_selector("#find:enabled")
        page.click("#find")
        page.wait_for_selector("#finding progress")
        page.keyboard.press("Escape")
        page.wait_for_selector("#finding", state="hidden")
        assert page.locator("#answer").is_hidden()
        page.click('[aria-label="Cancel reading long.mp4"]')
        page.wait_for_selector('[aria-label="Go on reading long.mp4"]')
    finally:
        localizer.hold.clear()


def test_a_photo_that_is_being_marked_stays_when_a_video_has_come(page, folder):
    without(page, "long.mp4")
    page.set_input_files("#choose", folder / "thing.png")
    page.wait_for_selector("#mark:not([hidden])")
    page.fill("#path", "long.mp4")
    page.press("#path", "Enter")
    page.wait_for_selector('#videos [aria-current="true"]:text("long.mp4")')
    page.check("#whole")  # still there
    page.click("#fold")
    playwright.expect(page.locator("#shown")).to_have_text("long.mp4")
    page.wait_for_selector('[aria-label="Remove long.mp4"]')


def test_a_file_that_is_no_video_is_one_clear_message(page, folder):
    page.set_input_files("#upload", folder / "text.mp4")
    playwright.expect(page.locator("#videos .problem")).to_contain_text("text.mp4 is not a video")
    page.click('[aria-label="Dismiss text.mp4"]')
    assert page.locator("#videos", has_text="text.mp4").count() == 0


def test_a_video_that_the_browser_cannot_play_is_shown_in_stills(page, folder):
    old = write_video(folder / "videos" / "old.avi", frames(PLACES), fps=5, codec="mpeg4")
    page.set_input_files("#upload", old)
    page.wait_for_selector('[aria-label="Remove old.avi"]')
    playwright.expect(page.locator("#stills")).to_be_visible()
    seek(page, 3.2)
    drag(page, "#stage canvas", box_at(PLACE), (320, 180))
    playwright.expect(page.locator("#thing-where")).to_have_text("old.avi at 0:03.2")
    find(page)
    playwright.expect(page.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(page.locator(".still")).to_have_attribute("src", re.compile(r"time=3\.[4-8]"))
    without(page, "old.avi")


def nameless(page) -> list[str]:
    """Controls that a screen reader could not name."""
    return page.evaluate(
        """() => {
          const named = (e) => e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length;
          const controls = [...document.querySelectorAll("button, a, input, canvas")];
          return controls.filter((e) => !e.closest("[hidden]") && !named(e)).map((e) => e.outerHTML);
        }"""
    )


def test_the_page_fits_a_phone_and_every_control_has_a_name(walk, folder):
    walk.set_viewport_size(PHONE)
    give_whole(walk, folder / "thing.png")
    assert nameless(walk) == []
    find(walk)
    assert walk.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert nameless(walk) == []


def test_programs_have_a_page_of_all_requests(page, address):
    """Everything that /openapi.json describes, drawn by this server alone."""
    described = page.request.get(f"{address}openapi.json").json()["paths"]
    page.locator("footer a").click()
    page.wait_for_selector("#requests section")
    shown = page.locator("#requests h2").all_inner_texts()
    assert sorted(shown) == sorted(
        f"{m.upper()} {path}" for path, methods in described.items() for m in methods
    )
    find = page.locator("#requests section", has_text="POST /api/find")
    assert "looks" in find.inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
