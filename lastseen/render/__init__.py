"""An answer for people: words, stills, figures, films, a page.

    answer_text, answer_dict, clock         words and JSON
    draw_answer, write_picture              one frame, box drawn in
    write_figure, write_filmstrip           the paper's figure; the moments of a track in a row
    write_affinity                          where one point of the query matches in a frame
    write_video, write_cutout               films
    write_report                            one HTML file with everything in it

The only room besides `query` and `synth` that draws (Pillow).
"""

from lastseen.formats.answer_json import answer_dict
from lastseen.render.affinity import draw_affinity, write_affinity
from lastseen.render.figure import draw_figure, write_figure
from lastseen.render.film import write_cutout, write_video
from lastseen.render.report import report_html, write_report
from lastseen.render.still import draw_answer, write_picture
from lastseen.render.strip import draw_filmstrip, write_filmstrip
from lastseen.render.words import answer_text, clock

__all__ = [
    "answer_dict",
    "answer_text",
    "clock",
    "draw_affinity",
    "draw_answer",
    "draw_figure",
    "draw_filmstrip",
    "report_html",
    "write_affinity",
    "write_cutout",
    "write_figure",
    "write_filmstrip",
    "write_picture",
    "write_report",
    "write_video",
]
