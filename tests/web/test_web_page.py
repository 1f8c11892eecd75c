"""The page in a real browser, as a person uses it.

LASTSEEN_PICTURES=1 makes the last test write docs/pictures/web_*.png with the bundled model and demo.
"""

import os
import re
import shutil
from importlib.resources import files
from pathlib import Path

import pytest
from PIL import Image
from scenes import SIDE, box_at, frames, quick_localizer, texture, thing
from videos import write_video
from web import EARLIER, PLACE, PLACES, Paced, served, write_walk

from lastseen.box import Box
from lastseen.web.media import Settings

playwright = pytest.importorskip("playwright.sync_api")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
PICTURES = Path(__file__).parents[2] / "docs" / "pictures"
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH; install one: apt install chromium"),
]
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 375, "height": 812}
LATEST = re.compile(r"0:03\.[4-8]")  # the thing leaves the view after 3.6 s


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as tools:
        browser = tools.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def localizer():
    return Paced(quick_localizer())


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("page")
    write_walk(root / "videos" / "walk.mp4")
    write_walk(root / "videos" / "long.mp4", [None] * 32)
    Image.fromarray(thing()).save(root / "thing.png")
    Image.fromarray(texture(99, SIDE, SIDE, 4)).save(root / "other.png")
    (root / "text.mp4").write_text("not a video\n" * 50)
    return root


@pytest.fixture(scope="module")
def address(folder, localizer):
    allowed = Settings(index=folder / "index", folders=(folder / "videos",))
    with served(allowed, localizer) as address:
        yield address


class Watched:
    """A page, and everything that went wrong in it or left this machine."""

    def __init__(self, browser, address: str, **options) -> None:
        self.context = browser.new_context(viewport=DESKTOP, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(20_000)
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


@pytest.fixture
def page(browser, address):
    watched = Watched(browser, address)
    watched.page.wait_for_selector("#welcome:not([hidden]), #videos li")  # what there is has come
    yield watched.page
    watched.context.close()
    assert watched.wrong == []


@pytest.fixture
def walk(page, folder):
    """walk.mp4, uploaded by the first test that needs it, read, on the screen."""
    if not page.locator("#videos .name", has_text="walk.mp4").count():
        page.set_input_files("#upload", folder / "videos" / "walk.mp4")
    page.locator("#videos .name", has_text="walk.mp4").first.click()
    page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    page.wait_for_selector("#stage:not([hidden])")
    return page


def without(page, name: str) -> None:
    """Remove a video that another test may have added."""
    remove = page.locator(f'[aria-label="Remove {name}"]')
    if remove.count():
        page.once("dialog", lambda dialog: dialog.accept())
        remove.click()
        playwright.expect(remove).to_have_count(0)


def seek(page, time_s: float) -> None:
    page.locator("input[type=range]").fill(f"{time_s:.2f}")
    shown = re.compile(rf"^0:0{int(time_s)}\.")
    playwright.expect(page.locator("#now")).to_have_text(shown)


def drag(page, selector: str, box: Box, size: tuple[int, int]) -> None:
    """Draw a box, given in pixels of the picture, on a canvas."""
    area = page.locator(selector).bounding_box()
    sx, sy = area["width"] / size[0], area["height"] / size[1]
    page.mouse.move(area["x"] + box.x1 * sx, area["y"] + box.y1 * sy)
    page.mouse.down()
    page.mouse.move(area["x"] + box.x2 * sx - 5, area["y"] + box.y2 * sy - 5)
    page.mouse.move(area["x"] + box.x2 * sx, area["y"] + box.y2 * sy)
    page.mouse.up()


def find(page) -> None:
    page.wait_for_selector("#find:enabled")
    page.click("#find")
    page.wait_for_selector("#answer:not([hidden])")


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
        walk.click("summary")
        walk.click("text=CSV")
    assert "x1" in Path(saved.value.path()).read_text()


def test_a_picture_finds_the_thing_and_the_second_question_is_quick(walk, folder):
    walk.set_input_files("#choose", folder / "thing.png")
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
    walk.set_input_files("#choose", folder / "other.png")
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
        walk.wait_for_selector("#thing .picture:not([hidden])")
        walk.click("#clear")
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
        page.set_input_files("#choose", folder / "thing.png")
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


def test_a_file_that_is_no_video_is_one_clear_message(page, folder):
    page.set_input_files("#upload", folder / "text.mp4")
    playwright.expect(page.locator("#problem")).to_contain_text("text.mp4 is not a video")
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


def test_the_page_fits_a_phone_and_every_control_has_a_name(walk, folder):
    walk.set_viewport_size(PHONE)
    walk.set_input_files("#choose", folder / "thing.png")
    find(walk)
    assert walk.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    nameless = walk.evaluate(
        """() => {
          const named = (e) => e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length;
          const controls = [...document.querySelectorAll("button, a, input, canvas")];
          return controls.filter((e) => !e.closest("[hidden]") && !named(e)).map((e) => e.outerHTML);
        }"""
    )
    assert nameless == []


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


@pytest.mark.skipif("LASTSEEN_PICTURES" not in os.environ, reason="writes pictures for the documentation")
def test_pictures_for_the_documentation(browser, tmp_path):
    from lastseen.localizer import Localizer

    demo, picture = (
        Path(str(files("lastseen") / "assets" / name)) for name in ("demo.mp4", "demo_query.jpg")
    )
    allowed = Settings(index=tmp_path / "index", files=(demo,))
    with served(allowed, Localizer.from_pretrained(device="cpu")) as address:
        watched = Watched(browser, address, device_scale_factor=1)
        page = watched.page
        page.set_default_timeout(300_000)
        page.wait_for_selector('[aria-label="Remove demo.mp4"]')
        seek(page, 8.0)
        page.locator("input[type=range]").blur()
        page.set_input_files("#choose", picture)
        page.wait_for_selector("#find:enabled")
        page.screenshot(path=PICTURES / "web_question.png")
        find(page)
        page.wait_for_timeout(1500)
        page.screenshot(path=PICTURES / "web_answer.png", full_page=True)
        page.emulate_media(color_scheme="dark")
        page.screenshot(path=PICTURES / "web_dark.png", full_page=True)
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="light")
        page.wait_for_timeout(500)
        page.screenshot(path=PICTURES / "web_phone.png", full_page=True)
        watched.context.close()
    assert watched.wrong == []
