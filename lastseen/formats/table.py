"""CSV: one line per box, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io

from lastseen.answer import Answer
from lastseen.files import one_line
from lastseen.formats.answer_json import placed

COLUMNS = ("video", "track", "score", "frame", "time", "x1", "y1", "x2", "y2")


def table(answer: Answer) -> str:
    """Frames are the video's own, from 0; tracks count from 1; RFC 4180."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    name = one_line(answer.video.path.name)
    for number, track in enumerate(answer.sightings, 1):
        for box in placed(answer.video, track):
            corners = (box.x, box.y, box.x + box.width, box.y + box.height)
            row = (name, number, round(track.score, 4), box.frame, round(box.time_s, 6))
            writer.writerow((*row, *(round(v, 3) for v in corners)))
    return text.getvalue()
