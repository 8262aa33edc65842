"""An order as options of `qsub`: those of PBS Professional, and those of Torque.

Which of them count is decided at the site. Values are one word each; where PBS takes a list, what
would add to it is refused.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator

from pilotage.batch.system import lacks
from pilotage.batch.system.model import BatchError, Order

#: Says of the rest of the words: how many are for PBS Professional, these, then those for Torque.
_SHELL = """\
n=$1; shift
if qstat --version 2>&1 | grep -q pbs_version
then i=0; for word do shift; i=$((i+1)); [ "$i" -gt "$n" ] || set -- "$@" "$word"; done
else shift "$n"
fi
exec qsub "$@"
"""
#: `-l=place=excl`, `-P=project`, `-h`, with one or two dashes: two words of `qsub` as one.
_OPTION = re.compile(r"--?(?P<name>[A-Za-z])(=(?P<value>.+))?", re.ASCII)
#: Options that are ours: names, arrays, outputs, shells, directives, interaction, waiting.
_OURS = frozenset("NJtroejSCIXzfdDwxkR")
#: `host:path`; `^array_index^`.
_SPECIAL = re.compile(r"[:^,]")
_RESOURCES = re.compile(r"[\w.=:@-]+", re.ASCII)
_KIBI = 1 << 10


def script(order: Order) -> str:
    """Return what `qsub` reads: a job begins in the home directory unless it goes elsewhere."""
    return f"#!/bin/sh\ncd {shlex.quote(order.folder)} || exit 1\n{order.script}"


def submit(order: Order) -> tuple[str, ...]:
    """Return the command."""
    lacks.refuse(order, "PBS", qos="qualities of service", step="steps")
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot stand in an option of qsub", final=True)
    if order.constraint and not _RESOURCES.fullmatch(order.constraint):
        raise BatchError(f"constraint: {order.constraint!r} is no list of resources", final=True)
    if order.reservation and order.queue:
        raise BatchError("a reservation of PBS is a queue: there cannot be both", final=True)
    extra = [word for pair in _extra(order) for word in pair]
    professional = [*_professional(order), *extra, *_identity(order, "-J", ".^array_index^")]
    torque = [*_torque(order), *extra, *_identity(order, "-t", "")]
    return ("sh", "-c", _SHELL, "sh", str(len(professional)), *professional, *torque)


def _professional(order: Order) -> Iterator[str]:
    chunk = [f"ncpus={order.tasks * order.cpus}", f"mpiprocs={order.tasks}"]
    if order.memory is not None:
        chunk.append(f"mem={math.ceil(order.memory / _KIBI)}kb")
    if order.gpus:
        chunk.append(f"ngpus={order.gpus}")
    if order.constraint:
        chunk.append(order.constraint)
    yield from ("-l", f"select={order.nodes}:{':'.join(chunk)}")
    yield from _common(order)
    if order.reservation:
        yield from ("-q", order.reservation)


def _torque(order: Order) -> Iterator[str]:
    node = [f"ppn={order.tasks * order.cpus}"]
    if order.gpus:
        node.append(f"gpus={order.gpus}")
    if order.constraint:
        node.append(order.constraint)
    yield from ("-l", f"nodes={order.nodes}:{':'.join(node)}")
    if order.memory is not None:
        # Here it is of the whole job.
        yield from ("-l", f"mem={math.ceil(order.memory * order.nodes / _KIBI)}kb")
    yield from _common(order)
    if order.reservation:
        yield from ("-W", f"x=advres:{order.reservation}")


def _common(order: Order) -> Iterator[str]:
    if order.time is not None:
        seconds = math.ceil(order.time)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        yield from ("-l", f"walltime={clock}")
    if order.queue:
        yield from ("-q", order.queue)
    if order.account:
        yield from ("-A", order.account)


def _extra(order: Order) -> Iterator[tuple[str, ...]]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or found["name"] in _OURS or (found["value"] or "").startswith("-"):
            raise BatchError(f"extra: {option!r} is no option that may be given", final=True)
        yield (f"-{found['name']}", *([found["value"]] if found["value"] else []))


def _identity(order: Order, array: str, number: str) -> Iterator[str]:
    """Return what makes the job ours; it comes last, as the last of two equal options counts."""
    if order.count > 1:
        yield from (array, f"0-{order.count - 1}")
    suffix = number if order.count > 1 else ".0"
    yield from ("-N", order.key)
    yield from ("-r", "n")
    yield from ("-m", "n")
    yield from ("-S", "/bin/sh")
    yield from ("-o", f"{order.folder}/out{suffix}")
    yield from ("-e", f"{order.folder}/err{suffix}")
