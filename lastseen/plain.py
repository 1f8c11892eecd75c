"""Fields of frozen configs that are read from JSON: their types checked, so that a mistake is found there."""

from __future__ import annotations

import math
import types
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

MOST = 1e6  # of any number: larger ones are mistakes, and overflow
MOST_ITEMS = 1000


C = TypeVar("C")


def made_of(config: type[C], data: Any, name: str) -> C:
    """The config with these fields; ValueError or TypeError says what is wrong with them."""
    if isinstance(data, dict):
        with suppress(TypeError):  # what the config says of a value itself is more exact
            config(**data)
    check_fields(config, data, name)
    return config(**data)


def check_fields(config: type, data: Any, name: str) -> None:
    """Raise ValueError unless `data` is an object whose values have the types of the config's fields.

    Unknown and missing fields are left to the config itself.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{name} must be an object, got {_shown(data)}")
    hints = get_type_hints(config)
    for field in fields(config):
        hint = hints[field.name]
        if field.name in data and not is_dataclass(hint) and not _fits(data[field.name], hint):
            wanted = _in_words(hint)
            raise ValueError(f"{name}.{field.name} must be {wanted}, got {_shown(data[field.name])}")


def _fits(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if get_origin(hint) is tuple:
        of = get_args(hint)[0]
        is_list = isinstance(value, list | tuple) and len(value) <= MOST_ITEMS
        return is_list and all(_fits(item, of) for item in value)
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value) and abs(value) <= MOST
    if hint is int:
        return type(value) is int and abs(value) <= MOST
    return type(value) is hint


def _in_words(hint: Any) -> str:
    if get_origin(hint) is tuple:
        return f"a list of {_in_words(get_args(hint)[0])} each"
    if get_origin(hint) is not None:
        return " or ".join(map(_in_words, get_args(hint)))
    known = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return known.get(hint, "null")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:40]}..."
