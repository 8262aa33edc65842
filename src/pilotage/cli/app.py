"""`pilotage app`: the applications of this site."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import App, Parameter

from pilotage.agent.app import files, model
from pilotage.base import errors
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Cell, Shown, Style, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)?\.\.(-?\d+(?:\.\d+)?)?", re.ASCII)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Described:
    """What a person says of a new application."""

    parameter: Annotated[
        tuple[str, ...],
        Parameter(
            help="NAME=KIND and what it may be, as in `n=integer:1..100`, `label=text:[a-z]+`, "
            "`mode=choice:a,b`, `in=path` or `fast=flag:--fast`; repeatable."
        ),
    ] = ()
    version: Annotated[str, Parameter(help="Its version.")] = "1"
    about: Annotated[str, Parameter(help="A description.")] = ""
    launcher: Annotated[
        str, Parameter(help="What starts its tasks: none, srun or mpirun; else the site's own.")
    ] = ""
    container: Annotated[str, Parameter(help="Container image that it runs in.")] = ""
    user: Annotated[
        tuple[str, ...],
        Parameter(help="User who may use it, as named by certificates; repeatable."),
    ] = ()
    queue: Annotated[tuple[str, ...], Parameter(help="Queue that jobs may use; repeatable.")] = ()
    project: Annotated[
        tuple[str, ...], Parameter(help="Project that jobs may charge; repeatable.")
    ] = ()
    nodes: Annotated[int, Parameter(help="Nodes of a job, at most.")] = 1
    tasks: Annotated[int, Parameter(help="Tasks on each node, at most.")] = 1
    time: Annotated[str, Parameter(help="Wall time of a job, at most.")] = "1h"
    host: Annotated[
        tuple[str, ...],
        Parameter(help="Host that data may be transferred from and to; repeatable."),
    ] = ()

    def app(self, executable: str, argv: tuple[str, ...]) -> model.Application:
        """Make an application of it."""
        given = {
            "executable": executable, "sha256": files.digest(executable), "argv": argv,
            "version": self.version, "about": self.about, "launcher": self.launcher,
            "container": self.container, "users": self.user or ("*",),
            "parameter": dict(_parameter(one) for one in self.parameter),
            "limits": {
                "queues": self.queue, "projects": self.project, "nodes": self.nodes,
                "tasks": self.tasks, "time": self.time,
            },
            "staging": {"hosts": self.host},
        }  # fmt: skip
        try:
            return msgspec.convert(given, model.Application)
        except msgspec.ValidationError as error:
            raise errors.UsageError(str(error)) from None


def _parameter(text: str) -> tuple[str, dict[str, Any]]:
    """Read a parameter as a person writes it in one word."""
    name, equals, rest = text.partition("=")
    kind, _, more = rest.partition(":")
    made: dict[str, Any] = {"kind": kind}
    if not equals or not name:
        hint = "`--parameter events=integer:1..1000`"
        raise errors.UsageError(f"`{text}` is not NAME=KIND", hint=hint)
    if more and kind in ("integer", "number"):
        found = _RANGE.fullmatch(more)
        if found is None:
            raise errors.UsageError(
                f"`{more}` is no range", hint="write `1..100`, `1..` or `..100`"
            )
        read = int if kind == "integer" else float
        made |= {
            key: read(value)
            for key, value in zip(("minimum", "maximum"), found.groups(), strict=True)
            if value
        }
    elif more:
        key = {"choice": "choices", "flag": "flag"}.get(kind, "pattern")
        made[key] = more.split(",") if kind == "choice" else more
    return name, made


app = App(
    name="app", help="Add, list and try the applications that this site runs for others.",
    group_commands="Commands",
)  # fmt: skip
app.command(
    "pilotage.cli.app_trial:trial", name="test", help="Show what would run for given parameters."
)

_HEADS = columns("NAME VERSION STATE PARAMETERS PROGRAM ABOUT")
_PARAMETERS = columns("PARAMETER KIND NEEDED MAY-BE ABOUT")
_STYLES: dict[str, Style] = {"ready": "green", "disabled": "dim"}
_Name = Annotated[str, Parameter(help="Name of the application.")]


_PLAIN = Described()


@app.command
def add(
    name: Annotated[str, Parameter(help="Name of the new application.")],
    executable: Annotated[Path, Parameter(help="The program.")],
    /,
    *argv: Annotated[
        str, Parameter(help="Its arguments with `{parameters}` in them; `--` before dashes.")
    ],
    described: Described = _PLAIN,
    at: Common = HERE,
) -> Answer:
    """Write the file of a new application, with the SHA-256 of its program."""
    program = str(executable.absolute())
    made = described.app(program, argv)
    if reason := files.exposed(program):
        hint = "others could replace it: correct its owner and mode first"
        raise errors.Denied(reason, hint=hint)
    with at.open() as project:
        file = files.write(project.root, name, made)
        shown = file.relative_to(project.root)
    notes = (f"`pilotage app test {name}` shows what would run",)
    return Answer({"app": name, "file": str(file)}, (f"wrote {shown}",), (name,), notes)


@app.command
def ls(*, at: Common = HERE) -> Answer:
    """List all applications, and whether jobs can use them."""
    with at.open() as project:
        found = {name: _look(project.root, name) for name in files.names(project.root)}
    rows = tuple(_row(name, *one) for name, one in found.items())
    data = [
        {
            "name": name, "state": state, "trouble": trouble,
            "version": one.version if one else None,
            "executable": one.executable if one else None,
            "parameters": list(one.parameter) if one else [],
        }
        for name, (one, state, trouble) in found.items()
    ]  # fmt: skip
    notes = () if found else ("no applications: `pilotage app add NAME PROGRAM`",)
    return Answer({"apps": data}, (Table(_HEADS, rows),) if rows else (), tuple(found), notes)


@app.command
def show(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Show an application in full."""
    with at.open() as project:
        one = files.read(project.root, name)
        _, state, trouble = _look(project.root, name)
        file = files.file_of(project.root, name)
    data = {
        "name": name, "state": state, "trouble": trouble, "file": str(file),
        "settings": msgspec.to_builtins(one),
    }  # fmt: skip
    head = line(Styled(f"app {name}", "bold"), "  ", Styled(state, _STYLES.get(state, "red")))
    return Answer({"app": data}, (head, *_sheet(one, trouble, str(file))), (name,))


