"""`pilotage pool`: show and control pools of pilots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage.base import errors, units
from pilotage.cli import formatting, job
from pilotage.cli.answer import Answer, Cell, Shown, Style, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.pool import files, view
from pilotage.pool.words import share, volume

if TYPE_CHECKING:
    from pilotage.hub.project import Project
    from pilotage.pool.state import PoolOverrides, PoolStep, Taken
    from pilotage.pool.view import PoolSample, PoolView


app = App(
    name="pool", help="Show and control pools of pilots.",
    group_commands="Commands",
)  # fmt: skip

app.command(
    "pilotage.cli.pool_add:add",
    name="add",
    help="Write the file of a new pool; it takes effect at once.",
)

app.command(
    "pilotage.cli.pool:shrink", name="shrink",
    help="Shrink a pool now; running jobs continue unless you give `--kill`.",
)  # fmt: skip

app.command(
    "pilotage.cli.pool_simulate:simulate", name="simulate",
    help="Test policies on recorded jobs or on built-in scenarios.",
)  # fmt: skip

app.command(
    "pilotage.cli.pool_run:run", name="run",
    help="Control pools by a COBalD configuration, until Ctrl-C.",
)  # fmt: skip

app.command(
    "pilotage.cli.pool_import:import_", name="import",
    help="Convert sites and pools of a TARDIS configuration.",
)  # fmt: skip

_HEADS = columns("NAME SITE STATE SUPPLY> DEMAND> COMING> WAITING> UTILISATION> ALLOCATION> WHY")
_STYLES: dict[str, Style] = {
    "controlled": "green", "asks first": "yellow", "paused": "yellow", "backs off": "yellow",
    "not controlled": "dim", "unheard": "yellow",
}  # fmt: skip
_Name = Annotated[str, Parameter(help="Name of the pool, as in `pools/NAME.toml`.")]
_NONE = "no pools yet: `pilotage pool add NAME --site SITE --maximum CORES` makes one"
#: Seconds of curves.
_HOUR_S = 3600.0


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Changes:
    """What a person sets instead of what the file says."""

    minimum: Annotated[int | None, Parameter(help="Cores that it has at least.")] = None
    maximum: Annotated[int | None, Parameter(help="Cores that it has at most.")] = None
    pending: Annotated[int | None, Parameter(help="Pilots that may wait at once.")] = None
    allow: Annotated[
        bool, Parameter(help="Allow its demand, up to its maximum.")
    ] = False  # fmt: skip
    ask_above: Annotated[
        int | None, Parameter(help="Ask for permission above this number of cores.")
    ] = None
    reset: Annotated[bool, Parameter(help="Return to the values of its file first.")] = False
    demand: Annotated[
        float | None, Parameter(help="Demand in cores, for a pool with an external controller.")
    ] = None  # fmt: skip

    def apply(self, before: PoolOverrides) -> PoolOverrides:
        """Change what was set before."""
        from pilotage.pool.state import PoolOverrides

        if self.allow and self.ask_above is not None:
            raise errors.UsageError("give `--allow` or `--ask-above`, not both")
        given = {
            "minimum": self.minimum, "maximum": self.maximum, "pending": self.pending,
            "ask_above": 0 if self.allow else self.ask_above,
        }  # fmt: skip
        told = {key: value for key, value in given.items() if value is not None}
        if not told and not self.reset and self.demand is None:
            raise errors.UsageError("nothing to set", hint="`--maximum 64`, `--allow` or `--reset`")
        return msgspec.structs.replace(PoolOverrides() if self.reset else before, **told)


_NOTHING = Changes()


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List all pools with supply, demand and the last decision."""
    with at.open() as project:
        found = view.pools(project.db, project.root, project.clock.now())
    return Answer(
        {"pools": [msgspec.to_builtins(one) for one in found]},
        (Table(_HEADS, tuple(_row(one) for one in found)),) if found else (),
        tuple(one.name for one in found),
        () if found else (_NONE,),
    )


