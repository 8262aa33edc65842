"""Jobs that run on this machine, and how many to have at hand."""

from __future__ import annotations

import msgspec

from pilotage.job import model

#: Jobs that are claimed before there is room for them, at most.
_MOST_AHEAD = 32
#: Seconds of work to have at hand; jobs longer than this are never claimed ahead.
_AHEAD_S = 0.1


class Tenant(msgspec.Struct):
    """A job that runs here."""

    job: int
    attempt: int
    #: The number of its definition, and that itself.
    number: int
    spec: model.JobSpec
    rule: str
    dir: str
    outputs: dict[str, str] = {}
    #: Lock file of the starter of an earlier process that holds it; empty if it is ours.
    adopted: str = ""
    #: When it was asked to end, in seconds of the event loop's clock; 0 if it was not.
    stopping: float = 0.0

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.job}.{self.attempt}"


def plain(needs: model.Resources) -> bool:
    """Say whether a job needs one core and nothing else, as most do."""
    return needs.cpus == 1 and not needs.memory and not needs.gpus


def how_many_ahead(cpus: int, wall: float) -> int:
    """Say how many jobs to claim before there is room for them, if jobs take so long."""
    if wall >= _AHEAD_S:
        return 0
    return min(_MOST_AHEAD, int(cpus * _AHEAD_S / max(wall, 0.001)))
