"""Seeded damage. The same random generator always damages the same input in the same way."""

from __future__ import annotations

import copy
import json
import re
import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

Damage = Callable[[Random, bytearray, Sequence[bytes]], bytes]
ODD_NUMBERS = (0, 1, 2, 7, 8, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF)
BOX_NAME = re.compile(rb"[a-zA-Z]{3}[a-zA-Z0-9 ]")  # of MP4 boxes, PNG chunks, RIFF lists
TIME_BOXES = (b"stts", b"ctts", b"elst", b"mvhd", b"mdhd", b"tkhd", b"sidx", b"tfdt", b"trun")
EBML_IDS = (
    b"\x1a\x45\xdf\xa3",
    b"\x18\x53\x80\x67",
    b"\x15\x49\xa9\x66",
    b"\x16\x54\xae\x6b",
    b"\x1f\x43\xb6\x75",
)
EBML_TIME_IDS = (b"\xe7\x81", b"\xe7\x82", b"\x44\x89", b"\x2a\xd7\xb1")  # cluster time, duration, time scale


def flip_bits(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    for _ in range(rng.choice((1, 1, 2, 8, 32))):
        data[_place(rng, data)] ^= 1 << rng.randrange(8)
    return bytes(data)


def replace_bytes(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    for _ in range(rng.choice((1, 4, 16, 64))):
        data[_place(rng, data)] = rng.randrange(256)
    return bytes(data)


def zero_span(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    data[start:end] = bytes(end - start)
    return bytes(data)


def noise_span(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    data[start:end] = rng.randbytes(end - start)
    return bytes(data)


def truncate(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    return bytes(data[: _place(rng, data)])


def remove_span(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    del data[start:end]
    return bytes(data)


def duplicate_span(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    start, end = _span(rng, data)
    data[end:end] = data[start:end]
    return bytes(data)


def shuffle_spans(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    cuts = sorted(rng.randrange(len(data)) for _ in range(4))
    head, *middle, tail = (data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)]))
    rng.shuffle(middle)
    return bytes(b"".join((head, *middle, tail)))


def insert_noise(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    place = _place(rng, data)
    data[place:place] = rng.randbytes(rng.choice((1, 3, 64, 4096)))
    return bytes(data)


def edit_sizes(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    """The length that a box, chunk or element says it has."""
    names = [match.start() for match in BOX_NAME.finditer(data)]
    elements = [place for id in EBML_IDS if (place := data.find(id)) >= 0]
    for _ in range(rng.choice((1, 1, 3))):
        if elements and rng.random() < 0.7:
            _put(
                data, rng.choice(elements) + 4, struct.pack(">B", rng.choice((0x01, 0x40, 0x80, 0x81, 0xFF)))
            )
        elif names:
            place = rng.choice(names[:40] + names[-40:])
            number = rng.choice((*ODD_NUMBERS, len(data), rng.randrange(1 << 32)))
            # Before its name in MP4 and PNG, behind it and the other way round in RIFF.
            _put(data, place - 4, struct.pack(">I", number)) if rng.random() < 0.7 else _put(
                data, place + 4, struct.pack("<I", number)
            )
    return bytes(data)


def edit_numbers(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    """Extreme numbers, as lengths, counts and offsets may be, near the beginning or the end."""
    for _ in range(rng.choice((1, 2, 6))):
        width, order = rng.choice("BHIQ"), rng.choice("<>")
        number = rng.choice(ODD_NUMBERS) & ((1 << 8 * struct.calcsize(width)) - 1)
        _put(data, _place(rng, data), struct.pack(order + width, number))
    return bytes(data)


def edit_times(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    """Numbers in the tables that say when frames are shown."""
    places = [m.start() + 8 for name in TIME_BOXES for m in re.finditer(re.escape(name), data)]
    places += [m.start() + 2 for id in EBML_TIME_IDS for m in re.finditer(re.escape(id), data)]
    if not places:
        return edit_numbers(rng, data, others)
    for _ in range(rng.choice((1, 2, 5))):
        _put(data, rng.choice(places) + 4 * rng.randrange(8), struct.pack(">I", rng.choice(ODD_NUMBERS)))
    return bytes(data)


def other_head(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    """The beginning of one kind of file on the rest of another."""
    length = rng.choice((4, 12, 64, 512, 4096))
    return bytes(rng.choice(others)[:length] + data[length:])


def other_tail(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    other = rng.choice(others)
    return bytes(data[: _place(rng, data)] + other[rng.randrange(len(other)) :])


def other_kind(rng: Random, data: bytearray, others: Sequence[bytes]) -> bytes:
    """A sound file under the name of another kind."""
    return rng.choice(others)


def noise(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    return rng.randbytes(rng.choice((1, 16, 400, len(data))))


def nothing(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    return b""


def untouched(rng: Random, data: bytearray, _: Sequence[bytes]) -> bytes:
    """Not damaged: the checks must hold for sound files, too."""
    return bytes(data)


DAMAGE: dict[str, Damage] = {
    damage.__name__.replace("_", " "): damage
    for damage in (
        flip_bits,
        truncate,
        zero_span,
        edit_sizes,
        edit_times,
        edit_numbers,
        replace_bytes,
        noise_span,
        remove_span,
        duplicate_span,
        shuffle_spans,
        insert_noise,
        other_head,
        other_tail,
        other_kind,
        noise,
        nothing,
        untouched,
    )
}


def damaged(rng: Random, number: int, sound: Sequence[bytes]) -> tuple[int, str, bytes]:
    """Case `number`: which of the sound files, the name of the damage, and the damaged bytes.

    Files and kinds of damage take turns, so that any run of cases holds all of them.
    """
    which, kinds = number % len(sound), list(DAMAGE)
    name = kinds[(number // len(sound) + 5 * which) % len(kinds)]
    return which, name, DAMAGE[name](rng, bytearray(sound[which]), sound)


# --- JSON

ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    0.5,
    1e308,
    -1e-320,
    10**30,
    float("nan"),
    float("-inf"),
    "",
    "x",
    "12",
    "lastseen/answer@1",
    "a\nb\x1b[31m\u2028c",
    "\ud800",
    "../../etc/passwd",
    "long " * 2000,
    [],
    {},
    [[]],
    [None, "1", {}],
    {"": None},
)
ODD_TEXTS = (
    "",
    " \n",
    "null",
    "[" * 100_000,
    '{"a":' * 100_000,
    "9" * 6000,
    "\ufeff{}",
    '{"schema": "lastseen/answer@1"}',
    "not json",
    '"text"',
    "[1, 2",
    "{}{}",
)


def damaged_json(rng: Random, value: Any) -> str:
    """The JSON of a value in which something was replaced, removed, doubled, renamed or moved."""
    if rng.random() < 0.05:
        return rng.choice(ODD_TEXTS)
    root = [copy.deepcopy(value)]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        _damage_tree(rng, root)
    return json.dumps(root[0] if root else None)


def _damage_tree(rng: Random, root: list[Any]) -> None:
    places = list(_places(root))
    if not places:
        return
    holder, key = rng.choice(places)
    how = rng.randrange(8)
    if how < 4:
        holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))
    elif how == 4:
        del holder[key]
    elif how == 5:
        other, other_key = rng.choice(places)
        if other_key in other if isinstance(other, dict) else other_key < len(other):
            holder[key] = copy.deepcopy(other[other_key])
    elif how == 6 and isinstance(holder, list):
        holder.insert(key, copy.deepcopy(holder[key]))
    elif isinstance(holder, dict):
        holder[rng.choice(("", "other", f"{key} "))] = holder.pop(key)
    elif isinstance(holder[key], int | float):
        holder[key] = holder[key] * rng.choice((-1, 1e6, 1e-6, 1e300))


def _places(node: Any) -> list[tuple[Any, Any]]:
    """(holder, key or position) of everything in a tree."""
    keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
    return [(node, key) for key in keys] + [place for key in keys for place in _places(node[key])]


# --- places


def _place(rng: Random, data: bytearray) -> int:
    """A byte, more often near the beginning or the end, where the structure is."""
    most = len(data)
    reach = min(most, rng.choice((64, 1024, most, most)))
    return rng.randrange(reach) if rng.random() < 0.7 else most - 1 - rng.randrange(reach)


def _span(rng: Random, data: bytearray) -> tuple[int, int]:
    start = _place(rng, data)
    return start, min(len(data), start + rng.choice((1, 8, 128, 1024, len(data) // 4, len(data))))


def _put(data: bytearray, place: int, value: bytes) -> None:
    """Overwrite; the length of the data stays."""
    if 0 <= place < len(data):
        value = value[: len(data) - place]
        data[place : place + len(value)] = value
