"""MOT Challenge: one line per frame; frames and ids count from 1."""

from __future__ import annotations

from lastseen.answer import Answer
from lastseen.formats.answer_json import filled


def mot(answer: Answer) -> str:
    """frame, id, left, top, width, height, confidence, -1, -1, -1 on every frame of the video.

    By the challenge's rule frames, ids and pixels count from 1, so a box at the picture's left edge has
    left 1. Trackers answer on each frame; between samples the box is interpolated.
    """
    lines = [
        f"{box.frame + 1},{number},{box.x + 1:.2f},{box.y + 1:.2f},{box.width:.2f},{box.height:.2f},"
        f"{track.score:.4f},-1,-1,-1\n"
        for number, track in enumerate(answer.sightings, 1)
        for box in filled(answer.video, track)
    ]
    return "".join(lines)
