"""Damaged answers, annotations and predictions, through the commands that read them."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from lastseen.answer import Answer, VideoFacts
from lastseen.box import Box
from lastseen.cli import main
from lastseen.formats import FORMATS
from lastseen.formats.answer_json import ANSWERS_SCHEMA, answer_dict
from lastseen.track import ResponseTrack
from soak.case import NORMAL, REFUSED, Broken, Case, check_line
from soak.mutate import DAMAGE, damaged_json

NAME = "texts"
CASES = 2000
LIMIT_S = 20.0
KINDS = ("answer", "answers", "annotations", "predictions", "absent")


def prepare(folder: Path) -> None:
    for name, value in (
        ("answer", _answer()),
        ("answers", _answers()),
        ("annotations", _annotations()),
        ("predictions", _predictions()),
        ("absent", _absent()),
    ):
        (folder / f"{name}.json").write_text(json.dumps(value))


def run(case: Case) -> str:
    kind, turn = KINDS[case.number % len(KINDS)], case.number // len(KINDS)
    sound = {name: (case.prepared / f"{name}.json").read_bytes() for name in KINDS}
    if turn % 3:
        how = "values"
        data = damaged_json(case.rng, json.loads(sound[kind])).encode("utf-8", "surrogatepass")
    else:
        how = list(DAMAGE)[turn // 3 % len(DAMAGE)]
        data = DAMAGE[how](case.rng, bytearray(sound[kind]), list(sound.values()))
    changed = case.scratch / f"{kind}.json"
    changed.write_bytes(data)
    files = {name: case.prepared / f"{name}.json" for name in KINDS} | {kind: changed}
    if kind in ("answer", "answers"):
        form = list(FORMATS)[turn % len(FORMATS)]
        case.say(f"export --to {form}, {how}")
        return _export(changed, form, case)
    given = ["--annotations", str(files["annotations"]), "--predictions", str(files["predictions"])]
    case.say(f"{kind}, {how}")
    outcomes = []
    if kind != "absent":
        outcomes.append(command(["validate", *given], case))
    outcomes.append(command(["evaluate", *given, "--absent", str(files["absent"])], case))
    return REFUSED if REFUSED in outcomes else NORMAL


def _export(answer: Path, form: str, case: Case) -> str:
    out = case.scratch / "out.file"
    outcome = command(["export", str(answer), str(out), "--to", form], case)
    written = sorted(path.name for path in case.scratch.iterdir())
    if written != sorted([answer.name] + ([out.name] if outcome == NORMAL else [])):
        raise Broken(f"{outcome}, and left {', '.join(written)}")
    return outcome


def command(words: Sequence[str], case: Case) -> str:
    """`lastseen WORDS` in this process: it prints what is asked for, or one line."""
    out, err = io.StringIO(), io.StringIO()
    status: Any = None
    before, sys.argv = sys.argv, ["lastseen", *words]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        status = ended.code or 0
    finally:
        sys.argv = before
    lines = [line for line in err.getvalue().splitlines() if not line.startswith(("note: ", "Wrote "))]
    if "internal error" in err.getvalue() or "Traceback" in err.getvalue():
        raise Broken(f"{words[0]}: {err.getvalue():.300}")
    if status not in (0, 1, 2):
        raise Broken(f"{words[0]}: exit status {status}")
    if status == 2:
        check_line("\n".join(lines), case.scratch, case.prepared)
        return REFUSED
    if lines:
        raise Broken(f"{words[0]}: exit status {status}, but stderr says {lines[0]:.200}")
    return NORMAL


# --- sound ones


def _answer() -> dict[str, Any]:
    boxes = [Box(10.0 + n, 20.0, 60.0 + n, 80.0) for n in range(4)]
    track = ResponseTrack(first_frame=5, fps=5.0, boxes=tuple(boxes), score=0.8)
    video = VideoFacts(path=Path("walk.mp4"), width=320, height=180, fps=15.0, duration_s=10.0)
    sightings = (track, track.delayed(25))
    return answer_dict(Answer(video=video, sightings=sightings, best_guess=track, model="tiny"))


def _answers() -> dict[str, Any]:
    answers = [{**_answer(), "name": "walk.mp4", "seen_at": None}]
    things = [{"thing": "cup", "found": True, "answers": answers, "damaged": []}]
    return {"schema": ANSWERS_SCHEMA, "index": "index", "model": "tiny", "things": things}


def _box(frame: int) -> dict[str, Any]:
    size = {"original_width": 640, "original_height": 360}
    return {"frame_number": frame, "x": 10, "y": 20, "width": 30, "height": 40, **size}


def _annotations() -> dict[str, Any]:
    def query_set(frame: int) -> dict[str, Any]:
        return {
            "is_valid": True,
            "query_frame": frame,
            "object_title": "cup",
            "visual_crop": _box(frame + 10),
            "response_track": [_box(7), _box(8), _box(9)],
        }

    annotation = {"annotation_uid": "a", "query_sets": {"1": query_set(50), "2": query_set(60)}}
    clip = {
        "clip_uid": "c",
        "video_start_sec": 3.0,
        "video_end_sec": 63.0,
        "clip_fps": 5.0,
        "annotations": [annotation],
    }
    return {"version": "1.0.5", "videos": [{"video_uid": "v", "split": "val", "clips": [clip]}]}


def _predictions() -> dict[str, Any]:
    boxes = [{"fno": n, "x1": 1.0, "x2": 50.0, "y1": 2.0, "y2": 60.0} for n in (7, 8, 9)]
    sets = {name: {"bboxes": boxes, "score": 0.9} for name in ("1", "2")}
    clip = {"clip_uid": "c", "predictions": [{"annotation_uid": "a", "query_sets": sets}]}
    return {
        "version": "1.0.5",
        "challenge": "ego4d_vq2d_challenge",
        "results": {"videos": [{"video_uid": "v", "clips": [clip]}]},
        "absent": [{"query_uid": "q1", "score": 0.25}],
    }


def _absent() -> dict[str, Any]:
    crop = {**_box(3), "image": "q1.png"}
    return {"queries": [{"query_uid": "q1", "clip_uid": "c", "query_frame": 50, "visual_crop": crop}]}