@app.command
def show(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Show a pool in full, with its pilots."""
    from pilotage.pilot import view as fleet
    from pilotage.pool import view

    with at.open() as project:
        now = project.clock.now()
        one = view.pool(project.db, project.root, name, now)
        account = view.accounts(project.db, now, name).get(name, view.Account())
        pilots = [each for each in fleet.pilots(project.db) if each.pool == name]
        past = view.samples(project.db, now - _HOUR_S, name, _HOUR_S / 240)
        file = files.file_of(project.root, name)
    states: dict[str, int] = {}
    for each in pilots:
        states[each.state] = states.get(each.state, 0) + 1
    data: dict[str, Any] = msgspec.to_builtins(one) | {
        "file": str(file), "pilots": [each.id for each in pilots],
        "account": msgspec.to_builtins(account),
    }  # fmt: skip
    shown = [*_sheet(one, states, account.words(), str(file)), *_curves(past)]
    return Answer({"pool": data}, tuple(shown), (name,))


@app.command
def plan(
    name: Annotated[str, Parameter(help="Only this pool; else all.")] = "", /, *, at: Common = HERE
) -> Answer:
    """Show what each pool would do now and why; do nothing."""
    with at.open() as project:
        now = project.clock.now()
        looks = view.pools(project.db, project.root, now)
        if name:
            looks = [view.pool(project.db, project.root, name, now)]
        steps = view.plan(project.db, project.root, now)
    unseen = [one.name for one in looks if one.name not in steps]
    notes = [f"{one} has not been checked yet: `pilotage up` does it" for one in unseen]
    shown = [part for one in looks if one.name in steps for part in _planned(one, steps[one.name])]
    data = [
        {"name": one.name, "sees": msgspec.to_builtins(one), "does": _does(steps[one.name])}
        for one in looks
        if one.name in steps
    ]
    return Answer(
        {"plan": data}, tuple(shown), tuple(one.name for one in looks),
        tuple(notes) if looks else (_NONE,),
    )  # fmt: skip


@app.command(name="set")
def set_(name: _Name, /, *, changes: Changes = _NOTHING, at: Common = HERE) -> Answer:
    """Change the limits of a pool, or allow its demand; its file is not changed."""
    with at.open() as project:
        files.read(project.root, name)
        with project.db.transaction():
            given = changes.apply(view.changed(project.db, name))
            made = view.change(project.db, project.root, name, given)
            taken = _demand(project, name, changes.demand)
        idle = not project.running()
    asks = f"asks above {made.ask_above}" if made.ask_above else "asks about nothing"
    said = (
        f"{name} has from {made.minimum} to {made.maximum} cores, {made.pending} pilots may wait, "
        f"and it {asks}"
    )
    data = {"pool": name, "set": msgspec.to_builtins(given)}
    notes = _idle(idle)
    if taken is not None:
        data["demand"] = taken.demand
        said += f"; {volume(taken.demand)} cores are asked for"
        notes += (taken.words,) if taken.words else ()
    return Answer(data, (said,), (name,), notes)


def _demand(project: Project, name: str, demand: float | None) -> Taken | None:
    """Ask a pool for cores by hand."""
    from pilotage.base.owner import me
    from pilotage.pool import state as demands

    if demand is None:
        return None
    if not 0 <= demand < float("inf"):
        raise errors.UsageError(f"a pool cannot have {demand:g} cores")
    by, now = f"{me()} by hand", project.clock.now()
    return demands.tell(project.db, project.root, name, demand, "", by, now)


@app.command
def pause(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Pause a pool: it orders and drains nothing."""
    return _ask(name, at, pause=True)


@app.command
def resume(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Resume a paused pool, and reset its count of failures."""
    return _ask(name, at, pause=False)


def _ask(name: str, at: Common, *, pause: bool) -> Answer:
    with at.open() as project:
        with project.db.transaction():
            view.ask(project.db, project.root, name, pause=pause)
        idle = not project.running()
    said = f"{name} {'is paused' if pause else 'is resumed'}"
    return Answer({"pool": name, "paused": pause}, (said,), (name,), _idle(idle))


def _idle(idle: bool) -> tuple[str, ...]:  # noqa: FBT001 - the one thing it is about
    return ("nothing runs this project now: it counts from the next start on",) if idle else ()


def _row(one: PoolView) -> tuple[Cell, ...]:
    state = Styled(one.state, _STYLES.get(one.state, "red"))
    return (
        one.name, one.site, state, volume(one.supply), volume(one.demand),
        volume(one.queued + one.booting), volume(one.waiting), _part(one.utilisation),
        _part(one.allocation), one.trouble or one.words,
    )  # fmt: skip


def _part(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _sheet(one: PoolView, states: dict[str, int], used: str, file: str) -> list[Shown]:
    bounds = f"from {one.minimum} to {one.maximum} cores, {one.cpus} each"
    changed: dict[str, Any] = msgspec.to_builtins(one.changed)
    told = {
        "about": one.about,
        "trouble": one.trouble,
        "pilots wait": one.said,
        "site": one.site,
        "control": one.control,
        "controlled by": one.steered,
        "bounds": f"{bounds}; {one.pending} pilots may wait" if one.maximum else "",
        "asks first": f"above {formatting.count(one.ask_above, 'core')}" if one.ask_above else "",
        "set": ", ".join(f"{key} = {value}" for key, value in changed.items()),
        "sees": _sees(one) if one.looked else "",
        "payloads": _payloads(one),
        "does": f"demands {volume(one.demand)}: {one.words}" if one.words else "",
        "looked": formatting.clock(one.looked) if one.looked else "",
        "pilots": ", ".join(f"{count} {state}" for state, count in states.items()),
        "used": used,
        "file": file,
    }
    head = line(Styled(f"pool {one.name}", "bold"), "  ",
                Styled(one.state, _STYLES.get(one.state, "red")))  # fmt: skip
    return [head, *(formatting.pair(key, value) for key, value in told.items() if value)]


def _curves(past: Sequence[PoolSample]) -> list[Shown]:
    """Draw the last hour, if there is something to see."""
    from pilotage.cli.curve import curves

    if len(past) < 2 or not any(one.supply or one.demand for one in past):
        return []
    ago = units.for_people(past[-1].time - past[0].time)
    return [
        "", line(Styled(f"the last {ago}", "dim")),
        *curves(
            {
                "cores": [one.supply for one in past],
                "demand": [one.demand for one in past],
                "in use": [one.supply * (one.allocation or 0.0) for one in past],
            }
        ),
    ]  # fmt: skip


def _sees(one: PoolView) -> str:
    return (
        f"{volume(one.supply)} cores, utilisation {share(one.utilisation)}, "
        f"allocation {share(one.allocation)}; {volume(one.queued)} wait at the site, "
        f"{volume(one.booting)} start, {volume(one.draining)} drain; "
        f"jobs for {volume(one.waiting)} wait"
    )


def _payloads(one: PoolView) -> str:
    """Return how busy payloads keep their cores, if that was measured."""
    if one.busy is None:
        return ""
    return f"keep {one.busy:.0%} of their cores busy{', and starve' if one.starved else ''}"


def _does(step: PoolStep) -> dict[str, Any]:
    return {
        "demand": step.demand, "order": step.order, "cancel": step.cancel,
        "drain": step.drain + step.release, "recall": step.recall, "why": step.words,
    }  # fmt: skip


def _planned(one: PoolView, step: PoolStep) -> list[Shown]:
    acts = [
        (step.order, f"asks for {formatting.count(step.order, 'pilot')}"),
        (step.cancel, f"cancels {formatting.count(step.cancel, 'pilot')}"),
        (
            step.drain + step.release,
            f"drains {formatting.count(step.drain + step.release, 'pilot')}, idle ones first",
        ),
        (step.recall, f"calls {formatting.count(step.recall, 'pilot')} back"),
    ]
    does = ", ".join(words for count, words in acts if count) or "does nothing"
    return [
        line(Styled(one.name, "bold"), f"  {does}: {volume(step.demand)} cores"),
        formatting.pair("sees", _sees(one)),
        formatting.pair("why", step.words),
    ]


def shrink(
    name: Annotated[str, Parameter(help="Name of the pool.")],
    cores: Annotated[int, Parameter(help="Cores to keep at most.")] = 0,
    /,
    *,
    kill: Annotated[
        bool, Parameter(help="Also stop running jobs; they are queued again.", negative="")
    ] = False,
    yes: Annotated[bool, Parameter(name=("--yes", "-y"), help="Do not ask.")] = False,
    at: Common = HERE,
) -> Answer:
    """Shrink a pool now: idle pilots leave first, others when their jobs have ended."""
    from pilotage.pool import view

    if cores < 0:
        raise errors.UsageError(f"a pool cannot have {cores} cores")
    with at.open() as project:
        who = view.leaving(project.db, project.root, name, cores, kill=kill)
        jobs = formatting.count(who.jobs, "job")
        if who.jobs and not yes and not job.ask(f"end {jobs} that run, to be queued again?"):
            return Answer({"pool": name, "drain": [], "stop": []}, notes=("nothing was done",))
        with project.db.transaction():
            words = view.shrink(project.db, project.root, name, cores, who)
        idle = not project.running()
    said = f"{formatting.count(len(who.drain), 'pilot')} of {name} take no more jobs and leave"
    said += f", {len(who.stop)} are stopped with {jobs}" if who.stop else ""
    notes = ("nothing runs this project now: it is done at the next start",) if idle else ()
    data = {"pool": name, "cores": cores, "drain": list(who.drain), "stop": list(who.stop)}
    return Answer(data, (said,), (*who.drain, *who.stop), (words, *notes))
