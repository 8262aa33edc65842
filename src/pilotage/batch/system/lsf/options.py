"""An order as options of `bsub`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pilotage.batch.system import lacks
from pilotage.batch.system.model import BatchError, Order

_MEBI = 1 << 20
#: `-app=NAME`, `-H`, with one or two dashes: what LSF takes as two words is one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z]+)(=(?P<value>.+))?", re.ASCII)
#: Options that are ours, or that would have `bsub` wait or read something else.
_OURS = frozenset({
    "J", "Jd", "o", "oo", "e", "eo", "cwd", "rn", "r", "Q", "I", "Ip", "Is", "IS", "K", "i", "is",
    "L", "Zs", "pack", "f", "h", "V", "a",
})  # fmt: skip
#: `%J` and `%I` in paths.
_SPECIAL = re.compile("%")
#: What would end a section of the resource requirement, or start another.
_BRACKETS = re.compile(r"[\[\]{};]")


def batch(order: Order) -> list[str]:
    """Return the options; what makes the job ours comes last."""
    lacks.refuse(order, "LSF", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot stand in an option of bsub", final=True)
    if _BRACKETS.search(order.constraint):
        raise BatchError(f"constraint: {order.constraint!r} is no selection", final=True)
    return [*_resources(order), *_extra(order), *_identity(order)]


def _resources(order: Order) -> Iterator[str]:
    node = order.tasks * order.cpus
    yield from ("-n", str(order.nodes * node))
    yield from ("-R", f"span[ptile={node}]" if order.nodes > 1 else "span[hosts=1]")
    if order.memory is not None:
        amount = f"{math.ceil(order.memory / _MEBI)}MB"
        yield from ("-M", amount)
        yield from ("-R", f"rusage[mem={amount}/host]")
    if order.gpus:
        yield from ("-gpu", f"num={order.gpus}")
    if order.time is not None:
        yield from ("-W", str(math.ceil(order.time / 60)))
    if order.constraint:
        yield from ("-R", f"select[{order.constraint}]")
    named = (("-q", order.queue), ("-P", order.account), ("-sla", order.qos))
    for option, value in (*named, ("-U", order.reservation)):
        if value:
            yield from (option, value)


def _extra(order: Order) -> Iterator[str]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or found["name"] in _OURS or (found["value"] or "").startswith("-"):
            raise BatchError(f"extra: {option!r} is no option that may be given", final=True)
        yield f"-{found['name']}"
        if found["value"]:
            yield found["value"]


def _identity(order: Order) -> Iterator[str]:
    number = "%I" if order.count > 1 else "0"
    span = f"[1-{order.count}]" if order.count > 1 else ""
    yield from ("-J", order.key + span)
    yield "-rn"
    yield from ("-cwd", order.folder)
    yield from ("-o", f"{order.folder}/out.{number}")
    yield from ("-e", f"{order.folder}/err.{number}")
