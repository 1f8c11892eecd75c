"""One answer's way through lastseen, drawn from a real search of the bundled video.

    python docs/make_answer_path.py            # writes docs/pictures/answer_path.svg

The photo is a moment of the video, so that there are several sightings. Scores, windows and extents are
those of the bundled model and its rule; nothing is drawn by hand.
"""

from __future__ import annotations

import argparse
import base64
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from drawing import Drawing, Rect
from PIL import Image

import lastseen
from lastseen import Answer, Box, Localizer, Query, Video
from lastseen.access import VideoAccess, VideoFeatures
from lastseen.localizer import FRAMES_HELD
from lastseen.refine.window import Window, crop
from lastseen.refine.zoom import Zoom
from lastseen.render import clock, draw_answer
from lastseen.sighting import Evidence, Sighting

OUT = Path(__file__).parent / "pictures" / "answer_path.svg"
DEMO = Path(lastseen.__file__).parent / "assets" / "demo.mp4"
ASKED_S, BOX = 21.0, Box(273, 133, 336, 304)
WIDTH = 880.0
LEFT, RIGHT = 196.0, 846.0  # of the time axis
SHARP = 2  # pictures have this many pixels for each of the drawing's
THUMBS = 7


@dataclass(frozen=True, eq=False)
class Way:
    """What each step made."""

    first: Evidence
    sightings: dict[str, list[Sighting]]  # after each step
    windows: list[tuple[Sighting, Window]]
    penalised: int
    answer: Answer


def search(video: Video, query: Query, localizer: Localizer) -> Way:
    """As `Localizer.ask`, keeping what is between its steps."""
    (predictions,) = localizer.predict(video, [query])
    evidence = first = Evidence.of(predictions)
    features = VideoFeatures(localizer, lambda: video, len(evidence), FRAMES_HELD)
    access = VideoAccess(localizer, video, localizer.encode_query(query), features.read, lambda: video)
    rule = localizer.rule
    sightings, windows = {"first": rule.extract(evidence)}, []
    for step in rule.refinement:
        if isinstance(step, Zoom):
            windows = step.windows(rule.extract(evidence, step.peak_ratio), access)
        evidence = step(evidence, rule.extract, access)
        sightings[step.name] = rule.extract(evidence)
    answer = localizer.answer(video, query, predictions, evidence)
    return Way(first, sightings, windows, len(evidence.penalties), answer)


