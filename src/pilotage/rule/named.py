"""Files of hubs that a factory feeds; everything else is read by `base.toml`."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pilotage.base import errors, toml
from pilotage.base.toml import SUFFIX, names

__all__ = ["SUFFIX", "names", "parse"]

_T = TypeVar("_T")
_UNKNOWN = re.compile("unknown field `([^`]+)`")
_CANNOT = re.compile(r"`([\w.]+)` cannot")

#: Says which key a mistake is about; it is given what the file holds, too.
Keys = Callable[[Exception, dict[str, Any]], list[str]]


def keys_of(error: Exception, _found: dict[str, Any]) -> list[str]:
    """Read from the words of a mistake which key it is about."""
    message = str(error)
    _, _, at = message.partition("`$.")
    keys = at.rstrip("`").partition("[")[0].split(".") if at else []
    if unknown := _UNKNOWN.search(message):
        return [*keys, unknown[1]]
    told = _CANNOT.search(message)
    return keys or (told[1].split(".") if told else [])


def parse(
    source: str, file: Path, make: Callable[[dict[str, Any]], _T], page: str, keys: Keys = keys_of
) -> _T:
    """Make something of the text of a file; say where a mistake is, and which page tells more."""
    try:
        found: dict[str, Any] = tomllib.loads(source)
    except tomllib.TOMLDecodeError as error:
        message = f"{file}: {error}"
        raise errors.ConfigError(message, hint="this is a mistake of TOML syntax") from error
    try:
        return make(found)
    except (msgspec.ValidationError, errors.ConfigError, errors.UsageError) as error:
        line = toml.line_of(source, keys(error, found))
        place = f"{file}:{line}" if line else str(file)
        hint = getattr(error, "hint", "") or f"the page on {page} lists all settings"
        raise errors.ConfigError(f"{place}: {error}", hint=hint) from error
