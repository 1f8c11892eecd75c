"""Settings by name: `optimiser.lr=3e-4` on a config made of nested dataclasses, typed by its annotations."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from lastseen.errors import TrainError

T = TypeVar("T")
NONE = ("none", "null")
TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise TrainError(f"--set {text}: expected field=value, like optimiser.lr=3e-4")
    return name.strip(), value.strip()


def with_settings(config: T, settings: Sequence[tuple[str, str]]) -> T:
    """The config with each (dotted name, text) set; a mistake is one TrainError."""
    for name, text in settings:
        config = _with(config, config, name, name.split("."), text)
    return config


def setting_names(config: Any, prefix: str = "") -> Iterator[str]:
    """Dotted names of all fields that can be set."""
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from setting_names(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name


def _with(whole: Any, part: Any, name: str, path: list[str], text: str) -> Any:
    hints = get_type_hints(type(part))
    head, *rest = path
    if head not in hints:
        raise TrainError(f"unknown field {name!r}{_near(name, list(setting_names(whole)))}")
    value = getattr(part, head)
    if is_dataclass(value):
        if not rest:
            inner = ", ".join(f"{name}.{field.name}" for field in fields(value)[:3])
            raise TrainError(f"field {name!r} has fields of its own: set one of them, like {inner}")
        changed = _with(whole, value, name, rest, text)
    elif rest:
        raise TrainError(
            f"unknown field {name!r}: {name.removesuffix('.' + '.'.join(rest))!r} is a single value"
        )
    else:
        try:
            changed = parsed(text, hints[head])
        except ValueError as error:
            raise TrainError(f"{name}={text}: {error}") from None
    try:
        return replace(part, **{head: changed})
    except ValueError as error:
        raise TrainError(f"{name}={text}: {error}") from None


def parsed(text: str, hint: Any) -> Any:
    """Text as a value of the annotated type; ValueError says what was expected."""
    if get_origin(hint) in (types.UnionType, Union):
        options = get_args(hint)
        if type(None) in options and text.lower() in NONE:
            return None
        return parsed(text, next(option for option in options if option is not type(None)))
    if get_origin(hint) is tuple:
        return tuple(parsed(part, get_args(hint)[0]) for part in text.split(",") if part.strip())
    if hint is str:
        return text
    if hint is bool:
        if text.lower() not in TRUTH:
            raise ValueError("expected true or false")
        return TRUTH[text.lower()]
    if hint in (int, float):
        try:
            return hint(text.replace("_", ""))
        except ValueError:
            kind = "a whole number" if hint is int else "a number"
            raise ValueError(f"expected {kind}") from None
    raise ValueError("this field cannot be set by name")


def _near(name: str, names: list[str]) -> str:
    """The names that were perhaps meant: spelled alike, or with the same last part."""
    last = name.rsplit(".", 1)[-1]
    same = [known for known in names if known.rsplit(".", 1)[-1] == last]
    near = same or difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if not near:
        lasts = {known.rsplit(".", 1)[-1]: known for known in names}
        near = [lasts[found] for found in difflib.get_close_matches(last, list(lasts), n=3, cutoff=0.5)]
    return f"; did you mean {', '.join(near)}?" if near else f"; there are {', '.join(names[:8])} ..."
