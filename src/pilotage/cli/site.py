"""`pilotage site`: add, list, show and drain sites."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage.base import errors, units
from pilotage.base.names import closest
from pilotage.batch import files
from pilotage.batch.model import SiteSettings, check_batch
from pilotage.batch.system import known
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.site_state import look, style
from pilotage.edge import view
from pilotage.edge.order import PILOT
from pilotage.edge.view import EdgeSite
from pilotage.hub.project import Project
from pilotage.status.sites import SiteList, SiteStatus

#: Hint for a site that has not been seen.
SOON = "an agent appears with its next heartbeat, within 30 s unless it is set otherwise"


def forget(
    name: Annotated[str, Parameter(help="Name of the site.")], /, *, at: Common = HERE
) -> Answer:
    """Forget a site that is no longer served; its next heartbeat brings it back."""
    with at.open() as project, project.db.transaction() as db:
        gone = db.value("edges_forget", name=name)
    if gone is None:
        message = f"the broker knows no site {name}"
        raise errors.NotFound(message, hint="`pilotage site ls` lists those that were")
    return Answer({"site": name, "forgotten": True}, (f"{name} is forgotten",), (name,))


def _agent_notes(project: Project, seen: SiteList) -> tuple[str, ...]:
    """Return why nothing is known of sites with an agent now."""
    broker = seen.broker
    if broker is None:
        return ()
    if broker.trouble:
        if not project.running():
            when = f"since {formatting.clock(broker.since)} " if broker.since else ""
            return (f"{when}no hub listens to the broker: start `pilotage up`",)
        when = f" since {formatting.clock(broker.since)}" if broker.since else ""
        return (f"the broker cannot be reached{when}: {broker.trouble}",)
    agents = any(one.agent is not None for one in seen.sites)
    return () if agents else (f"no site has reported by the broker yet: {SOON}",)


def facts(one: EdgeSite) -> dict[str, str]:
    """Write what an agent says of its site for people."""
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in one.jobs.items())
    days = one.certificate_days
    return {
        "last seen": f"{formatting.clock(one.heard)}; each {units.for_people(one.interval)}",
        "agent": f"Pilotage {one.version}, epoch {one.epoch}, up for {units.for_people(one.age)}",
        "user": one.speaker,
        "all jobs": jobs or "none",
        "apps": ", ".join(one.applications),
        "to be sent": formatting.count(one.outbox, "status message") if one.outbox else "",
        "certificate": "" if days is None else _papers(days),
        "disk": f"{units.bytes_for_people(one.disk_free)} free",
    }


def _papers(days: float) -> str:
    if days < 0:
        return f"its certificate expired {units.for_people(-days * 86_400)} ago"
    return f"its certificate expires in {units.for_people(days * 86_400)}"


app = App(
    name="site", help="Add, list and check sites, and log in to them.", group_commands="Commands"
)
for _name, _place, _help in (
    ("check", "site_check:check", "Check the prerequisites of a site."),
    ("login", "site_login:login", "Log in to a site where it asks for a code or a password."),
    ("logout", "site_login:logout", "End the connection to a site."),
    ("send", "site_send:send", "Send a job to a site by the broker."),
    ("control", "site_control:control", "Change the course of jobs at a site, or of the site."),
    ("forget", "site:forget", "Forget a site that is no longer served."),
):
    app.command(f"pilotage.cli.{_place}", name=_name, help=_help)

_HEADS = columns("NAME BATCH HOST STATE JOBS> PILOTS> ABOUT")
_FRESH = SiteSettings(batch="local")
_Name = Annotated[str, Parameter(help="Name of the site.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Described:
    """What a person says of a new site."""

    batch: Annotated[
        str, Parameter(help=f"What runs jobs there: {', '.join(known.OURS)}, or a plug-in.")
    ]
    host: Annotated[str, Parameter(help="Host to log in to; else this machine.")] = ""
    ssh_config: Annotated[str, Parameter(help="Settings file of `ssh`; else your own.")] = ""
    folder: Annotated[
        str, Parameter(help="Folder there that worker nodes see too; else ~/.pilotage.")
    ] = _FRESH.folder
    python: Annotated[str, Parameter(help="Python 3.9 or newer there.")] = _FRESH.python
    path: Annotated[
        tuple[str, ...], Parameter(help="Folder of the batch system's programs; repeatable.")
    ] = ()
    queue: Annotated[str, Parameter(help="Queue or partition of jobs.")] = ""
    account: Annotated[str, Parameter(help="Account that jobs are charged to.")] = ""
    time: Annotated[str, Parameter(help="Wall time of jobs, such as 1h.")] = ""
    about: Annotated[str, Parameter(help="A description.")] = ""

    def site(self) -> SiteSettings:
        """Make a site of it."""
        given = asdict(self)
        given["defaults"] = {key: given.pop(key) for key in ("queue", "account", "time")}
        made = msgspec.convert(given, SiteSettings)
        try:
            check_batch(made)
        except errors.ConfigError as error:
            message = f"there is no batch system `{self.batch}`"
            raise errors.UsageError(message, hint=error.hint) from None
        return made


@app.command
def add(
    name: Annotated[str, Parameter(help="Name of the new site.")],
    /,
    *,
    described: Described,
    at: Common = HERE,
) -> Answer:
    """Write the file of a new site."""
    site = described.site()
    with at.open() as project:
        if view.record(project.db, name):
            message = f"an agent serves a site `{name}` already"
            hint = f"choose another name; `pilotage site forget {name}` if it is gone for good"
            raise errors.Conflict(message, hint=hint)
        file = files.write(project.root, name, site)
        shown = file.relative_to(project.root)
    notes = (f"`pilotage site check {name}` checks it",)
    return Answer({"site": name, "file": str(file)}, (f"wrote {shown}",), (name,), notes)


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List all sites with their states."""
    with at.open() as project:
        seen = look(project)
        notes = _agent_notes(project, seen)
    notes += tuple(one.conflict for one in seen.sites if one.conflict)
    rows = [_row(one) for one in seen.sites]
    if not rows and not notes:
        notes = ("no sites: `pilotage site add NAME --batch slurm --host HOST`",)
    broker = seen.broker
    return Answer(
        {
            "sites": [_data(one) for one in seen.sites],
            "broker": None
            if broker is None
            else {"trouble": broker.trouble, "since": formatting.stamp(broker.since)},
        },
        (Table(_HEADS, tuple(rows)),) if rows else (),
        tuple(one.name for one in seen.sites),
        notes,
    )


