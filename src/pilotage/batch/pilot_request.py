"""Requests for pilots: cores, memory, time, and where in the batch system."""

from __future__ import annotations

import msgspec

from pilotage.base import errors, units
from pilotage.batch.model import SiteSettings
from pilotage.batch.system.model import BatchOrder


class PilotRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The resources of one pilot, and where in the batch system it waits."""

    #: Cores.
    cpus: int = 1
    #: Memory, such as `"8G"`; empty means what the batch system gives.
    memory: int | str = ""
    #: GPUs.
    gpus: int = 0
    #: Wall time, such as `"12h"`; empty means the site's default.
    time: float | str = ""
    #: Queue or partition; empty means the site's default.
    queue: str = ""
    #: What is charged; empty means the site's default.
    account: str = ""
    #: Idle time after which it leaves; empty means the hub's default.
    idle: float | str = ""

    @property
    def bytes(self) -> int | None:
        """Bytes of memory, if set."""
        return None if self.memory == "" else units.size(self.memory)

    @property
    def seconds(self) -> float | None:
        """Seconds of wall time, if set."""
        return None if self.time == "" else units.seconds(self.time)

    @property
    def idle_seconds(self) -> float | None:
        """Seconds without work after which it leaves, if set."""
        return None if self.idle == "" else units.seconds(self.idle)

    def check(self) -> None:
        """Raise `UsageError` for a request that no batch system accepts."""
        # Reading an amount raises if its text is none.
        memory, _time, _idle = self.bytes, self.seconds, self.idle_seconds
        if self.cpus < 1 or self.gpus < 0:
            raise errors.UsageError("a pilot has at least one core")
        if memory is not None and memory < 1:
            raise errors.UsageError(f"{memory} bytes is too little memory")
        for word in (self.queue, self.account):
            if word.startswith("-") or any(one.isspace() or not one.isprintable() for one in word):
                raise errors.UsageError(f"{word!r} is not one word")

    def lifetime(self, site: SiteSettings) -> float | None:
        """Return for how many seconds a pilot may run; nothing if the queue decides."""
        usual = units.seconds(site.defaults.time) if site.defaults.time else None
        return self.seconds or usual


def order(
    request: PilotRequest, site: SiteSettings, *, key: str, script: str, folder: str, count: int
) -> BatchOrder:
    """Return the order for the batch system."""
    defaults = site.defaults
    return BatchOrder(
        key=key, script=script, folder=folder, count=count, cpus=request.cpus,
        memory=request.bytes, gpus=request.gpus, time=request.lifetime(site),
        queue=request.queue or defaults.queue, account=request.account or defaults.account,
        qos=defaults.qos, constraint=defaults.constraint, reservation=defaults.reservation,
    )  # fmt: skip