@app.command
def disable(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Disable an application for new jobs; running jobs continue."""
    return _switch(name, at, enabled=False)


@app.command
def enable(name: _Name, /, *, at: Common = HERE) -> Answer:
    """Enable an application for new jobs again."""
    return _switch(name, at, enabled=True)


def _switch(name: str, at: Common, *, enabled: bool) -> Answer:
    with at.open() as project:
        files.switch(project.root, name, enabled=enabled)
    said = f"{name} is {'enabled' if enabled else 'disabled'}"
    return Answer({"app": name, "enabled": enabled}, (said,), (name,))


def _look(root: Path, name: str) -> tuple[model.Application | None, str, str]:
    """Return an application, its state and its errors."""
    try:
        one = files.read(root, name)
    except errors.ConfigError as error:
        return None, "mistaken", str(error)
    reasons = files.Trust().reasons(one)
    if exposed := files.exposed(str(files.file_of(root, name).absolute())):
        reasons.append(exposed)
    if reasons:
        return one, "not trusted", "; ".join(reasons)
    return one, "ready" if one.enabled else "disabled", ""


def _row(name: str, one: model.Application | None, state: str, trouble: str) -> tuple[Cell, ...]:
    styled = Styled(state, _STYLES.get(state, "red"))
    if one is None:
        return name, "", styled, "", "", trouble
    return (
        name, one.version, styled, ", ".join(one.parameter), one.executable, trouble or one.about,
    )  # fmt: skip


def _sheet(one: model.Application, trouble: str, file: str) -> list[Shown]:
    limits = msgspec.to_builtins(one.limits)
    told = {
        "about": one.about,
        "trouble": trouble,
        "version": one.version,
        "takes": one.takes if one.takes != "parameters" else "",
        "program": one.executable,
        "hubs": ", ".join(one.hubs),
        "sha256": one.sha256,
        "argv": " ".join(_group(token) for token in one.argv),
        "launcher": " ".join([one.launcher, *one.launcher_words]).strip(),
        "container": one.container,
        "before": " ".join(one.preprocess),
        "after": " ".join(one.postprocess),
        "config": one.config.format if one.config else "",
        "users": ", ".join(one.users),
        "limits": ", ".join(f"{key} {_plain(value)}" for key, value in limits.items() if value),
        "data": ", ".join(one.staging.hosts),
        "file": file,
    }
    shown: list[Shown] = [formatting.pair(key, value) for key, value in told.items() if value]
    if one.parameter:
        rows = tuple(_described(name, each) for name, each in one.parameter.items())
        shown += ["", Table(_PARAMETERS, rows)]
    return shown


def _described(name: str, one: model.Parameter) -> tuple[Cell, ...]:
    match one.kind:
        case "integer" | "number":
            may = f"{one.minimum} to {one.maximum}"
        case "choice":
            may = ", ".join(one.choices)
        case "flag":
            may = one.flag
        case _:
            may = f"{one.pattern} ({one.longest} characters at most)".strip()
    needed = "no" if one.default is not None or not one.required or one.kind == "flag" else "yes"
    return name, one.kind, needed, may, one.about


def _group(token: str | tuple[str, ...]) -> str:
    return token if isinstance(token, str) else f"[{' '.join(token)}]"


def _plain(value: object) -> str:
    return "/".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
