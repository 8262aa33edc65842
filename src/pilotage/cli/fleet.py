"""`pilotage pilot ls|show|drain|stop|start`: list, control and start pilots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Shown, Style, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.pilot.model import PilotState, Project

if TYPE_CHECKING:
    from pilotage.batch.pilot_request import PilotRequest
    from pilotage.pilot.view import PilotView


_HEADS = columns("ID> NAME SITE STATE CPUS> USED> BUSY> JOBS> SEEN> REASON")
_MOST = 100
_STYLES: dict[str, Style] = {
    PilotState.AVAILABLE: "green",
    PilotState.DRAINING: "yellow",
    PilotState.LOST: "red",
    PilotState.FAILED: "red",
    PilotState.DOWN: "dim",
}
_PROJECT = {
    Project.UNKNOWN: "",
    Project.HIDDEN: "not seen by payloads; what they declare is brought",
    Project.READABLE: "seen by payloads, which may read it",
    Project.WRITABLE: "seen by payloads, which may write there",
}
_Numbers = Annotated[tuple[int, ...], Parameter(help="Numbers of pilots.")]
_Site = Annotated[str, Parameter(help="All pilots of this site, too.")]


def ls(
    *,
    state: Annotated[
        tuple[PilotState, ...], Parameter(help="Only pilots in this state; repeatable.")
    ] = (),
    site: Annotated[str, Parameter(help="Only pilots of this site.")] = "",
    ended: Annotated[
        bool, Parameter(name=("--all", "-a"), help="Also pilots that have ended.")
    ] = False,
    most: Annotated[int, Parameter(help="Show only the newest N; 0 means all.")] = _MOST,
    at: Common = HERE,
) -> Answer:
    """List pilots, the newest last."""
    from pilotage.pilot import view as fleet

    with at.open() as project:
        now = project.clock.now()
        found = fleet.pilots(
            project.db, states=state, site=site, ended=ended, most=most + 1 if most else 2**62
        )
    more = bool(most) and len(found) > most
    found = found[-most:] if more else found
    notes = [] if found else ["no pilots; `pilotage pilot run` starts one"]
    notes += [f"these are the newest {most}; `--most 0` shows all"] if more else []
    return Answer(
        {"pilots": [_data(one) for one in found], "more": more},
        (Table(_HEADS, tuple(_row(one, now) for one in found)),) if found else (),
        tuple(one.id for one in found),
        tuple(notes),
    )


def show(number: Annotated[int, Parameter(help="Its number.")], /, *, at: Common = HERE) -> Answer:
    """Show a pilot in full: its node, its jobs, and the reason for its state."""
    from pilotage.pilot import view as fleet

    with at.open() as project:
        one = fleet.pilot(project.db, number)
        jobs = fleet.jobs(project.db, number)
        now = project.clock.now()
    data = _data(one) | {
        "facts": msgspec.to_builtins(one.facts),
        "jobs": [{"id": job, "name": name} for job, name in jobs],
    }
    return Answer({"pilot": data}, tuple(_sheet(one, jobs, now)), (one.id,))


def drain(numbers: _Numbers = (), /, *, site: _Site = "", at: Common = HERE) -> Answer:
    """Drain pilots: they finish their jobs, get no more, and leave."""
    return _ask(numbers, site, at, "drain")


def stop(numbers: _Numbers = (), /, *, site: _Site = "", at: Common = HERE) -> Answer:
    """Stop pilots; their jobs are queued again."""
    return _ask(numbers, site, at, "stop")


def _ask(numbers: tuple[int, ...], site: str, at: Common, asked: str) -> Answer:
    from pilotage.pilot import view as fleet

    with at.open() as project:
        chosen = dict.fromkeys(numbers)
        if site:
            of_site = fleet.pilots(project.db, site=site)
            chosen |= dict.fromkeys(one.id for one in of_site if one.id)
        if not chosen:
            message = f"there is no pilot of {site}" if site else "no pilots are named"
            raise errors.UsageError(message, hint=f"`pilotage pilot {asked} 17`, or `--site`")
        project.ask_pilots(list(chosen), asked)
        idle = not project.running()
    notes = ("nothing runs this project now: it is done at the next start",) if idle else ()
    said = f"asked {formatting.count(len(chosen), 'pilot')} to {asked}"
    return Answer({"asked": asked, "pilots": list(chosen)}, (said,), tuple(chosen), notes)


def _data(one: PilotView) -> dict[str, Any]:
    facts = one.facts
    return {
        "id": one.id, "name": one.name, "site": one.site, "pool": one.pool, "state": one.state,
        "reason": one.reason, "host": facts.host if facts else "", "cpus": _cpus(one),
        "used": one.used, "busy": one.busy, "resident": one.resident, "running": one.running,
        "enrolled": formatting.stamp(one.enrolled),
        "seen": formatting.stamp(one.seen), "ended": formatting.stamp(one.ended),
        "asked": one.asked,
    }  # fmt: skip


def _cpus(one: PilotView) -> int:
    return one.facts.cpus if one.facts else 0


def _row(one: PilotView, now: float) -> tuple[Cell, ...]:
    seen = units.for_people(max(0.0, now - one.seen))
    reason = f"asked to {one.asked}" if one.asked else one.reason
    return (
        one.id, one.name, one.site, _state(one), _cpus(one), one.used, _busy(one), one.running,
        seen, reason,
    )  # fmt: skip


def _busy(one: PilotView) -> str:
    """Return how busy payloads keep the cores that they have; empty if not measured."""
    return "" if one.busy is None or not one.running else f"{one.busy:.0%}"


def _measured(one: PilotView) -> str:
    told = [f"{busy} of the time of their cores"] if (busy := _busy(one)) else []
    if one.resident is not None and one.running:
        told.append(f"{units.bytes_for_people(one.resident)} of memory")
    return ", ".join(told)


def _state(one: PilotView) -> Styled:
    return Styled(one.state, _STYLES.get(one.state, ""))


def _sheet(one: PilotView, jobs: list[tuple[int, str]], now: float) -> list[Shown]:
    facts = one.facts
    told = {
        "reason": one.reason,
        "asked": one.asked,
        "site": f"{one.site}, pool {one.pool}" if one.pool else one.site,
        "enrolled": formatting.clock(one.enrolled),
        "seen": f"{units.for_people(max(0.0, now - one.seen))} ago",
        "ended": formatting.clock(one.ended) if one.ended else "",
    }
    if facts is not None:
        told |= {
            "node": f"{facts.host}: {facts.os} {facts.release} on {facts.arch}",
            "has": f"{formatting.count(facts.cpus, 'core')}, {one.used} in use, "
            f"{units.bytes_for_people(facts.memory)} of memory, "
            f"{units.bytes_for_people(facts.disk)} of disk",
            "gpus": ", ".join(gpu.name for gpu in facts.gpus),
            "sandboxes": ", ".join(facts.sandboxes),
            "batch": facts.batch,
            "project": _PROJECT[facts.project],
            "works in": facts.work,
            "also": ", ".join(f"{name}={value}" for name, value in facts.attributes.items()),
        }
    told["payloads use"] = _measured(one)
    told["jobs"] = ", ".join(f"{job} {name}" for job, name in jobs)
    head = line(Styled(f"pilot {one.id}", "bold"), f"  {one.name}  ", _state(one))
    return [head, *(formatting.pair(name, value) for name, value in told.items() if value)]


_MOST_PILOTS = 10_000


def _option(help_: str, **more: Any) -> Parameter:  # noqa: ANN401 - what cyclopts takes
    return Parameter(help=help_, **more)


@Parameter(name="*")
@dataclass(frozen=True)
class PilotOptions:
    """Resources of each pilot."""

    cpus: Annotated[int, _option("Cores of each pilot.")] = 1
    memory: Annotated[str, _option("Memory of each pilot, such as 8G.")] = ""
    gpus: Annotated[int, _option("GPUs of each pilot.")] = 0
    time: Annotated[str, _option("Wall time, such as 12h; else the site's default.")] = ""
    queue: Annotated[str, _option("Queue or partition; else the site's default.")] = ""
    account: Annotated[str, _option("Account; else the site's default.")] = ""
    idle: Annotated[str, _option("Leave after this time without work, such as 5m.")] = ""

    def read(self) -> PilotRequest:
        """Return the request, checked."""
        from pilotage.batch.pilot_request import PilotRequest

        found = PilotRequest(**vars(self))
        found.check()
        return found


_PLAIN = PilotOptions()


def start(
    site: Annotated[str, Parameter(help="The site, as `pilotage site ls` names it.")],
    /,
    *,
    count: Annotated[int, Parameter(help="How many.")] = 1,
    pool: Annotated[str, Parameter(help="The pool that they belong to.")] = "",
    options: PilotOptions = _PLAIN,
    at: Common = HERE,
) -> Answer:
    """Start pilots at a site: they wait in its batch queue and connect once they run."""
    from pilotage.edge import view
    from pilotage.pool import site as pool_site

    if not 1 <= count <= _MOST_PILOTS:
        raise errors.UsageError(f"between 1 and {_MOST_PILOTS} pilots at once, not {count}")
    with at.open() as project:
        agents = view.pilot_sites(project.db, project.clock.now(), running=project.running())
        pool_site.read(project.root, site, agents)
        numbers = project.want_pilots(site, options.read(), count, pool)
        idle = not project.running()
    notes = ("nothing runs this project now: it is done at the next start",) if idle else ()
    said = f"asked for {formatting.count(count, 'pilot')} at {site}"
    return Answer({"pilots": numbers, "site": site}, (said,), tuple(numbers), notes)
