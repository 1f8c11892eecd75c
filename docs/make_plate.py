"""A plate of answers, good and bad: the first eight questions about things in unseen rooms, none left out.

    lastseen synth plate --split val --episodes 3 --seed 5 --fps 5 --seconds 30-40
    python docs/make_plate.py plate            # writes docs/pictures/answers.jpg

Every thing in these rooms is drawn at run time, so that the picture needs nobody's leave.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from lastseen import Localizer, Query, ResponseTrack, Video
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.benchmark import query_of
from lastseen.evaluate.metrics import compare
from lastseen.render import clock
from lastseen.render.canvas import INK, MUTED, WHITE, YELLOW, Canvas, fitted, outline, save_picture

OUT = Path(__file__).parent / "pictures" / "answers.jpg"
COLUMNS = 2
QUERY, FRAME, GAP, WORDS = 110, (256, 192), 8, 30  # pixels
RIGHT_STIOU = 0.25


class Case(NamedTuple):
    video: Video
    query: Query
    truth: ResponseTrack
    answer: ResponseTrack | None


def cases(folder: Path, localizer: Localizer, count: int) -> Iterator[Case]:
    annotations = load_vq2d(folder / "annotations.json")
    for clip, section in find_videos(annotations, folder / "videos"):
        video = Video(section.path)
        asked = [(question.truth, query_of(question, video, clip.fps)) for question in clip.questions]
        found = localizer.at(clip.fps).ask_many(video, [query for _, query in asked])
        for (truth, query), answer in zip(asked, found):
            if truth and count:
                yield Case(video, query, truth, answer.last)
                count -= 1


def draw_case(canvas: Canvas, case: Case, x: float, y: float) -> None:
    view = case.query.views[0]
    left, top, right, bottom = map(round, view.box.xyxy)
    thing = Image.fromarray(np.ascontiguousarray(view.picture[top:bottom, left:right]))
    canvas.picture(thing, fitted(*thing.size, (x, y, x + QUERY, y + FRAME[1])))
    for number, moment in enumerate((case.truth, case.answer)):
        place = x + QUERY + GAP + number * (FRAME[0] + GAP)
        if moment is None:
            canvas.text(place + FRAME[0] / 2, y + FRAME[1] / 2, "not seen", fill=MUTED, anchor="mm")
            continue
        picture = Image.fromarray(case.video.frame_at(moment.end).image)
        outline(picture, moment.last_box, YELLOW if number else WHITE, 4, dashed=not number)
        canvas.picture(picture, (place, y, place + FRAME[0], y + FRAME[1]))
    canvas.text(x + QUERY + GAP, y + FRAME[1] + 16, *words(case), size=13, fill=INK)


def words(case: Case) -> tuple[str]:
    true = f"true {clock(case.truth.start)} to {clock(case.truth.end)}"
    if case.answer is None:
        return (f"{true};  not seen, though it was",)
    overlap = compare(case.truth, case.answer).stiou
    verdict = "right" if overlap >= RIGHT_STIOU else "wrong"
    said = f"answer {clock(case.answer.start)} to {clock(case.answer.end)}, score {case.answer.score:.2f}"
    return (f"{true};  {said};  stIoU {overlap:.2f}, {verdict}",)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--count", type=int, default=8)
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained(engine=arguments.engine)
    shown = list(cases(arguments.folder, localizer, arguments.count))
    wide, high = QUERY + 2 * FRAME[0] + 4 * GAP, FRAME[1] + WORDS
    canvas = Canvas(COLUMNS * wide + GAP, -(-len(shown) // COLUMNS) * high + GAP)
    for number, case in enumerate(shown):
        draw_case(canvas, case, GAP + number % COLUMNS * wide, GAP + number // COLUMNS * high)
        print(*words(case))
    save_picture(arguments.out, canvas.array())


if __name__ == "__main__":
    main()
