"""What all adapters ask of an order before it becomes words of a command."""

from __future__ import annotations

import re

from .model import BatchError, Order, Said

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9]{14}")
#: Line ends, escapes, NUL: no name at a site has them, and many a parser stumbles over them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAMES = ("queue", "account", "qos", "constraint", "reservation")
_AT_LEAST = {"count": 1, "nodes": 1, "tasks": 1, "cpus": 1, "gpus": 0}


def is_key(name: str) -> bool:
    """Say whether the name of a batch job could be an `Order.key`."""
    return _KEY.fullmatch(name) is not None


def check(order: Order) -> None:
    """Raise a final `BatchError` for an order that no batch system could take as it is meant."""
    if not is_key(order.key):
        raise BatchError(f"{order.key!r} is no key of a batch job", final=True)
    if not order.folder.startswith("/") or _CONTROL.search(order.folder):
        raise BatchError(f"{order.folder!r} is no absolute path", final=True)
    if "\0" in order.script:
        raise BatchError("the script holds a zero byte", final=True)
    _check_text(order)
    _check_amounts(order)


def _check_text(order: Order) -> None:
    for name in _NAMES:
        value = getattr(order, name)
        if value.startswith("-") or value != value.strip() or _CONTROL.search(value):
            raise BatchError(f"{name}: {value!r} is no name", final=True)
    for value in order.extra:
        # `-` and `--` alone end the options.
        if not value.startswith("-") or not value.strip("-") or _CONTROL.search(value):
            raise BatchError(f"extra: {value!r} is no option", final=True)


def _check_amounts(order: Order) -> None:
    for name, least in _AT_LEAST.items():
        if getattr(order, name) < least:
            raise BatchError(f"{name}: {getattr(order, name)} is less than {least}", final=True)
    for name, value in (("memory", order.memory), ("time", order.time)):
        if value is not None and not 0 < value < float("inf"):
            raise BatchError(f"{name}: {value} is no amount", final=True)


def complaint(said: Said) -> str:
    """Return what a command that failed said, in one line."""
    text = said.err.strip() or said.out.strip()
    return " ".join(text.split())[:500] or f"it ended with status {said.exit} and said nothing"
