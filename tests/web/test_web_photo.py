"""A photo on the page, in a real browser: the thing is marked in it and asked in the photo's own pixels."""

import re

import pytest
from browser import LATEST, PHONE, Watched, drag, find, seek
from photos import MARKED, PHOTO
from scenes import box_at
from web import PLACE

from lastseen.box import Box

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.usefixtures("one_thread")
CANVAS = "#mark canvas"


def give(page, path) -> None:
    page.set_input_files("#choose", path)
    page.wait_for_selector("#mark .picture:not([hidden])")


def asked(page, press=None) -> dict:
    """The one look of the question that Find sends."""
    page.wait_for_selector("#find:enabled")
    with page.expect_request("**/api/find") as request:
        (press or (lambda: page.click("#find")))()
    (look,) = request.value.post_data_json["looks"]
    return look


def shown_width(page) -> float:
    return page.locator(CANVAS).bounding_box()["width"]


def edges(page) -> Box:
    """Where the thing, alone with yellow in its corners, is on the canvas, in pixels of the photo."""
    found = page.locator(CANVAS).evaluate(
        """(canvas) => {
          const { width, height } = canvas;
          const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
          const xs = [], ys = [];
          for (let y = 0; y < height; y += 1) for (let x = 0; x < width; x += 1) {
            const i = 4 * (y * width + x);
            if (data[i] > 225 && data[i + 1] > 195 && data[i + 2] < 60) xs.push(x), ys.push(y);
          }
          const most = (v) => v.reduce((a, b) => Math.max(a, b));
          const span = (v, size) => [-most(v.map((a) => -a)) / size, (most(v) + 1) / size];
          return [...span(xs, width), ...span(ys, height)];
        }"""
    )
    x1, x2, y1, y2 = found
    return Box(x1 * PHOTO[0], y1 * PHOTO[1], x2 * PHOTO[0], y2 * PHOTO[1])


@pytest.mark.parametrize("photo", ["photo.jpg", "turned.jpg"])
@pytest.mark.parametrize("size", [None, PHONE], ids=["desktop", "phone"])
def test_a_box_on_a_photo_is_asked_in_the_photos_own_pixels(walk, folder, photo, size):
    """Shown scaled, and upright though its pixels are stored turned."""
    if size:
        walk.set_viewport_size(size)
    give(walk, folder / photo)
    playwright.expect(walk.locator("#mark h2")).to_have_text("Mark the thing in your photo")
    playwright.expect(walk.locator("#find")).to_be_disabled()
    width = shown_width(walk)
    assert (340 if size else 600) <= width < PHOTO[0] / 2
    assert edges(walk).iou(MARKED) > 0.93
    drag(walk, CANVAS, MARKED, PHOTO)
    playwright.expect(walk.locator("#thing-where")).to_have_text("The thing is in the box.")
    assert walk.evaluate("document.documentElement.scrollWidth") == walk.viewport_size["width"]
    slack = 2 * PHOTO[0] / width
    box = asked(walk)["box"]
    assert max(abs(a - b) for a, b in zip(box, MARKED.xyxy)) <= slack
    walk.wait_for_selector("#answer:not([hidden])")
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    playwright.expect(walk.locator("#mark")).to_be_hidden()  # small again, beside the answer
    playwright.expect(walk.locator("#thing .picture")).to_be_visible()


def test_a_finger_draws_on_the_photo_at_once(browser, address, walk, folder):
    """`walk` has added the video."""
    watched = Watched(browser, address, has_touch=True, is_mobile=True, device_scale_factor=2)
    page = watched.page
    page.set_viewport_size(PHONE)
    page.wait_for_selector('#videos [aria-label="Remove walk.mp4"]')
    give(page, folder / "photo.jpg")
    area = page.locator(CANVAS).bounding_box()
    assert area["y"] >= 0 and area["y"] + area["height"] <= PHONE["height"]  # all of it is in view
    corners = [
        {"x": area["x"] + x / PHOTO[0] * area["width"], "y": area["y"] + y / PHOTO[1] * area["height"]}
        for x, y in (MARKED.xyxy[:2], (1800, 600), MARKED.xyxy[2:])
    ]
    touch = watched.context.new_cdp_session(page)
    for kind, points in zip(
        ("touchStart", "touchMove", "touchMove", "touchEnd"), [[c] for c in corners] + [[]]
    ):
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    box = asked(page)["box"]
    assert max(abs(a - b) for a, b in zip(box, MARKED.xyxy)) <= 2 * PHOTO[0] / area["width"]
    watched.context.close()
    assert watched.wrong == []