class AnswerPath:
    """The drawing: a lane for each step, with one time axis through all of them."""

    def __init__(self, way: Way, video: Video, localizer: Localizer) -> None:
        self.way, self.video, self.localizer = way, video, localizer
        self.drawing = Drawing(WIDTH, 936, "One answer's way: from a photo and a video to the last sighting")

    def x(self, time_s: float) -> float:
        return LEFT + (RIGHT - LEFT) * time_s / self.video.duration_s

    def lane(self, top: float, height: float, title: str, about: list[str]) -> Rect:
        place = Rect(16, top, WIDTH - 32, height)
        self.drawing.lane(place, title)
        self.drawing.lines(30, top + 42, about)
        return place

    def picture(self, place: Rect, image: np.ndarray, box: Box | None = None) -> None:
        shown = Image.fromarray(image if box is None else draw_answer(image, box))
        shown = shown.resize(
            (round(place.width * SHARP), round(place.height * SHARP)), Image.Resampling.LANCZOS
        )
        jpeg = io.BytesIO()
        shown.save(jpeg, "JPEG", quality=78)
        self.drawing.picture(place, "data:image/jpeg;base64," + base64.b64encode(jpeg.getvalue()).decode())

    def draw(self) -> Drawing:
        self.question(16)
        self.frames(170)
        self.scores(266)
        self.zoom(404)
        self.verify(548)
        self.extend(622)
        self.answer(724)
        return self.drawing

    def question(self, top: float) -> None:
        self.lane(top, 140, "1  Query", ["a photo, and a box", "around the thing;", "encoded once"])
        self.picture(Rect(LEFT, top + 10, 213, 120), self.video.frame_at(ASKED_S).image, BOX)
        view = Query.from_video(self.video, ASKED_S, BOX).views[0]
        high = 120 * view.crop.shape[1] / view.crop.shape[0]
        self.picture(Rect(LEFT + 225, top + 10, high, 120), view.crop)
        self.drawing.lines(
            LEFT + 245 + high, top + 42,
            [
                "What is around the thing is background:",
                "it helps to tell when the place",
                "is in view, not where the thing is.",
            ],
        )  # fmt: skip

    def frames(self, top: float) -> None:
        self.lane(top, 82, "2  Frames", ["5 a second, encoded", "once for all questions"])
        wide = (RIGHT - LEFT) / THUMBS
        for number in range(THUMBS):
            time_s = (number + 0.5) * self.video.duration_s / THUMBS
            place = Rect(LEFT + number * wide + 3, top + 8, wide - 6, (wide - 6) * 9 / 16)
            self.picture(place, self.video.frame_at(time_s).image)
            self.drawing.text(place.cx, top + 76, clock(time_s), "note", "middle")

    def scores(self, top: float) -> None:
        self.lane(
            top,
            124,
            "3  Localize",
            ["a box and a logit for", "every frame; its score,", "smoothed, over time"],
        )
        low, high = top + 108, top + 24
        extraction = self.localizer.rule.extraction
        smooth = extraction.smooth(extraction.scores(self.way.first))
        for sighting in self.way.sightings["first"]:
            self.span(sighting, high - 12, low, "wash")
            label = f"{sighting.peak_score:.2f}"
            self.drawing.text(self.x(self.middle(sighting)), high - 3, label, "note", "middle")
        self.drawing.path([(LEFT, low), (RIGHT, low)], "faint", tip=False)
        points = [
            (self.x(n / self.way.first.fps), low - score * (low - high)) for n, score in enumerate(smooth)
        ]
        self.drawing.path(points, "curve", tip=False)

    def zoom(self, top: float) -> None:
        about = ["the most confident", "sightings again, cut", "out of the original", "frames and enlarged"]
        self.lane(top, 130, "4  Zoom", about)
        free = LEFT  # windows of sightings close together stand side by side
        for sighting, window in sorted(self.way.windows, key=lambda zoomed: zoomed[0].first):
            peak = self.x(sighting.peak / sighting.evidence.fps)
            place = Rect(min(max(peak - 48, free), RIGHT - 96), top + 10, 96, 96)
            free = place.right + 54
            corner = window.corners[sighting.peak - window.start]
            image = self.video.frame_at(sighting.peak / sighting.evidence.fps).image
            self.picture(place, crop(image, int(corner[0]), int(corner[1]), window.side))
            after = self.at("zoom", sighting)
            then = f"then {after.peak_score:.3f}" if after else "too weak"
            words = f"{window.side} px, {sighting.peak_score:.3f}, {then}"
            self.drawing.text(place.cx, top + 122, words, "note", "middle")

    def verify(self, top: float) -> None:
        self.lane(top, 60, "5  Verify", ["do they look alike?"])
        reference = max(self.way.sightings["zoom"], key=lambda sighting: sighting.confidence)
        for sighting in self.way.sightings["verify"]:
            self.span(sighting, top + 22, top + 40, "wash")
        x = self.x(self.start(reference)) - 8
        self.drawing.text(x, top + 35, "compared with this one", "note", "end")
        verdict = f"{self.way.penalised} lost score" if self.way.penalised else "all alike"
        self.drawing.text(RIGHT, top + 35, verdict, "note", "end")

    def extend(self, top: float) -> None:
        self.lane(
            top, 88, "6  Extend", ["follow the thing while", "it looks like itself;", "times in seconds"]
        )
        for row, step in ((top + 16, "verify"), (top + 46, "extend")):
            for sighting in self.way.sightings[step]:
                self.span(sighting, row, row + 16, "wash" if step == "verify" else "main")
            self.drawing.text(RIGHT, row + 12, "before" if step == "verify" else "after", "note", "end")
        for sighting in self.way.sightings["extend"]:
            words = f"{self.start(sighting):.1f}-{self.end(sighting):.1f}"
            self.drawing.text(self.x(self.middle(sighting)), top + 78, words, "note", "middle")

    def answer(self, top: float) -> None:
        about = [
            "the last sighting whose",
            "confidence is above the",
            "threshold; else the best",
            'guess, and "not seen"',
        ]
        self.lane(top, 196, "7  Answer", about)
        last = self.way.answer.last
        assert last is not None
        self.picture(Rect(LEFT, top + 12, 306, 172), self.video.frame_at(last.end).image, last.last_box)
        x = LEFT + 326
        words = f"Last seen from {clock(last.start)} to {clock(last.end)}"
        self.drawing.text(x, top + 40, words, "title")
        share = "more than 99" if last.score > 0.99 else f"about {100 * last.score:.0f}"
        said = f"score {last.score:.2f}: {share} of 100 such answers are right"
        self.drawing.text(x, top + 60, said, "note")
        for number, track in enumerate(reversed(self.way.answer.sightings[:-1])):
            said = f"before that {clock(track.start)} to {clock(track.end)}, score {track.score:.2f}"
            self.drawing.text(x, top + 88 + 18 * number, said, "note")
        self.drawing.text(x, top + 148, "lastseen find desk.jpg walk.mp4 \\", "code")
        self.drawing.text(x, top + 166, "  --box 273,133,336,304 --all", "code")

    def at(self, step: str, sighting: Sighting) -> Sighting | None:
        """The same sighting after a step."""
        found = self.way.sightings[step]
        return next((one for one in found if one.first <= sighting.peak <= one.last), None)

    def span(self, sighting: Sighting, top: float, bottom: float, kind: str) -> None:
        left, right = self.x(self.start(sighting)), self.x(self.end(sighting))
        self.drawing.rect(Rect(left, top, max(3.0, right - left), bottom - top), kind, 2)

    def start(self, sighting: Sighting) -> float:
        return sighting.first / sighting.evidence.fps

    def end(self, sighting: Sighting) -> float:
        return sighting.last / sighting.evidence.fps

    def middle(self, sighting: Sighting) -> float:
        return (self.start(sighting) + self.end(sighting)) / 2


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--device")
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    video = Video(DEMO)
    localizer = Localizer.from_pretrained(device=arguments.device, engine=arguments.engine)
    way = search(video, Query.from_video(video, ASKED_S, BOX), localizer)
    AnswerPath(way, video, localizer).draw().save(arguments.out)
    print(arguments.out)


if __name__ == "__main__":
    main()
