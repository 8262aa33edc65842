"""How a person describes an application in words of the command line."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.agent.app import model, trust
from pilotage.base import errors

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
    version: Annotated[str, Parameter(help="Its version, for people and the record.")] = "1"
    about: Annotated[str, Parameter(help="What it is, in your words.")] = ""
    launcher: Annotated[
        str, Parameter(help="What starts its tasks: none, srun or mpirun; else the site's own.")
    ] = ""
    container: Annotated[str, Parameter(help="Container image that it runs in.")] = ""
    user: Annotated[
        tuple[str, ...], Parameter(help="Who may use it, as certificates name them; repeatable.")
    ] = ()
    queue: Annotated[tuple[str, ...], Parameter(help="Queue that jobs may use; repeatable.")] = ()
    project: Annotated[
        tuple[str, ...], Parameter(help="Project that jobs may charge; repeatable.")
    ] = ()
    nodes: Annotated[int, Parameter(help="Nodes of a job, at most.")] = 1
    tasks: Annotated[int, Parameter(help="Tasks on each node, at most.")] = 1
    time: Annotated[str, Parameter(help="Wall time of a job, at most.")] = "1h"
    host: Annotated[
        tuple[str, ...], Parameter(help="Host that data may come from and go to; repeatable.")
    ] = ()

    def app(self, executable: str, argv: tuple[str, ...]) -> model.Application:
        """Make an application of it."""
        given = {
            "executable": executable, "sha256": trust.digest(executable), "argv": argv,
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
