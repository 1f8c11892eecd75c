"""An answer as a file of arrays, exact to the bit, and back. Does not import torch."""

from __future__ import annotations

import io
import json
import zipfile
from dataclasses import fields
from typing import Any

import numpy as np

from lastseen.answer import Answer, ScoreCurve
from lastseen.box import Box
from lastseen.errors import IndexStoreError, TrackError
from lastseen.index.entry import IndexedVideo
from lastseen.track import ResponseTrack

# Of an answer; its video, question and damage are kept elsewhere: they are forgotten at other times.
FACTS = ("model", "threshold", "label", "unreadable_s", "searched_to_s", "video_missing")
CURVE = tuple(field.name for field in fields(ScoreCurve) if field.name != "fps")


def packed(answer: Answer) -> bytes:
    facts: dict[str, Any] = {name: getattr(answer, name) for name in FACTS}
    facts["steps"] = list(answer.steps)
    facts["sightings"] = [_track(track) for track in answer.sightings]
    facts["best_guess"] = answer.best_guess and _track(answer.best_guess)
    arrays = {}
    if answer.curve is not None:
        facts["fps"] = answer.curve.fps
        arrays = {name: getattr(answer.curve, name) for name in CURVE}
    text = np.frombuffer(json.dumps(facts).encode(), np.uint8)
    stream = io.BytesIO()
    np.savez_compressed(stream, facts=text, **arrays)
    return stream.getvalue()


def unpacked(content: bytes, video: IndexedVideo) -> Answer:
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            facts = json.loads(arrays["facts"].tobytes())
            curve = None
            if "fps" in facts:
                curve = ScoreCurve(fps=facts["fps"], **{name: arrays[name] for name in CURVE})
        return Answer(
            video=video,
            sightings=tuple(map(_from, facts["sightings"])),
            best_guess=facts["best_guess"] and _from(facts["best_guess"]),
            curve=curve,
            steps=tuple(facts["steps"]),
            **{name: facts[name] for name in FACTS},
        )
    except (KeyError, TypeError, ValueError, OSError, RecursionError, zipfile.BadZipFile, TrackError):
        raise IndexStoreError("an answer is of another version of lastseen") from None


def _track(track: ResponseTrack) -> dict[str, Any]:
    return {
        "first_frame": track.first_frame,
        "fps": float(track.fps),
        "score": float(track.score),
        "boxes": [list(map(float, box.xyxy)) for box in track.boxes],  # NumPy's own numbers are no JSON
    }


def _from(track: dict[str, Any]) -> ResponseTrack:
    return ResponseTrack(**{**track, "boxes": tuple(Box(*box) for box in track["boxes"])})
