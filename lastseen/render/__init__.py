"""Show an answer: text, pictures, figures, videos, an HTML report.

    answer_text, answer_dict, clock         text and JSON
    draw_answer, write_picture              one frame with its box
    write_figure, write_filmstrip           the paper's figure; frames of a track side by side
    write_affinity                          where one point of the query matches in a frame
    write_video, write_cutout               videos
    write_report                            a self-contained HTML file
    save_answer                             any of these, by the ending of a name
    answer_html, answer_png                 for notebooks

Of this package only `render` and `picture` import Pillow.
"""

from lastseen.formats.answer_json import answer_dict
from lastseen.render.affinity import draw_affinity, write_affinity
from lastseen.render.figure import draw_figure, write_figure
from lastseen.render.film import write_cutout, write_video
from lastseen.render.notebook import answer_html, answer_png
from lastseen.render.report import report_html, write_report
from lastseen.render.save import save_answer
from lastseen.render.still import draw_answer, write_picture
from lastseen.render.strip import draw_filmstrip, write_filmstrip
from lastseen.words import answer_text, clock, unreadable_words

__all__ = [
    "answer_dict",
    "answer_html",
    "answer_png",
    "answer_text",
    "clock",
    "draw_affinity",
    "draw_answer",
    "draw_figure",
    "draw_filmstrip",
    "report_html",
    "save_answer",
    "unreadable_words",
    "write_affinity",
    "write_cutout",
    "write_figure",
    "write_filmstrip",
    "write_picture",
    "write_report",
    "write_video",
]
