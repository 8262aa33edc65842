"""An order as a submit description.

HTCondor starts a job again if it loses it. Ours are not to be: a job that had a shadow once matches
no machine any more, and is removed when HTCondor next looks at its policies. `NumShadowStarts`
counts before a job begins, unlike `NumJobStarts`, so that no start goes unseen; a shadow that finds
its job again after a restart of the scheduler needs no match and is none of these.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from pilotage.batch.system import lacks
from pilotage.batch.system.model import BatchError, Order

WALL_TIME = "pilotage: it used up its wall time"
HELD = "pilotage: it was held after it had begun"
LOST = "pilotage: it was to be started a second time"

_MEBI = 1 << 20
_ONCE = "(NumShadowStarts ?: 0)"
#: What removes a job also says why, by the state that it was in: idle, running or held.
_REASON = (
    f'ifThenElse(JobStatus == 2, "{WALL_TIME}", ifThenElse(JobStatus == 5, "{HELD}", "{LOST}"))'
)
#: Seconds between SIGTERM and SIGKILL.
_GRACE = 30
#: Letters that mean something to the language of descriptions, or end a text in it.
_SPECIAL = re.compile(r"[\"'$\\]")
#: What a ClassAd expression may be made of: no comments, no separators, no macros.
_EXPRESSION = re.compile(r"[\w\s.()<>=!&|+*%?:,\"\[\]-]*")
_OPTION = re.compile(r"--(?P<name>(\+|MY\.)?[A-Za-z_]\w*)(=(?P<value>.+))?", re.ASCII)
#: Commands and attributes that are ours, bare of underscores.
_OURS = frozenset({
    "universe", "executable", "transferexecutable", "cmd", "arguments", "args", "environment",
    "env", "getenv", "initialdir", "iwd", "output", "out", "error", "err", "log", "queue",
    "requirements", "pilotagekey", "batchname", "jobbatchname", "shouldtransferfiles",
    "whentotransferoutput", "maxretries", "jobmaxretries", "retryuntil", "wantgracefulremoval",
    "owner", "user", "leaveinqueue", "leavejobinqueue", "numshadowstarts",
})  # fmt: skip
_OUR_KINDS = ("periodic", "onexit")


def write(order: Order) -> str:
    """Return the description; what makes the job ours comes last, as the last line counts."""
    lacks.refuse(
        order,
        "HTCondor's vanilla universe",
        nodes="jobs over several nodes",
        queue="queues",
        qos="qualities of service",
        reservation="reservations",
        step="steps",
    )
    if _SPECIAL.search(order.folder):
        raise BatchError(f"{order.folder!r} cannot stand in a submit description", final=True)
    lines = (*_resources(order), *_extra(order), *_identity(order), *_policy(order))
    return "\n".join((*lines, f"queue {order.count}", ""))


def _resources(order: Order) -> Iterator[str]:
    yield f"request_cpus = {order.tasks * order.cpus}"
    if order.memory is not None:
        yield f"request_memory = {math.ceil(order.memory / _MEBI)}"
    if order.gpus:
        yield f"request_gpus = {order.gpus}"
    if order.account:
        if _SPECIAL.search(order.account):
            raise BatchError(f"account: {order.account!r} is no name", final=True)
        yield f"accounting_group = {order.account}"


def _extra(order: Order) -> Iterator[str]:
    for option in order.extra:
        found = _OPTION.fullmatch(option)
        if found is None or re.search(r"[$\\]", option):
            raise BatchError(f"extra: {option!r} is no command of a description", final=True)
        bare = found["name"].lower().lstrip("+").removeprefix("my.").replace("_", "")
        if bare in _OURS or bare.startswith(_OUR_KINDS):
            raise BatchError(f"extra: {option!r} is not for others to set", final=True)
        yield f"{found['name']} = {found['value'] or 'True'}"


def _identity(order: Order) -> Iterator[str]:
    folder = order.folder
    yield "universe = vanilla"
    yield "executable = /bin/sh"
    yield "transfer_executable = False"
    yield f"arguments = \"'{folder}/script.sh'\""
    yield 'environment = "PILOTAGE_INDEX=$(Process)"'
    yield f"initialdir = {folder}"
    yield f"output = {folder}/out.$(Process)"
    yield f"error = {folder}/err.$(Process)"
    yield "should_transfer_files = NO"
    yield f'+PilotageKey = "{order.key}"'
    yield f"batch_name = {order.key}"


def _policy(order: Order) -> Iterator[str]:
    wanted = f"({_expression(order.constraint)}) && " if order.constraint else ""
    yield f"requirements = {wanted}{_ONCE} == 0"
    over = [f"((JobStatus == 1 || JobStatus == 5) && {_ONCE} > 0)"]
    if order.time is not None:
        spent = "time() - JobCurrentStartExecutingDate"
        over.append(f"((JobStatus == 2 && {spent} > {math.ceil(order.time)}) =?= True)")
    yield f"periodic_remove = {' || '.join(over)}"
    yield f"+PeriodicRemoveReason = {_REASON}"
    yield "on_exit_remove = True"
    yield "want_graceful_removal = True"
    yield f"job_max_vacate_time = {_GRACE}"


def _expression(text: str) -> str:
    """Check that an expression stays one between brackets."""
    bare = re.sub(r'"[^"]*"', "", text)
    depth = 0
    for letter in bare:
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth < 0:
            break
    if depth or '"' in bare or not _EXPRESSION.fullmatch(text):
        raise BatchError(f"constraint: {text!r} is no expression", final=True)
    return text
