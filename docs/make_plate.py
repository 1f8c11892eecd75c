"""A plate of answers, good and bad: the first questions of each set, none left out.

    lastseen synth plate --split val --episodes 3 --seed 5 --fps 5 --seconds 30-40
    python docs/make_plate.py plate            # writes docs/pictures/answers.jpg
    python docs/make_plate.py val real_pan photo_pan --each 8 --ask crop --out plate.jpg

Every thing in the rooms of the first command is drawn at run time, so that the picture needs nobody's leave;
a plate of other sets may be used as they may.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from lastseen import Localizer, Query, ResponseTrack, Video
from lastseen.datasets import Question
from lastseen.datasets.vq2d import find_videos, load_vq2d
from lastseen.evaluate.asking import WAYS, asked_as
from lastseen.evaluate.benchmark import query_of, to_annotated_px
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
    question: Question
    answer: ResponseTrack | None  # in pixels of the video

    @property
    def truth(self) -> ResponseTrack:
        """In pixels of the video."""
        assert self.question.truth is not None
        across, down = to_annotated_px(self.question, self.video)
        boxes = tuple(box.scaled(1 / across, 1 / down) for box in self.question.truth.boxes)
        return replace(self.question.truth, boxes=boxes)


def cases(folder: Path, localizer: Localizer, way: str) -> Iterator[Case]:
    annotations = load_vq2d(folder / "annotations.json")
    for clip, section in find_videos(annotations, folder / "videos"):
        video = Video(section.path)
        questions = [question for question in clip.questions if question.truth]
        queries = [asked_as(query_of(question, video, clip.fps), way) for question in questions]
        found = localizer.at(clip.fps).ask_many(video, queries) if queries else []
        for question, query, answer in zip(questions, queries, found):
            assert question.truth
            yield Case(video, query, question, answer.last)


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
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--each", type=int, default=8, help="questions of each set")
    parser.add_argument("--ask", choices=WAYS, default="photo")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--engine")
    arguments = parser.parse_args()
    localizer = Localizer.from_pretrained(arguments.weights, engine=arguments.engine)
    of_sets = (cases(folder, localizer, arguments.ask) for folder in arguments.folders)
    shown = [case for asked in of_sets for case in islice(asked, arguments.each)]
    wide, high = QUERY + 2 * FRAME[0] + 4 * GAP, FRAME[1] + WORDS
    canvas = Canvas(COLUMNS * wide + GAP, -(-len(shown) // COLUMNS) * high + GAP)
    for number, case in enumerate(shown):
        draw_case(canvas, case, GAP + number % COLUMNS * wide, GAP + number // COLUMNS * high)
        print(*words(case))
    save_picture(arguments.out, canvas.array())


if __name__ == "__main__":
    main()
