"""The moving picture on top of the README: the bundled demo and the default localizer's real answer to it.

python docs/make_animation.py            # writes docs/pictures/answer.webp
python docs/make_animation.py --out x.webp --device cuda

First the whole video is searched, at speed, and the score is drawn as it comes; then the seconds in which the
thing was last seen are played with the box, and the last of them stays. Nothing in it is drawn by hand.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

import lastseen
from lastseen import Answer, Localizer, Query, ResponseTrack, Video
from lastseen.files import whole_file
from lastseen.render import clock, draw_answer

ASSETS = Path(lastseen.__file__).parent / "assets"
OUT = Path(__file__).parent / "pictures" / "answer.webp"
LARGEST_BYTES = 1_400_000
QUALITIES = (80, 72, 64, 56, 48, 40)

WIDTH, HEIGHT, MARGIN, CORNER = 640, 430, 20, 14
VIDEO = (168, 62, 620, 316)  # left, top, right, bottom: 16:9 within a pixel
QUERY = (20, 62, 148, 316)
PLOT = (20, 344, 620, 400)
SHARP = 3  # drawn this much larger and scaled down
CARD, INK, MUTED, FAINT = (250, 250, 248), (31, 35, 40), (101, 109, 118), (224, 227, 231)
YELLOW, LIGHT_YELLOW = (255, 210, 0), (255, 240, 170)

SEARCHING = "Where did I last see this?"
PLAYED_FPS = 10.0
SEARCH_S, PAUSE_S, HOLD_S = 4.2, 0.6, 3.0  # how long the parts last
CALM = 3  # while it is searched, the picture changes only every so many steps
AROUND_S = 0.8  # played before the thing comes into view, and after


class Scene:
    """Everything that does not move, and how to draw a moment of what does."""

    def __init__(self, video: Video, answer: Answer) -> None:
        assert answer.curve is not None and answer.query is not None
        self.video, self.tracks = video, answer.sightings
        self.scores, self.fps = answer.curve.smooth, answer.curve.fps
        self.thing = Image.fromarray(np.ascontiguousarray(answer.query.views[0].crop))

    @property
    def answer(self) -> ResponseTrack:
        return self.tracks[-1]

    def moment(
        self, image: np.ndarray, time_s: float, *, searched_s: float, title: str, playing: bool
    ) -> Image.Image:
        """The page with a frame of the video; the score is drawn up to `searched_s`."""
        page = Image.new("RGB", (WIDTH * SHARP, HEIGHT * SHARP), CARD)
        pen = ImageDraw.Draw(page)
        box = self.answer.box_at(time_s) if playing else None
        self._curve(pen, time_s, searched_s, playing)
        page = page.resize((WIDTH, HEIGHT), Image.Resampling.LANCZOS)
        self._picture(page, Image.fromarray(draw_answer(image, box)), VIDEO)
        self._picture(page, self.thing, QUERY)
        self._words(ImageDraw.Draw(page), time_s, title, answered=playing and title != SEARCHING)
        return _rounded(page)

    def _curve(self, pen: ImageDraw.ImageDraw, time_s: float, searched_s: float, playing: bool) -> None:
        left, top, right, bottom = (v * SHARP for v in PLOT)
        if playing:
            for track in self.tracks:
                fill = YELLOW if track is self.answer else LIGHT_YELLOW
                end_x = self._x(track.start + track.duration_s)
                pen.rectangle((self._x(track.start), top, end_x, bottom), fill)
        pen.line((left, bottom, right, bottom), fill=FAINT, width=SHARP)
        count = max(2, round(searched_s * self.fps))
        points = [
            (self._x(n / self.fps), bottom - score * (bottom - top))
            for n, score in enumerate(self.scores[:count].tolist())
        ]
        pen.line(points, fill=INK, width=2 * SHARP, joint="curve")
        x, r = self._x(time_s), 5 * SHARP
        pen.line((x, top - 4 * SHARP, x, bottom), fill=INK, width=round(1.3 * SHARP))
        pen.ellipse((x - r, bottom - r, x + r, bottom + r), fill=INK)

    def _x(self, time_s: float) -> float:
        left, _, right, _ = PLOT
        return SHARP * (left + (right - left) * min(time_s / self.video.duration_s, 1.0))

    def _picture(self, page: Image.Image, picture: Image.Image, area: tuple[int, int, int, int]) -> None:
        """As large as the area lets it be, at its top, with soft corners."""
        left, top, right, bottom = area
        factor = min((right - left) / picture.width, (bottom - top) / picture.height)
        size = round(picture.width * factor), round(picture.height * factor)
        shown = picture.resize(size, Image.Resampling.LANCZOS)
        page.paste(shown, (left + (right - left - size[0]) // 2, top), _mask(size, 6))

    def _words(self, pen: ImageDraw.ImageDraw, time_s: float, title: str, *, answered: bool) -> None:
        pen.text((MARGIN, 44), title, INK, _font(24), anchor="ls")
        if answered:
            width = pen.textlength(title, _font(24))
            score = f"score {self.answer.score:.2f}"
            pen.text((MARGIN + width + 16, 44), score, MUTED, _font(16), anchor="ls")
        pen.text((VIDEO[2], 44), clock(time_s), MUTED, _font(16), anchor="rs")
        pen.text((QUERY[0], QUERY[3]), "score over time", MUTED, _font(12), anchor="ls")
        for tick_s in range(0, int(self.video.duration_s) + 1, 10):
            place, text = (self._x(tick_s) / SHARP, 420), f"{tick_s // 60}:{tick_s % 60:02d}"
            pen.text(place, text, MUTED, _font(12), anchor="ms" if tick_s else "ls")


def frames(scene: Scene) -> Iterator[tuple[Image.Image, float]]:
    """Pictures and how long each is shown, in seconds."""
    video, answer, end_s = scene.video, scene.answer, scene.video.duration_s
    step_s = 1 / PLAYED_FPS
    for number, time_s in enumerate(np.linspace(0, end_s - 0.3, round(SEARCH_S / step_s)).tolist()):
        if number % CALM == 0:
            image = video.frame_at(time_s).image
        yield scene.moment(image, time_s, searched_s=time_s, title=SEARCHING, playing=False), step_s
    start_s = max(0.0, answer.start - AROUND_S)
    for frame in video.frames(PLAYED_FPS, start_s=start_s, end_s=answer.end + step_s / 2):
        picture = scene.moment(
            frame.image, frame.time_s, searched_s=end_s, title=_answer(answer), playing=True
        )
        is_first, is_last = frame.time_s < start_s + step_s, frame.time_s > answer.end - step_s / 2
        yield picture, step_s + PAUSE_S * is_first + HOLD_S * is_last


def _answer(track: ResponseTrack) -> str:
    return f"Last seen at {clock(track.end)}"


def encoded(pictures: Sequence[tuple[Image.Image, float]]) -> bytes:
    """An animated WebP of the best quality that is small enough."""
    shown = [picture for picture, _ in pictures]
    durations_ms = [round(seconds * 1000) for _, seconds in pictures]
    for quality in QUALITIES:
        stream = io.BytesIO()
        shown[0].save(
            stream,
            "WEBP",
            save_all=True,
            append_images=shown[1:],
            duration=durations_ms,
            loop=0,
            quality=quality,
            method=4,
            minimize_size=False,
            kmax=30,
        )
        if stream.tell() <= LARGEST_BYTES:
            break
    return stream.getvalue()


def _rounded(page: Image.Image) -> Image.Image:
    """A card with round corners, which are clear: it lies on light and on dark pages alike."""
    page.putalpha(_mask(page.size, CORNER))
    return page


def _mask(size: tuple[int, int], corner: int) -> Image.Image:
    large = Image.new("L", (size[0] * SHARP, size[1] * SHARP), 0)
    ImageDraw.Draw(large).rounded_rectangle((0, 0, large.width - 1, large.height - 1), corner * SHARP, 255)
    return large.resize(size, Image.Resampling.LANCZOS)


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--device")
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained(device=arguments.device)
    video, query = Video(ASSETS / "demo.mp4"), Query.from_image(ASSETS / "demo_query.jpg")
    answer = localizer.ask(video, query)
    if not answer.found:
        raise SystemExit("the localizer does not find the demo's thing: there is no answer to show")
    scene = Scene(video, answer)
    with whole_file(arguments.out) as building:
        building.write_bytes(encoded(list(frames(scene))))
    print(f"{arguments.out}: {arguments.out.stat().st_size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
