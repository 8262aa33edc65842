"""Requests for pilots: cores, memory, time, and where in the batch system."""

from __future__ import annotations

import msgspec

from pilotage.base import errors, units
from pilotage.batch.model import SiteSettings
from pilotage.batch.system.model import BatchOrder


class PilotRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What one pilot is to have."""

    #: Cores; 0 means what the batch system gives.
    cpus: int = 1
    memory: int | None = None
    gpus: int = 0
    #: Seconds that it may run.
    time: float | None = None
    queue: str = ""
    account: str = ""
    #: Seconds without work after which it leaves; nothing means the hub's own rule.
    idle: float | None = None


def check(wish: PilotRequest) -> None:
    """Raise `UsageError` for what no batch system could read."""
    if wish.cpus < 1 or wish.gpus < 0:
        raise errors.UsageError("a pilot has at least one core")
    if wish.memory is not None and wish.memory < 1:
        raise errors.UsageError(f"{wish.memory} bytes are no amount of memory")
    for word in (wish.queue, wish.account):
        if word.startswith("-") or any(one.isspace() or not one.isprintable() for one in word):
            raise errors.UsageError(f"{word!r} is not one word")


def lasts(wish: PilotRequest, site: SiteSettings) -> float | None:
    """Return for how many seconds a pilot may run; nothing if that is the queue's own matter."""
    usual = units.seconds(site.defaults.time) if site.defaults.time else None
    return wish.time or usual


def order(
    wish: PilotRequest, site: SiteSettings, *, key: str, script: str, folder: str, count: int
) -> BatchOrder:
    """Write what the batch system is asked for."""
    defaults = site.defaults
    return BatchOrder(
        key=key, script=script, folder=folder, count=count, cpus=wish.cpus, memory=wish.memory,
        gpus=wish.gpus, time=lasts(wish, site), queue=wish.queue or defaults.queue,
        account=wish.account or defaults.account, qos=defaults.qos,
        constraint=defaults.constraint, reservation=defaults.reservation,
    )  # fmt: skip
