"""`pilotage site`: add sites, see how they are, and have them rest."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage import errors
from pilotage.cli import shape, sheet
from pilotage.cli.answer import Answer, Cell, Shown, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.cli.site_state import State, look
from pilotage.site import files
from pilotage.site.model import BATCH, Site

app = App(
    name="site", help="Add, list and check sites, and log in to them.", group_commands="Commands"
)
for _name, _place, _help in (
    ("check", "site_check:check", "Look at all that a site needs."),
    ("login", "site_login:login", "Log in to a site where it asks for a code or a password."),
    ("logout", "site_login:logout", "End the connection to a site."),
):
    app.command(f"pilotage.cli.{_place}", name=_name, help=_help)

_HEADS = columns("NAME BATCH HOST STATE JOBS> PILOTS> ABOUT")
_FRESH = Site(batch="local")
_Name = Annotated[str, Parameter(help="Name of the site.")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Described:
    """What a person says of a new site."""

    batch: Annotated[str, Parameter(help=f"What runs jobs there: {', '.join(BATCH)}.")]
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
        try:
            return msgspec.convert(given, Site)
        except msgspec.ValidationError:
            hint = f"it may be {', '.join(BATCH)}"
            message = f"there is no batch system `{self.batch}`"
            raise errors.UsageError(message, hint=hint) from None


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
        root, names = project.root, files.names(project.root)
        states = asyncio.run(look(project, names))
    rows = tuple(_row(name, root, states[name]) for name in names)
    notes = () if names else ("no sites: `pilotage site add NAME --batch slurm --host HOST`",)
    return Answer(
        {"sites": [{"name": name, **_data(root, name), **_state(states[name])} for name in names]},
        (Table(_HEADS, rows),) if rows else (),
        tuple(names),
        notes,
    )


@app.command
def show(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Show all that is known of a site."""
    with at.open() as project:
        site = files.read(project.root, name)
        state = asyncio.run(look(project, [name]))[name]
        file = files.file_of(project.root, name)
    data = {"name": name, "file": str(file), **msgspec.to_builtins(site), **_state(state)}
    return Answer({"site": data}, tuple(_sheet(name, site, state, file)), (name,))


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
        files.read(project.root, name)
        project.ask_site(name, asked)
    return Answer({"site": name, "asked": asked}, (f"{name} {said}",), (name,))


def _data(root: Path, name: str) -> dict[str, Any]:
    try:
        site = files.read(root, name)
    except errors.ConfigError:
        return {"batch": "", "host": "", "about": ""}
    return {"batch": site.batch, "host": site.host, "about": site.about}


def _state(state: State) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(state)
    return {"state": told.pop("word"), **told, "since": shape.stamp(state.since)}


def _row(name: str, root: Path, state: State) -> tuple[Cell, ...]:
    known = _data(root, name)
    host = known["host"] or "here"
    about = state.trouble or known["about"]
    word = Styled(state.word, state.style)
    return name, known["batch"], host, word, state.jobs, state.pilots, about


def _sheet(name: str, site: Site, state: State, file: Path) -> list[Shown]:
    fresh = Site(batch=site.batch)
    usual = msgspec.to_builtins(site.defaults)
    since = f" since {shape.clock(state.since)}" if state.since else ""
    told = {
        "about": site.about,
        "state": f"{state.word}{since}",
        "trouble": state.trouble,
        "asked": state.asked,
        "batch": site.batch,
        "host": site.host or "this machine",
        "jobs": f"{state.jobs} there, {site.jobs} at most",
        "pilots": f"{state.pilots}" if state.pilots else "",
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
