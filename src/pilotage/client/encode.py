"""Write calls as JSON, and refuse what JSON has no word for before it is sent."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.client.file import File
from pilotage.link.codec import LONGEST

_PLAIN = frozenset({int, str, bool, type(None)})


class FilesError(Exception):
    """There are files among the arguments; `file.lift` takes them out."""


def _other(value: Any) -> Any:  # noqa: ANN401 - whatever JSON has no word for
    if isinstance(value, File):
        raise FilesError
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


_strict = json.JSONEncoder(
    allow_nan=False, ensure_ascii=False, separators=(",", ":"), default=_other
).encode
_fast = msgspec.json.Encoder().encode


def call(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    """Write the arguments of one call."""
    for value in args:
        if type(value) not in _PLAIN:
            break
    else:
        if not kwargs:
            try:
                return _fast((args, kwargs))
            except (UnicodeEncodeError, OverflowError):
                pass  # the careful way says what is wrong
    return _carefully(args, kwargs)


def _carefully(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
    hint = "arguments are numbers (not NaN), text, lists, dicts with text as keys, `pilotage.File`"
    try:
        data = _strict([args, kwargs]).encode()
    except UnicodeEncodeError:
        message = "an argument is text that is not Unicode"
        raise errors.UsageError(message, hint="pass such a file name in another way") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise errors.UsageError(f"an argument is not JSON: {error}", hint=hint) from None
    if len(data) > LONGEST // 2:
        message = f"the arguments of one call take {len(data)} bytes"
        raise errors.TooLarge(message, hint="write large data to a file, and pass `pilotage.File`")
    return data
