"""Several pictures of one thing on the page, errors beside what caused them, and the page on a phone."""

import pytest
from browser import LATEST, PHONE, Watched, drag, find, give_whole, seek
from photos import MARKED, PHOTO
from scenes import box_at
from web import PLACE

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")


def test_several_pictures_of_one_thing_are_asked_together_and_one_can_be_removed(walk, folder):
    walk.set_input_files("#choose", folder / "photo.jpg")
    drag(walk, "#mark canvas", MARKED, PHOTO)
    playwright.expect(walk.locator("#looks")).to_be_hidden()
    walk.click("#add")
    playwright.expect(walk.locator("#add-hint")).to_contain_text("Another picture of the same thing")
    seek(walk, 3.2)
    drag(walk, "#stage canvas", box_at(PLACE), (320, 180))
    walk.click("#add")
    walk.set_input_files("#choose", folder / "other.png")
    walk.wait_for_selector("#looks .unmarked")
    playwright.expect(walk.locator("#find")).to_be_disabled()  # nothing is marked in the third
    walk.check("#whole")
    playwright.expect(walk.locator("#looks .look")).to_have_count(3)
    walk.click('[aria-label="Remove picture 3"]')
    playwright.expect(walk.locator("#looks .look")).to_have_count(2)
    walk.locator("#looks .look").first.click()
    with walk.expect_request("**/api/find") as request:
        walk.click("#find")
    photo, moment = request.value.post_data_json["looks"]
    assert "picture" in photo and photo["box"] == pytest.approx(list(MARKED.xyxy), abs=8)
    assert moment["time"] == pytest.approx(3.2, abs=0.1) and moment["box"]
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)


def test_photos_given_together_are_marked_one_after_the_other_and_nine_are_one_too_many(walk, folder):
    walk.set_input_files("#choose", [folder / "photo.jpg"] * 9)
    playwright.expect(walk.locator("#looks .look")).to_have_count(8)
    playwright.expect(walk.locator("#photo-problem")).to_contain_text("At most 8 pictures")
    for left in range(8, 0, -1):
        playwright.expect(walk.locator("#looks .unmarked")).to_have_count(left)
        walk.wait_for_selector("#mark canvas")
        drag(walk, "#mark canvas", MARKED, PHOTO)
        if left > 1:
            playwright.expect(walk.locator("#find")).to_be_disabled()
            walk.click("#next")
    playwright.expect(walk.locator("#next")).to_be_hidden()
    playwright.expect(walk.locator("#find")).to_be_enabled()


def test_an_error_is_shown_beside_what_caused_it(walk, folder):
    walk.set_input_files("#choose", {"name": "no.jpg", "mimeType": "image/jpeg", "buffer": b"not a picture"})
    playwright.expect(walk.locator("#photo-problem")).to_contain_text("no.jpg")
    walk.fill("#path", "nothing.mp4")
    walk.press("#path", "Enter")
    playwright.expect(walk.locator("#path-problem")).not_to_be_empty()
    walk.set_input_files("#choose", folder / "thing.png")
    playwright.expect(walk.locator("#photo-problem")).to_be_empty()
    walk.check("#whole")
    walk.route("**/api/find", lambda route: route.fulfill(status=429, json={"detail": "too many"}))
    walk.click("#find")
    playwright.expect(walk.locator("#ask .problem")).to_have_text("Too many.")


@pytest.fixture
def phone(browser, address, walk):
    """`walk` has added the video."""
    watched = Watched(browser, address, has_touch=True, is_mobile=True, device_scale_factor=2)
    watched.page.set_viewport_size(PHONE)
    watched.page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    yield watched.page
    watched.context.close()
    assert watched.wrong == []


def small_targets(page) -> list[str]:
    """Controls that a finger could miss: under 44 pixels high or wide, with their labels."""
    return page.evaluate(
        """() => {
          const shown = (e) => e.getClientRects().length && !e.closest("[hidden]");
          const area = (e) => (e.closest("label") ?? e).getBoundingClientRect();
          const missed = (e) => area(e).height < 43.5 || area(e).width < 43.5;
          // A sighting on the curve is as large as its length; its picture above it belongs to it.
          const target = (e) => e.querySelector(".small") ?? e;
          const controls = [...document.querySelectorAll("button, a, summary, input, select, .button")];
          return controls.filter((e) => shown(e) && !e.matches(".away") && missed(target(e)))
            .map((e) => `${e.outerHTML.slice(0, 90)} ${area(e).width} ${area(e).height}`);
        }"""
    )


def test_on_a_phone_find_is_in_reach_and_no_control_is_smaller_than_a_finger(phone, folder):
    playwright.expect(phone.locator("#thing-hint")).to_contain_text("Give a photo of it")
    assert small_targets(phone) == []
    give_whole(phone, folder / "thing.png")
    phone.click("#fold")
    for end in ("0", "document.body.scrollHeight"):
        phone.evaluate(f"scrollTo(0, {end})")
        button = phone.locator("#find").bounding_box()
        assert button["y"] >= 0 and button["y"] + button["height"] <= PHONE["height"]
    assert small_targets(phone) == []
    find(phone)
    playwright.expect(phone.locator("#answer mark")).to_have_text(LATEST)
    phone.tap("text=Save as")
    phone.tap("#add")
    assert small_targets(phone) == []
    phone.set_input_files("#choose", folder / "other.png")
    phone.wait_for_selector("#looks .unmarked")
    assert small_targets(phone) == []
    assert phone.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


def test_on_a_low_screen_find_is_in_view_beside_a_photo_that_is_marked(walk, folder):
    walk.set_viewport_size({"width": 1366, "height": 650})
    give_whole(walk, folder / "thing.png")
    walk.click("#fold")
    button = walk.locator("#find").bounding_box()
    assert button["y"] + button["height"] <= 650
