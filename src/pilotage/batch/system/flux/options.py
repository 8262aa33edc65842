"""An order as words of `flux submit` or `flux batch`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pilotage.batch.system import lacks
from pilotage.batch.system.model import BatchError, Order

_OPTION = re.compile(r"--(?P<name>[a-z][a-z-]*)(=.+)?", re.ASCII)
#: Options that are ours, that make more jobs of one, or that wait.
_OURS = frozenset({
    "job-name", "cwd", "output", "error", "input", "cc", "bcc", "wait", "watch", "log", "quiet",
    "log-stderr", "dry-run", "wrap", "flags", "progress", "jps", "define", "sep", "shuffle",
})  # fmt: skip
#: `{cc}` and `{{id}}` in paths.
_SPECIAL = re.compile(r"[{}]")


def submit(order: Order) -> tuple[str, ...]:
    """Return the command; what makes the job ours comes last, as the last of two equal counts."""
    lacks.refuse(
        order,
        "Flux",
        count="arrays",
        qos="qualities of service",
        reservation="reservations",
        step="steps",
    )
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot stand in an option of flux", final=True)
    script = f"{order.folder}/script.sh"
    common = (*_common(order), *_extra(order), *_identity(order))
    if order.nodes > 1:
        return ("flux", "batch", *_spread(order), *common, script)
    return ("flux", "submit", *_single(order), *common, "/bin/sh", script)


def _single(order: Order) -> Iterator[str]:
    """Ask for one process that has all the cores."""
    yield "--ntasks=1"
    yield f"--cores-per-task={order.tasks * order.cpus}"
    if order.gpus:
        yield f"--gpus-per-task={order.gpus}"


def _spread(order: Order) -> Iterator[str]:
    """Ask for an instance with a slot on each node; the script runs once, on the first."""
    yield f"--nodes={order.nodes}"
    yield f"--nslots={order.nodes}"
    yield f"--cores-per-slot={order.tasks * order.cpus}"
    if order.gpus:
        yield f"--gpus-per-slot={order.gpus}"


def _common(order: Order) -> Iterator[str]:
    if order.time is not None:
        yield f"--time-limit={math.ceil(order.time)}s"
    if order.queue:
        yield f"--queue={order.queue}"
    if order.account:
        yield f"--setattr=system.bank={order.account}"
    if order.constraint:
        yield f"--requires={order.constraint}"


def _extra(order: Order) -> Iterator[str]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or found["name"] in _OURS:
            raise BatchError(f"extra: {option!r} is no option that may be given", final=True)
        yield option


def _identity(order: Order) -> Iterator[str]:
    yield f"--job-name={order.key}"
    yield f"--cwd={order.folder}"
    yield f"--output={order.folder}/out.0"
    yield f"--error={order.folder}/err.0"
