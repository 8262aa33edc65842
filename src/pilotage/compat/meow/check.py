"""Argument checks that raise MEOW's errors: TypeError, ValueError, KeyError."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from pilotage.base import errors, names, text

_T = TypeVar("_T")

LEVELS = range(5)
PORTS = range(1024, 49152)


def kind(value: object, wanted: type[_T], what: str) -> _T:
    """Return a value of the type that was asked for."""
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise TypeError(f"{what} is {value!r}: it must be {wanted.__name__}")
    return value


def number(value: object, what: str) -> float:
    """Return a number."""
    return value if isinstance(value, float) else kind(value, int, what)


def items(value: object, what: str) -> list[Any]:
    """Return a list or tuple as a list."""
    return list(value) if isinstance(value, tuple) else kind(value, list, what)


def name(value: object, what: str) -> str:
    """Return a name: printable characters, at least one."""
    found = kind(value, str, what)
    if not found or not found.isprintable():
        raise ValueError(f"{what} is {found!r}: it must be printable and not empty")
    return found


def variable(value: object, what: str) -> str:
    """Return the name of a variable of a recipe."""
    with as_value_error(what):
        return names.check_parameter(name(value, what))


def table(value: object, what: str) -> dict[str, Any]:
    """Return a dictionary with variables as keys, and values that can travel as JSON."""
    found = facts(value, what)
    for key in found:
        variable(key, f"a key of {what}")
    return found


def facts(value: object, what: str) -> dict[str, Any]:
    """Return a dictionary that can travel as JSON."""
    found = kind(value, dict, what)
    try:
        # The first writes what JSON has a word for, the second what the store takes.
        text.dump(json.loads(json.dumps(found, allow_nan=False)))
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(f"{what} cannot travel to a job: {error}") from None
    return dict(found)


def lines(value: object, what: str) -> list[str]:
    """Return lines of source."""
    found = [kind(line, str, f"a line of {what}") for line in items(value, what)]
    if not found:
        raise ValueError(f"{what} has no lines")
    return found


def suffix(value: object, allowed: tuple[str, ...], what: str) -> None:
    """Refuse a file that ends with something else."""
    if kind(value, str, what) and not str(value).endswith(allowed):
        raise ValueError(f"{what} is {value!r}: it must end with {' or '.join(allowed)}")


def log_level(value: object) -> int:
    """Return how much is printed, from 0 (nothing) to 4 (everything)."""
    found = kind(value, int, "logging")
    if found not in LEVELS:
        raise ValueError(f"logging is {found}: it must be 0 to {LEVELS[-1]}")
    return found


def by_name(value: object, wanted: type[_T], what: str) -> dict[str, _T]:
    """Return a dictionary whose keys are the names of its values."""
    found = kind(value, dict, what)
    for key, inner in found.items():
        if kind(inner, wanted, f"{what}[{key!r}]").name != key:  # type: ignore[attr-defined]
            raise KeyError(f"{what} has {inner.name!r} under the key {key!r}")
    return dict(found)


def several(value: object, wanted: type[_T], what: str) -> list[_T]:
    """Return one or several things as several."""
    found = [value] if isinstance(value, wanted) else items(value, what)
    if not found:
        raise ValueError(f"{what} are missing")
    return [kind(each, wanted, f"one of {what}") for each in found]


def not_done(given: object, what: str, why: str, up: int) -> None:
    """Warn of an argument that is taken and has no effect, `up` calls above this one."""
    if given:
        warnings.warn(f"{what}: {why}", UserWarning, stacklevel=up + 1)


@contextmanager
def as_value_error(what: str) -> Iterator[None]:
    """Let mistakes in rules come out as ValueError."""
    try:
        yield
    except errors.BadRule as error:
        hint = f"; {error.hint}" if error.hint else ""
        raise ValueError(f"{what}: {error.message}{hint}") from None
