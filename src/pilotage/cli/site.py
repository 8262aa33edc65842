"""`pilotage site`: add sites, see how they are, and have them rest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage import errors
from pilotage.cli import shape, sheet, site_edges
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.site_state import State, look
from pilotage.site import files
from pilotage.site.agent import FILE as AGENT
from pilotage.site.agent import settings as agent
from pilotage.site.model import BATCH, FACTORY, Site, check_batch

app = App(
    name="site", help="Add, list and check sites, and log in to them.", group_commands="Commands"
)
for _name, _place, _help in (
    ("check", "site_check:check", "Look at all that a site needs."),
    ("login", "site_login:login", "Log in to a site where it asks for a code or a password."),
    ("logout", "site_login:logout", "End the connection to a site."),
    ("send", "site_send:send", "Send a job to a site by the broker."),
    ("control", "site_control:control", "Change the course of jobs at a site, or of the site."),
    ("forget", "site_edges:forget", "Forget a site that is no longer served."),
    ("setup", "site_run:setup", "Write the settings of an agent."),
    ("run", "site_run:run", "Serve this site: take jobs from a broker and run them here."),
    ("unit", "site_run:unit", "Print a unit by which systemd keeps the agent running."),
    ("status", "site_status:status", "Show how the agent of this site is."),
):
    app.command(f"pilotage.cli.{_place}", name=_name, help=_help)

_HEADS = columns("NAME BATCH HOST STATE JOBS> PILOTS> ABOUT")
_FRESH = Site(batch="local")
_Name = Annotated[str, Parameter(help="Name of the site.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Described:
    """What a person says of a new site."""

    batch: Annotated[
        str, Parameter(help=f"What runs jobs there: {', '.join(BATCH)}, or a plug-in.")
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
    about: Annotated[str, Parameter(help="What it is, in your words.")] = ""

    def site(self) -> Site:
        """Make a site of it."""
        given = asdict(self)
        given["defaults"] = {key: given.pop(key) for key in ("queue", "account", "time")}
        made = msgspec.convert(given, Site)
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
        file = files.write(project.root, name, site)
        shown = file.relative_to(project.root)
    notes = (f"`pilotage site check {name}` looks at all it needs",)
    return Answer({"site": name, "file": str(file)}, (f"wrote {shown}",), (name,), notes)


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List all sites, and how they are."""
    with at.open() as project:
        states, heard = look(project), site_edges.look(project)
        notes = site_edges.notes(project, heard)
    rows = [_row(one) for one in states.values()] + [site_edges.row(one) for one in heard.edges]
    if not rows and not notes:
        notes = ("no sites: `pilotage site add NAME --batch slurm --host HOST`",)
    return Answer(
        {
            "sites": [_data(one) for one in states.values()],
            "edges": [site_edges.data(one) for one in heard.edges],
            "broker": site_edges.broker(heard),
        },
        (Table(_HEADS, tuple(rows)),) if rows else (),
        (*states, *(one.name for one in heard.edges)),
        notes,
    )


@app.command
def show(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Show all that is known of a site."""
    with at.open() as project:
        seen = site_edges.look(project)
        notes = site_edges.notes(project, seen)
        heard = next((one for one in seen.edges if one.name == name), None)
        if heard and name not in files.names(project.root):
            data = {"edge": site_edges.data(heard), "broker": site_edges.broker(seen)}
            return Answer(data, tuple(site_edges.show(heard)), (name,), notes)
        if name not in files.names(project.root) and project.settings.bus.url:
            message = f"there is no site `{name}`, and none of that name was heard of"
            raise errors.NotFound(message, hint=notes[0] if notes else site_edges.SOON)
        site = files.read(project.root, name)
        state = look(project)[name]
        file = files.file_of(project.root, name)
    data = {"site": _data(state) | {"file": str(file), "settings": msgspec.to_builtins(site)}}
    shown = _sheet(name, site, state, file)
    if heard:
        data["edge"] = site_edges.data(heard)
        shown += ["", *site_edges.show(heard)]
    return Answer(data, tuple(shown), (name,), notes if heard else ())


@app.command
def drain(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Give a site nothing more; what is there goes on to its end."""
    return _ask(name, "drain", "is given nothing more", at)


@app.command
def resume(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Give a site work again after `drain`."""
    return _ask(name, "", "is given work again", at)


def _ask(name: str, asked: str, said: str, at: Common) -> Answer:
    with at.open() as project:
        site_edges.check_here(project, name, asked or "resume")
        if not _served_here(project.root, name):
            files.read(project.root, name)
        project.ask_site(name, asked)
    return Answer({"site": name, "asked": asked}, (f"{name} {said}",), (name,))


def _served_here(root: Path, name: str) -> bool:
    """Say whether a site is the one that the agent of this folder serves."""
    file = root / AGENT
    return file.exists() and agent.read(file).site == name


def _data(state: State) -> dict[str, Any]:
    seen = state.seen
    return {
        "name": seen.name, "batch": seen.batch, "host": seen.host, "about": seen.about,
        "state": state.word, "trouble": state.trouble, "since": shape.stamp(seen.since),
        "asked": seen.asked, "jobs": seen.jobs, "pilots": seen.pilots,
        "heard": shape.stamp(seen.heard),
    }  # fmt: skip


def _row(state: State) -> tuple[Cell, ...]:
    seen = state.seen
    word, about = Styled(state.word, state.style), state.trouble or seen.about
    where = "elsewhere" if seen.batch == FACTORY else seen.host or "here"
    return seen.name, seen.batch, where, word, state.jobs, seen.pilots, about


def _sheet(name: str, site: Site, state: State, file: Path) -> list[Shown]:
    seen, fresh = state.seen, Site(batch=site.batch)
    usual = msgspec.to_builtins(site.defaults)
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in seen.jobs.items())
    told = {
        "about": site.about,
        "trouble": state.trouble,
        "since": shape.clock(seen.since) if seen.since else "",
        "asked": seen.asked,
        "batch": site.batch,
        "host": site.host or ("" if site.batch == FACTORY else "this machine"),
        "factory": f"heard of at {shape.clock(seen.heard)}" if seen.heard else "",
        "jobs": f"{jobs or 'none'}; {site.jobs} at most",
        "pilots": str(seen.pilots) if seen.pilots else "",
        "unless": ", ".join(f"{key} {value}" for key, value in usual.items() if value),
        "file": str(file),
    }
    told |= {
        key: str(getattr(site, key))
        for key in Site.__struct_fields__
        if key not in {*told, "defaults"} and getattr(site, key) != getattr(fresh, key)
    }
    head = line(Styled(f"site {name}", "bold"), "  ", Styled(state.word, state.style))
    return [head, *(sheet.pair(key, value) for key, value in told.items() if value)]
