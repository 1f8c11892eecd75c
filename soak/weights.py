"""Damaged model folders: loaded and usable, or one line."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path
from random import Random

from lastseen.localizer import Localizer
from lastseen.procedure import Standard
from lastseen.query import Query
from lastseen.video import Video
from lastseen.weights import load_model, load_rule
from soak.case import NORMAL, Case
from soak.mutate import DAMAGE, damaged_json
from soak.samples import blocks, moving, save_tiny_model, write_video

NAME = "weights"
CASES = 500
LIMIT_S = 20.0
FILES = ("model.safetensors", "config.json", "rule.json")


def prepare(folder: Path) -> None:
    save_tiny_model(folder / "model")
    write_video(folder / "walk.mp4", moving(2, 5), "libx264", fps=5)


def run(case: Case) -> str:
    folder = case.scratch / "model"
    shutil.copytree(case.prepared / "model", folder)
    name = FILES[case.number % len(FILES)]
    how, data = changed(case.rng, case.number // len(FILES), _sound(case.prepared), name)
    (folder / name).write_bytes(data)
    case.say(f"{name}, {how}")
    localizer = Localizer(load_model(folder), procedure=Standard(load_rule(folder)))
    localizer.ask(Video(case.prepared / "walk.mp4"), Query.from_array(blocks(5)))
    return NORMAL


def changed(rng: Random, number: int, sound: dict[str, bytes], name: str) -> tuple[str, bytes]:
    """As bytes, or half of the time in what they mean."""
    data = sound[name]
    if number % 2:
        kinds = list(DAMAGE)
        how = kinds[number // 2 % len(kinds)]
        return how, DAMAGE[how](rng, bytearray(data), list(sound.values()))
    if name.endswith(".json"):
        return "values", damaged_json(rng, json.loads(data)).encode("utf-8", "surrogatepass")
    length = int.from_bytes(data[:8], "little")
    head = damaged_json(rng, json.loads(data[8 : 8 + length])).encode("utf-8", "surrogatepass")
    return "values", len(head).to_bytes(8, "little") + head + data[8 + length :]


@cache
def _sound(folder: Path) -> dict[str, bytes]:
    return {name: (folder / "model" / name).read_bytes() for name in FILES}
