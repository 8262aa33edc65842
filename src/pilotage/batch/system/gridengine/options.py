"""An order as options of `qsub`, and its script as one that ends with no code that means more."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pilotage.batch.system import lacks
from pilotage.batch.system.model import BatchError, Order

#: `-pe=NAME`, `-l=big=1`, `-h`, with one or two dashes: what Grid Engine takes as two words is one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z_]+)(=(?P<value>.+))?", re.ASCII)
#: Options that are ours, or that would have `qsub` take its input for something else.
_OURS = frozenset({
    "N", "t", "terse", "r", "wd", "cwd", "o", "e", "j", "S", "sync", "now", "b", "shell", "C",
    "clear", "verify", "cmd", "notify", "i", "pty", "xd", "jsv",
})  # fmt: skip
#: What is read into paths: `host:path`, `$TASK_ID`, lists.
_SPECIAL = re.compile(r"[$:,]")
#: The usual name of an environment whose slots are all on one node.
_ONE_NODE = "smp"

#: Grid Engine runs a job again that ends with 99, whatever `-r` says, and puts one that ends with
#: 100 on hold. SIGUSR2 comes before SIGKILL, and to all processes: what the script runs hears it.
_SCRIPT = """\
#!/bin/sh
trap : USR1 USR2 XCPU
(
{script}
)
code=$?
case $code in 99|100) code=1;; esac
exit "$code"
"""


def script(order: Order) -> str:
    """Return what `qsub` reads."""
    return _SCRIPT.format(script=order.script.rstrip("\n"))


def batch(order: Order) -> list[str]:
    """Return the options; what makes the job ours comes last, as the last of two equal counts."""
    lacks.refuse(order, "Grid Engine", qos="qualities of service", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot stand in an option of qsub", final=True)
    given = dict(_given(order))
    environment = given.pop("-pe", None)
    extra = [word for pair in given.items() for word in pair if word is not None]
    return ["-terse", *_resources(order, environment), *extra, *_identity(order)]


def _resources(order: Order, environment: str | None) -> Iterator[str]:
    slots = order.nodes * order.tasks * order.cpus
    if order.nodes > 1 and environment is None:
        message = "Grid Engine needs a parallel environment for several nodes: extra = ['-pe=NAME']"
        raise BatchError(message, final=True)
    if slots > 1 or environment is not None:
        yield from ("-pe", environment or _ONE_NODE, str(slots))
    if order.time is not None:
        yield from ("-l", f"h_rt={math.ceil(order.time)}")
    if order.memory is not None:
        # It is counted for each slot.
        yield from ("-l", f"h_vmem={math.ceil(order.memory * order.nodes / slots)}")
    if order.gpus:
        yield from ("-l", f"gpu={order.gpus}")
    named = (("-q", order.queue), ("-P", order.account), ("-l", order.constraint))
    for option, value in (*named, ("-ar", order.reservation)):
        if value:
            yield from (option, value)


def _given(order: Order) -> Iterator[tuple[str, str | None]]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or found["name"] in _OURS or (found["value"] or "").startswith("-"):
            raise BatchError(f"extra: {option!r} is no option that may be given", final=True)
        yield f"-{found['name']}", found["value"]


def _identity(order: Order) -> Iterator[str]:
    number = "$TASK_ID" if order.count > 1 else "0"
    if order.count > 1:
        yield from ("-t", f"1-{order.count}")
    yield from ("-N", order.key)
    yield from ("-r", "n")
    yield "-notify"
    yield from ("-m", "n")
    yield from ("-j", "n")
    yield from ("-S", "/bin/sh")
    yield from ("-wd", order.folder)
    yield from ("-o", f"{order.folder}/out.{number}")
    yield from ("-e", f"{order.folder}/err.{number}")