def test_a_photo_is_marked_and_asked_with_the_keyboard_alone(walk, folder):
    seek(walk, 1.0)
    give(walk, folder / "photo.jpg")
    playwright.expect(walk.locator(CANVAS)).to_be_focused()
    walk.keyboard.press(
        "ArrowRight"
    )  # the first key makes a box in the middle, 0.3 of the photo, and moves it
    for _ in range(13):
        walk.keyboard.press("ArrowRight")
    for _ in range(9):
        walk.keyboard.press("ArrowUp")
    for _ in range(2):
        walk.keyboard.press("Shift+ArrowLeft")
    walk.keyboard.press("Enter")  # accepts it
    look = asked(walk, lambda: walk.keyboard.press("Enter"))
    expected = [0.35 + 14 * 0.02, 0.35 - 9 * 0.02, 0.65 + 14 * 0.02 - 2 * 0.02, 0.65 - 9 * 0.02]
    assert look["box"] == pytest.approx([v * PHOTO[n % 2] for n, v in enumerate(expected)])
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)


def test_keys_move_the_box_and_not_the_video_behind_it(walk, folder):
    seek(walk, 2.0)
    give(walk, folder / "photo.jpg")
    walk.keyboard.press("b")
    walk.keyboard.press("ArrowLeft")
    playwright.expect(walk.locator("#find")).to_be_enabled()  # what is seen is asked, also before Enter
    walk.keyboard.press("Escape")  # no box again
    playwright.expect(walk.locator("#find")).to_be_disabled()
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight", "Space"):
        walk.keyboard.press(key)
    walk.keyboard.press("Escape")  # back to the video
    playwright.expect(walk.locator("#mark")).to_be_hidden()
    playwright.expect(walk.locator("#now")).to_have_text(re.compile(r"^0:02\.0"))
    playwright.expect(walk.locator("#play")).to_have_text("Play")


def test_the_whole_picture_is_a_choice_that_a_box_takes_back(walk, folder):
    give(walk, folder / "thing.png")
    playwright.expect(walk.locator("#find")).to_be_disabled()
    playwright.expect(walk.locator("#whole")).to_have_accessible_description(
        "A photo with surroundings and a box works better."
    )
    walk.get_by_label("The whole picture is the thing").check()
    playwright.expect(walk.locator("#thing-where")).to_have_text("The whole picture is the thing.")
    assert asked(walk)["box"] is None
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)
    walk.click("#enlarge")
    playwright.expect(walk.locator("#whole")).to_be_checked()
    drag(walk, CANVAS, Box(4, 4, 60, 60), (64, 64))
    playwright.expect(walk.locator("#whole")).not_to_be_checked()
    assert asked(walk)["box"] == pytest.approx([4, 4, 60, 60], abs=0.5)


def test_the_box_can_be_changed_later_and_the_next_photo_begins_without_one(walk, folder):
    give(walk, folder / "photo.jpg")
    drag(walk, CANVAS, Box(100, 1000, 900, 1700), PHOTO)
    walk.click("#fold")
    playwright.expect(walk.locator("#stage")).to_be_visible()
    walk.click("#enlarge")
    drag(walk, CANVAS, MARKED, PHOTO)
    slack = 2 * PHOTO[0] / shown_width(walk)
    assert max(abs(a - b) for a, b in zip(asked(walk)["box"], MARKED.xyxy)) <= slack
    walk.wait_for_selector("#answer:not([hidden])")
    give(walk, folder / "photo.jpg")
    playwright.expect(walk.locator("#find")).to_be_disabled()
    walk.locator(CANVAS).click()  # a click is no box
    playwright.expect(walk.locator("#find")).to_be_disabled()


def test_a_box_drawn_in_the_video_takes_the_photos_place(walk, folder):
    give(walk, folder / "photo.jpg")
    walk.click("#fold")
    seek(walk, 3.2)
    drag(walk, "#stage canvas", box_at(PLACE), (320, 180))
    playwright.expect(walk.locator("#thing-where")).to_have_text("walk.mp4 at 0:03.2")
    playwright.expect(walk.locator("#enlarge")).to_be_hidden()
    find(walk)
    playwright.expect(walk.locator("#answer mark")).to_have_text(LATEST)


@pytest.mark.parametrize("accept", ["key", "tap", "button"])
def test_a_suggested_box_is_accepted_by_a_key_a_tap_or_a_button(walk, folder, accept):
    """The mask model is not in the package; what it would say is given here."""
    box = list(MARKED.xyxy)
    walk.route("**/api/settings", lambda route: route.fulfill(json={"masks": False, "suggestions": True}))
    walk.route("**/api/pictures/*/suggestion", lambda route: route.fulfill(json={"box": box, "reason": ""}))
    give(walk, folder / "photo.jpg")
    playwright.expect(walk.locator("#suggested")).to_be_visible()
    playwright.expect(walk.locator("#find")).to_be_disabled()  # a suggestion is not yet an answer
    if accept == "key":
        walk.keyboard.press("Enter")
    elif accept == "tap":
        area, share = walk.locator(CANVAS).bounding_box(), MARKED.scaled(1 / PHOTO[0], 1 / PHOTO[1])
        x, y = (share.x1 + share.x2) / 2, (share.y1 + share.y2) / 2
        walk.mouse.click(area["x"] + x * area["width"], area["y"] + y * area["height"])
    else:
        walk.click("#accept")
    playwright.expect(walk.locator("#suggested")).to_be_hidden()
    assert asked(walk)["box"] == pytest.approx(box)
