"""`pilotage pilot start`: have pilots started at a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import shape
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.batch.pilot_request import PilotRequest

_MOST = 10_000


def _option(help_: str, **more: Any) -> Parameter:  # noqa: ANN401 - what cyclopts takes
    return Parameter(help=help_, **more)


@Parameter(name="*")
@dataclass(frozen=True)
class Wishes:
    """What each pilot is to have."""

    cpus: Annotated[int, _option("Cores of each.")] = 1
    memory: Annotated[str, _option("Memory of each, such as 8G.")] = ""
    gpus: Annotated[int, _option("GPUs of each.")] = 0
    time: Annotated[str, _option("Wall time, such as 12h; else the site's default.")] = ""
    queue: Annotated[str, _option("Queue or partition; else the site's default.")] = ""
    account: Annotated[str, _option("Account; else the site's default.")] = ""
    idle: Annotated[str, _option("Leave after so long without work, such as 5m.")] = ""

    def read(self) -> PilotRequest:
        """Check what was asked for."""
        from pilotage.batch import pilot_request

        found = pilot_request.PilotRequest(
            cpus=self.cpus, memory=units.size(self.memory) if self.memory else None,
            gpus=self.gpus, time=units.seconds(self.time) if self.time else None,
            queue=self.queue, account=self.account,
            idle=units.seconds(self.idle) if self.idle else None,
        )  # fmt: skip
        pilot_request.check(found)
        return found


_PLAIN = Wishes()


def start(
    site: Annotated[str, Parameter(help="The site, as `pilotage site ls` names it.")],
    /,
    *,
    count: Annotated[int, Parameter(help="How many.")] = 1,
    pool: Annotated[str, Parameter(help="The pool that they belong to.")] = "",
    wishes: Wishes = _PLAIN,
    at: Common = HERE,
) -> Answer:
    """Have pilots started at a site: they wait in its batch queue, and come when they run."""
    from pilotage.edge import view
    from pilotage.pool import site as pool_site

    if not 1 <= count <= _MOST:
        raise errors.UsageError(f"between 1 and {_MOST} pilots at once, not {count}")
    with at.open() as project:
        agents = view.pilot_sites(project.db, project.clock.now(), running=project.running())
        pool_site.read(project.root, site, agents)
        numbers = project.want_pilots(site, wishes.read(), count, pool)
        idle = not project.running()
    notes = ("nothing runs this project now: it is done at the next start",) if idle else ()
    said = f"asked for {shape.count(count, 'pilot')} at {site}"
    return Answer({"pilots": numbers, "site": site}, (said,), tuple(numbers), notes)
