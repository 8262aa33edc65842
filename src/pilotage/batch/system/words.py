"""Checks and readings that adapters share: orders before submission, words of schedulers after."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from .model import BatchEnd, BatchError, BatchOrder, EndCause, Output

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]{14}")
#: Line ends, escapes, NUL: no name at a site has them, and many a parser stumbles over them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAMES = ("queue", "account", "qos", "constraint", "reservation")
_AT_LEAST = {"count": 1, "nodes": 1, "tasks": 1, "cpus": 1, "gpus": 0}
_PLAIN = BatchOrder(key="", script="", folder="")
_SPAN = re.compile(r"([0-9]+)(?:-([0-9]+)(?::([0-9]+))?)?", re.ASCII)
#: The highest number in an array; no scheduler takes larger ones.
_HIGHEST_INDEX = 10_000_000
#: Exit codes by which a shell reports a signal: 128 and its number.
_SIGNAL_BASE, _HIGHEST_SIGNAL = 128, 64
#: How `date` writes a time, as PBS and Grid Engine do.
DATE = "%a %b %d %H:%M:%S %Y"


# -- orders ----------------------------------------------------------------------------------------


def is_key(name: str) -> bool:
    """Return whether the name of a batch job could be a `BatchOrder.key`."""
    return _KEY.fullmatch(name) is not None


def check(order: BatchOrder) -> None:
    """Raise a final `BatchError` for an order that no batch system could take as it is meant."""
    if not is_key(order.key):
        raise BatchError(f"{order.key!r} is not a key of a batch job", final=True)
    if not order.folder.startswith("/") or _CONTROL.search(order.folder):
        raise BatchError(f"{order.folder!r} is not an absolute path", final=True)
    if "\0" in order.script:
        raise BatchError("the script holds a zero byte", final=True)
    _check_text(order)
    _check_amounts(order)


def _check_text(order: BatchOrder) -> None:
    for name in _NAMES:
        value = getattr(order, name)
        if value.startswith("-") or value != value.strip() or _CONTROL.search(value):
            raise BatchError(f"{name}: {value!r} is no name", final=True)
    for value in order.extra:
        # `-` and `--` alone end the options.
        if not value.startswith("-") or not value.strip("-") or _CONTROL.search(value):
            raise BatchError(f"extra: {value!r} is no option", final=True)


def _check_amounts(order: BatchOrder) -> None:
    for name, least in _AT_LEAST.items():
        if getattr(order, name) < least:
            raise BatchError(f"{name}: {getattr(order, name)} is less than {least}", final=True)
    for name, value in (("memory", order.memory), ("time", order.time)):
        if value is not None and not 0 < value < float("inf"):
            raise BatchError(f"{name}: {value} is no amount", final=True)


def refuse(order: BatchOrder, system: str, **lacks: str) -> None:
    """Raise a final `BatchError` if an order needs something that the system does not have.

    Each keyword is a field of an order, with the name of the missing feature: `queue="queues"`.
    """
    for field, what in lacks.items():
        value = getattr(order, field)
        if value != getattr(_PLAIN, field):
            raise BatchError(f"{field} = {value!r}: {system} has no {what}", final=True)


def options(
    order: BatchOrder, pattern: re.Pattern[str], reserved: frozenset[str]
) -> Iterator[tuple[str, ...]]:
    """Return the words of each option in `extra`; raise for those that only the adapter may set.

    The pattern has the groups `name` and `value`: `-pe=smp` is two words of `qsub`.
    """
    for option in order.extra:
        found = pattern.fullmatch(option)
        if found is None or found["name"] in reserved or (found["value"] or "").startswith("-"):
            raise BatchError(f"extra: {option!r} is not an allowed option", final=True)
        name = f"-{found['name']}"
        yield (name, found["value"]) if found["value"] else (name,)


# -- what schedulers say ---------------------------------------------------------------------------


def complaint(said: Output) -> str:
    """Return the output of a command that failed, in one line."""
    text = said.err.strip() or said.out.strip()
    return " ".join(text.split())[:500] or f"it ended with status {said.exit} and said nothing"


def xml(tool: str, text: str, tag: str) -> ET.Element:
    """Read a listing in XML, which has one element around all; raise `BatchError` if it is none."""
    try:
        tree = ET.fromstring(text)  # noqa: S314 - of the scheduler, and it has no entities
    except (ET.ParseError, ValueError) as error:
        raise BatchError(f"{tool}: not a listing: {error}") from None
    if tree.tag != tag:
        raise BatchError(f"{tool}: not a listing but {tree.tag!r}")
    return tree


def indices(text: str) -> Iterator[int]:
    """Return the numbers of `1,4-6,10-20:2`; raise `ValueError` for anything else."""
    for span in text.split(","):
        found = _SPAN.fullmatch(span.strip())
        if found is None:
            raise ValueError(text)
        first, last, step = found.groups()
        if int(last or first) > _HIGHEST_INDEX or step == "0":
            raise ValueError(text)
        yield from range(int(first), int(last or first) + 1, int(step or 1))


def moment(text: str, *forms: str) -> float:
    """Read a time in UTC by the first form that fits; raise `ValueError` if none does."""
    for form in forms:
        try:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    raise ValueError(text)


def ended(code: int) -> BatchEnd:
    """Return why a job ended, by its exit code as a shell reports it."""
    if _SIGNAL_BASE < code <= _SIGNAL_BASE + _HIGHEST_SIGNAL:
        return BatchEnd(EndCause.SIGNALLED, signal=code - _SIGNAL_BASE)
    return BatchEnd(EndCause.EXITED, exit=code)
