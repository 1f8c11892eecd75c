"""The answer on the page, in a real browser: sightings, zoom, timeline, files, links."""

import io
import re
from pathlib import Path

import pytest
from browser import LATEST, PHONE, Watched, drag, find, give_whole, seek
from PIL import Image
from scenes import box_at
from web import EARLIER, PLACE

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")
SEEN_BEFORE = re.compile(r"^0:01\.[4-8]$")


@pytest.fixture
def answered(walk, folder):
    """The thing was found, twice in the video."""
    give_whole(walk, folder / "thing.png")
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    return walk


def test_the_headline_the_highlight_and_the_pictures_follow_the_chosen_sighting(answered):
    sightings = answered.locator("#sightings li button")
    playwright.expect(sightings).to_have_count(2)
    assert answered.locator("#sightings li img").count() == 2
    playwright.expect(sightings.nth(0)).to_have_attribute("aria-current", "true")
    first = answered.locator("#filmstrip .frame .clock").all_inner_texts()
    sightings.nth(1).click()
    playwright.expect(answered.locator("#answer mark")).to_have_text(SEEN_BEFORE)
    playwright.expect(answered.locator("#answer")).to_contain_text(re.compile(r"Last seen at 0:03\.[4-8]"))
    playwright.expect(sightings.nth(1)).to_have_attribute("aria-current", "true")
    playwright.expect(sightings.nth(0)).to_have_attribute("aria-current", "false")
    playwright.expect(answered.locator(".band.chosen")).to_have_attribute(
        "title", re.compile(r"^Seen 0:00\.\d")
    )
    assert answered.locator("#filmstrip .frame .clock").all_inner_texts() != first
    answered.locator(".band").nth(1).click()  # the latest, on the timeline
    playwright.expect(answered.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(sightings.nth(0)).to_have_attribute("aria-current", "true")


@pytest.mark.parametrize("size", [None, PHONE], ids=["desktop", "phone"])
def test_the_score_curve_lines_up_with_the_slider(answered, size):
    """A moment is at the same place on the curve, on the slider and in the preview."""
    if size:
        answered.set_viewport_size(size)
    for share in (0.0, 0.5, 1.0):
        slider, curve = answered.evaluate(
            """(share) => {
              const range = document.querySelector("input[type=range]");
              range.value = share * range.max;
              range.dispatchEvent(new Event("input"));
              const area = range.getBoundingClientRect();
              const knob = parseFloat(getComputedStyle(range).getPropertyValue("--knob"));
              const knobAt = area.left + knob / 2 + (range.value / range.max) * (area.width - knob);
              const head = document.querySelector(".plot .head").getBoundingClientRect();
              return [knobAt, head.left + head.width / 2];
            }""",
            share,
        )
        assert slider == pytest.approx(curve, abs=3)


def test_the_timeline_shows_each_sighting_and_the_moment_under_the_pointer(answered):
    pictures = answered.locator(".band .small:visible")
    playwright.expect(pictures).to_have_count(2)
    boxes = [picture.bounding_box() for picture in pictures.all()]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]  # side by side
    answered.locator(".transport").scroll_into_view_if_needed()
    area = answered.locator(".plot").bounding_box()
    answered.mouse.move(area["x"] + area["width"] / 2, area["y"] + 20)
    answered.wait_for_selector(".preview:not([hidden])")
    playwright.expect(answered.locator(".preview .clock")).to_have_text("0:02.3")
    answered.mouse.move(area["x"], 5)
    answered.wait_for_selector(".preview", state="hidden")


def test_zooming_shows_the_box_large_and_a_box_can_be_drawn_there(answered):
    answered.click("#zoom")
    scale = "getComputedStyle(document.querySelector('#stage video')).transform"
    assert float(answered.evaluate(scale).removeprefix("matrix(").split(",")[0]) > 1.1
    answered.locator("#stage canvas").scroll_into_view_if_needed()
    canvas, video = (answered.locator(f"#stage {part}").bounding_box() for part in ("canvas", "video"))
    for start, length in (("x", "width"), ("y", "height")):  # the video fills the screen
        assert video[start] < canvas[start] + 1
        assert video[start] + video[length] > canvas[start] + canvas[length] - 1
    place, scale_px = box_at(PLACE), video["width"] / 320
    answered.mouse.move(video["x"] + place.x1 * scale_px, video["y"] + place.y1 * scale_px)
    answered.mouse.down()
    answered.mouse.move(video["x"] + place.x2 * scale_px, video["y"] + place.y2 * scale_px)
    answered.mouse.up()
    playwright.expect(answered.locator("#thing-where")).to_contain_text("walk.mp4 at")
    with answered.expect_request("**/api/find") as request:
        answered.click("#find")
    assert request.value.post_data_json["looks"][0]["box"] == pytest.approx(place.xyxy, abs=1)
    playwright.expect(answered.locator("#answer")).to_be_visible()
    answered.keyboard.press("z")
    answered.locator("#sightings button, .band").first.click()
    answered.keyboard.press("z")
    assert answered.evaluate(scale) == "none"


