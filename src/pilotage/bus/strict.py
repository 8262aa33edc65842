"""Strict decoding of untrusted JSON; ambiguity is rejected.

Duplicate keys, NaN, infinities, numbers that are too large, lone surrogates, control characters and
deep nesting are refused: other programs read them in different ways.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any

from pilotage.base import errors
from pilotage.bus.model import DEEPEST_BODY, MOST_BODY_BYTES

#: Fields that may have several lines, by path.
MANY_LINES = frozenset(
    {
        "config",
        "config_file",
        "description",
        "scheduler_config",
        "reason.text",
        "scheduler.text",
        "text",
    }
)
_WITHIN = re.compile(r"^(?:sub)?jobs\[\d+\]\.")
#: No part backtracks: an attacker must not make us read anything twice.
_PIECE = re.compile(r'"(?:\\.|[^"\\])*+"?|[\[{]|[\]}]|,(?=\s*+[\]}])', re.DOTALL)
#: Control characters, ends of lines and paragraphs, marks that turn the direction of writing
#: around, and halves of characters.
BAD = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
_BAD_EVEN_IN_TEXT = re.compile(BAD.pattern.replace("\x00-\x1f", "\x00-\x08\x0b\x0c\x0e-\x1f"))
#: In the source of a message, where JSON itself allows ends of lines between texts.
_BAD_IN_SOURCE = re.compile(BAD.pattern.replace("\x00-\x1f", ""))
_MOST_DIGITS = 32


def load(body: bytes) -> dict[str, Any]:
    """Read the body of a message."""
    if len(body) > MOST_BODY_BYTES:
        message = f"the message has {len(body)} bytes; the limit is {MOST_BODY_BYTES}"
        raise errors.BadMessage(message, hint="send large data as an input by its URL")
    try:
        source = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.BadMessage(f"the message is not UTF-8: byte {error.start}") from None
    found = _parse(source)
    if not isinstance(found, dict):
        raise errors.BadMessage("the message is not a JSON object")
    # Without a backslash every text of the message stands in the source as it is.
    if "\\" in source or _BAD_IN_SOURCE.search(source):
        _walk(found, "")
    return found


def plain(body: bytes) -> bool:
    """Return whether `load` would accept JSON that our own encoder has written.

    If not, only `load` knows.
    """
    source = body.decode("utf-8")
    return (
        len(body) <= MOST_BODY_BYTES
        and source.count("{") + source.count("[") <= DEEPEST_BODY
        and "\\" not in source
        and not _BAD_IN_SOURCE.search(source)
    )


def _parse(source: str) -> Any:  # noqa: ANN401 - any JSON value
    """Read JSON; tidy it first if it may be nested too deeply or cannot be read."""
    if source.count("{") + source.count("[") > DEEPEST_BODY:
        source = _tidy(source)
    try:
        return _DECODER.decode(source)
    except json.JSONDecodeError as error:
        tidy = _tidy(source)
        if tidy == source:
            raise _unreadable(error) from None
    try:
        return _DECODER.decode(tidy)
    except json.JSONDecodeError as error:
        raise _unreadable(error) from None


def _unreadable(error: json.JSONDecodeError) -> errors.BadMessage:
    return errors.BadMessage(f"the message is not JSON: {error.msg} in line {error.lineno}")


def _tidy(source: str) -> str:
    """Refuse deep nesting before anything is built, and drop commas that end a list.

    A widely copied job definition ends with such a comma.
    """
    depth = deepest = at = 0
    kept: list[str] = []
    for piece in _PIECE.finditer(source):
        match piece[0][0]:
            case "{" | "[":
                depth += 1
                deepest = max(deepest, depth)
            case "}" | "]":
                depth -= 1
            case ",":
                kept.append(source[at : piece.start()])
                at = piece.end()
            case _:
                pass  # text
    if deepest > DEEPEST_BODY:
        raise errors.BadMessage(f"the message is nested {deepest} deep, {DEEPEST_BODY} is the most")
    return "".join([*kept, source[at:]]) if kept else source


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise errors.BadMessage(f"the field {shown(twice)} is there twice", field=twice)
    return found


def _constant(word: str) -> Any:  # noqa: ANN401 - it never returns
    raise errors.BadMessage(f"the message holds {word}, which is not a number")


def _float(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise errors.BadMessage(f"the number {digits[:_MOST_DIGITS]} is too large")
    return value


def _int(digits: str) -> int:
    if len(digits) > _MOST_DIGITS:
        raise errors.BadMessage(f"the number {digits[:_MOST_DIGITS]}… is too large")
    return int(digits)


_DECODER = json.JSONDecoder(
    object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_int
)


def _walk(value: object, path: str) -> None:
    """Look at every text of a message, its keys too."""
    if isinstance(value, str):
        if BAD.search(value):
            _complain(value, path)
    elif isinstance(value, dict):
        for key, inner in value.items():
            below = f"{path}.{key}" if path else key
            if BAD.search(key):
                message = f"the name of the field {shown(below)} is not printable"
                raise errors.BadMessage(message, field=below)
            _walk(inner, below)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            _walk(inner, f"{path}[{number}]")


def _complain(value: str, path: str) -> None:
    many = _WITHIN.sub("", path) in MANY_LINES
    bad = (_BAD_EVEN_IN_TEXT if many else BAD).search(value)
    if bad:
        message = f"the field {shown(path)} holds the character U+{ord(bad[0]):04X}"
        raise errors.BadMessage(message, hint="only printable text is taken", field=path)


def shown(path: str) -> str:
    """Write the path of a field, whatever is in it."""
    return f"`{ascii(path[:200])[1:-1]}`"