@app.command
def show(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Show a site in full."""
    with at.open() as project:
        seen = look(project)
        one = find(seen.sites, name)
        notes = _agent_notes(project, seen) if one.agent else ()
        file = files.file_of(project.root, name)
        site = None
        if one.kind == "batch":
            site = files.read(project.root, name)
    data = _data(one)
    if site is not None:
        data |= {"file": str(file), "settings": msgspec.to_builtins(site)}
    return Answer({"site": data}, tuple(_sheet(one, site, file)), (name,), notes)


def find(sites: Iterable[SiteStatus], name: str) -> SiteStatus:
    """Return a site by its name, or raise `NotFound` with the closest name."""
    known = {one.name: one for one in sites}
    if name not in known:
        hint = f"{closest(name, known)}; `pilotage site add` makes one"
        raise errors.NotFound(f"there is no site `{name}`", hint=hint)
    return known[name]


_Reason = Annotated[str, Parameter(help="The reason, shown to users whose jobs wait.")]


@app.command
def drain(name: _Name, /, *, reason: _Reason = "", at: Common = HERE) -> Answer:
    """Drain a site: it gets no new jobs; present jobs continue."""
    return _ask(name, "drain", "is given nothing more", reason, at)


@app.command
def resume(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Resume a drained site: it gets jobs again."""
    return _ask(name, "", "is given work again", "", at)


def _ask(name: str, asked: str, said: str, reason: str, at: Common) -> Answer:
    with at.open() as project:
        one = find(look(project).sites, name)
        project.ask_site(name, asked, reason)
    notes = _still(one) if not asked else ()
    return Answer({"site": name, "asked": asked}, (f"{name} {said}",), (name,), notes)


def _still(one: SiteStatus) -> tuple[str, ...]:
    """Return that a site takes no jobs by its own choice, whatever this hub does."""
    if one.agent is None or not one.agent.draining:
        return ()
    asks = f"`pilotage site control {one.name} resume` asks it"
    return (f"its administrator has drained {one.name}: {asks}",)


def _data(one: SiteStatus) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(one)
    for key in ("since", "heard"):
        facts[key] = formatting.stamp(getattr(one, key))
    if one.drain is not None:
        facts["drain"]["at"] = formatting.stamp(one.drain.at)
    if one.agent is not None:
        times = {
            "since": formatting.stamp(one.agent.since),
            "heard": formatting.stamp(one.agent.heard),
        }
        facts["agent"] |= times
    return facts


def _row(one: SiteStatus) -> tuple[Cell, ...]:
    about = one.conflict or _drained(one) or one.words or one.about
    jobs = sum(one.jobs.values())
    if one.agent is not None:
        jobs = max(jobs, one.agent.live)
    return one.name, one.batch, _where(one), Styled(one.state, style(one)), jobs, one.pilots, about


def _where(one: SiteStatus) -> str:
    match one.kind:
        case "batch":
            return one.host or "here"
        case "agent":
            return "at our port" if one.agent and one.agent.ported else "by messages"
        case "pilots":
            return "by its pilots"


def _drained(one: SiteStatus) -> str:
    if one.drain is None:
        return ""
    by = f" by {one.drain.by}" if one.drain.by else ""
    why = f": {one.drain.why}" if one.drain.why else ""
    since = f" since {formatting.clock(one.drain.at)}" if one.drain.at else ""
    return f"drained{by}{since}{why}"


def _sheet(one: SiteStatus, site: SiteSettings | None, file: Path) -> list[Shown]:
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in one.jobs.items())
    told = {
        "conflict": one.conflict,
        "drained": _drained(one).removeprefix("drained "),
        "about": one.about,
        "trouble": one.words,
        "since": formatting.clock(one.since) if one.since else "",
        "batch": one.batch,
        "host": one.host or ("this machine" if one.kind == "batch" else ""),
        "jobs": (jobs or "none") + (f"; {site.jobs} at most" if site else ""),
        "pilots": _pilots(one),
        **(facts(one.agent) if one.agent else {}),
        **(_settings(site, file) if site else {}),
    }
    head = line(Styled(f"site {one.name}", "bold"), "  ", Styled(one.state, style(one)),
                f"  {_where(one)}")  # fmt: skip
    return [head, *(formatting.pair(key, value) for key, value in told.items() if value)]


def _pilots(one: SiteStatus) -> str:
    """Write how many pilots are there, or why pools cannot order any."""
    if one.pilots or one.agent is None or PILOT in one.agent.applications:
        return str(one.pilots) if one.pilots else ""
    return view.NO_PILOTS.format(site=one.name)


def _settings(site: SiteSettings, file: Path) -> dict[str, str]:
    """Write what the file of a site says beside the defaults."""
    fresh, usual = SiteSettings(batch=site.batch), msgspec.to_builtins(site.defaults)
    told = {"unless": ", ".join(f"{key} {value}" for key, value in usual.items() if value)}
    shown = {"batch", "host", "about", "jobs", "defaults"}
    told |= {
        key: str(getattr(site, key))
        for key in SiteSettings.__struct_fields__
        if key not in shown and getattr(site, key) != getattr(fresh, key)
    }
    return {**told, "file": str(file)}