def test_the_picture_of_the_chosen_sighting_is_saved_beside_the_answer(answered):
    answered.locator("#sightings li button").nth(1).click()
    with answered.expect_download() as saved:
        answered.click("#answer #save")
    assert re.fullmatch(r"walk 0\.01\.[4-8]\.jpg", saved.value.suggested_filename)
    picture = Image.open(io.BytesIO(Path(saved.value.path()).read_bytes())).convert("RGB")
    assert picture.size == (320, 180)
    box = box_at(EARLIER)
    around = range(int(box.x1) - 16, int(box.x1) + 16)
    row = [picture.getpixel((x, round((box.y1 + box.y2) / 2))) for x in around]
    assert any(r > 190 and g > 160 and b < 110 for r, g, b in row)  # the answer's yellow, after JPEG


def test_the_link_to_an_answer_is_copied_and_leads_back_to_it(browser, address, answered):
    answered.context.grant_permissions(["clipboard-read", "clipboard-write"])
    answered.click("#share")
    playwright.expect(answered.locator("#answer [role=status]")).to_have_text("Copied.")
    link = answered.evaluate("navigator.clipboard.readText()")
    assert link == answered.url and link.startswith(address)
    other = Watched(browser, address)
    other.page.goto(link)
    other.page.reload()
    playwright.expect(other.page.locator("#answer mark")).to_have_text(LATEST)
    other.context.close()
    assert other.wrong == []


def test_where_the_browser_can_share_the_picture_and_the_words_are_shared(browser, address, walk, folder):
    """`walk` has added the video. What the system would show is kept instead."""
    watched = Watched(browser, address)
    page = watched.page
    page.add_init_script(
        """navigator.canShare = () => true;
        navigator.share = async ({ text, files: [file] }) => {
          document.body.dataset.shared = `${text} ${file.type} ${file.size}`;
        };"""
    )
    page.reload()
    page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    give_whole(page, folder / "thing.png")
    find(page)
    playwright.expect(page.locator("#share")).to_have_text("Share")
    page.click("#share")
    shared = re.compile(r"^Seen at 0:03\.[4-8] in walk\.mp4\. image/jpeg \d{4,}$")
    playwright.expect(page.locator("body")).to_have_attribute("data-shared", shared)
    watched.context.close()
    assert watched.wrong == []


def test_the_button_back_leads_to_the_answer_before(answered, folder):
    first = answered.url
    give_whole(answered, folder / "other.png")
    find(answered)
    playwright.expect(answered.locator("#answer .moment")).to_have_text("Not seen.")
    answered.go_back()
    playwright.expect(answered.locator("#answer mark")).to_have_text(LATEST)
    assert answered.url == first
    answered.go_forward()
    playwright.expect(answered.locator("#answer .moment")).to_have_text("Not seen.")
    answered.go_back()
    answered.go_back()
    playwright.expect(answered.locator("#answer")).to_be_hidden()


def test_not_seen_comes_with_tips_and_a_picture_of_the_best_guess(walk, folder):
    give_whole(walk, folder / "other.png")
    find(walk)
    playwright.expect(walk.locator("#answer .moment")).to_have_text("Not seen.")
    assert walk.locator("#answer .tips li").count() == 4
    playwright.expect(walk.locator("#guess")).to_contain_text("It is probably something else.")
    loaded = "(image) => image.decode().then(() => image.naturalWidth)"
    assert walk.locator("#guess img").evaluate(loaded) > 0
    assert walk.locator("#guess rect.guess").count() == 1


def test_a_best_guess_never_looks_like_an_answer(walk, folder):
    give_whole(walk, folder / "other.png")
    find(walk)
    walk.click("#guess")
    for scheme in ("light", "dark"):
        walk.emulate_media(color_scheme=scheme)
        filled = "(band) => getComputedStyle(band).backgroundColor"
        colour = walk.locator(".band.guess.chosen").evaluate(filled)
        assert colour == "rgba(0, 0, 0, 0)"
    with walk.expect_download() as saved:
        walk.click("#answer #save")
    assert saved.value.suggested_filename.endswith(" guess.jpg")
    picture = Image.open(saved.value.path()).convert("L")
    corner = picture.crop((0, picture.height - 14, 100, picture.height))
    assert corner.histogram()[0] > 500 and max(corner.tobytes()) > 200  # white words on black


def test_changing_the_thing_dims_the_answer_to_the_question_before(answered, folder):
    playwright.expect(answered.locator("#outdated")).to_be_hidden()
    seek(answered, 3.2)
    drag(answered, "#stage canvas", box_at(PLACE), (320, 180))
    playwright.expect(answered.locator("#outdated")).to_be_visible()
    dimmed = "getComputedStyle(document.querySelector('#filmstrip img')).opacity"
    assert float(answered.evaluate(dimmed)) < 0.6
    assert float(answered.evaluate(dimmed.replace("#filmstrip", ".band"))) < 0.6
    answered.click("#find")
    playwright.expect(answered.locator("#outdated")).to_be_hidden()
    playwright.expect(answered.locator("#answer mark")).to_have_text(LATEST)
    assert float(answered.evaluate(dimmed)) == 1
