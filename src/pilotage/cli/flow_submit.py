"""`pilotage flow submit`: start a workflow from a file."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.cli import flow, flow_follow
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common

if TYPE_CHECKING:
    from pilotage.flow.model import Flow

Params = Annotated[
    tuple[str, ...],
    Parameter(name=("--param", "-p"), help="A value, as `name=value`; repeatable."),
]
_ENDS = (".toml", ".json", ".py", ".yaml", ".yml")


def submit(
    file: Annotated[
        Path,
        Parameter(name="FILE", help="A .toml or .json file, also of Argo; `-` reads JSON."),
    ],
    /,
    *,
    param: Params = (),
    key: Annotated[
        str, Parameter(help="The same key again is the same flow, and nothing is started.")
    ] = "",
    tag: Annotated[str, Parameter(help="A tag, for `flow ls --tag`.")] = "",
    wait: Annotated[bool, Parameter(help="Wait for its end, and show its progress.")] = False,
    timeout: Annotated[
        str, Parameter(help="With --wait: stop waiting after `30s`, `1h`, …; the flow continues.")
    ] = "",
    dry_run: Annotated[
        bool, Parameter(name=("--dry-run", "-n"), help="Show what it would do; start nothing.")
    ] = False,
    at: Common = HERE,
) -> Answer:  # fmt: skip
    """Start a workflow; it is on disk when this returns."""
    from pilotage.base.owner import me
    from pilotage.flow import moves
    from pilotage.flow.model import NewFlow

    asked = read(file, params(param))
    patience = units.seconds(timeout) if timeout else None
    with at.open() as project:
        waits = project.check_flow(asked)
    if dry_run:
        return _plan(asked, waits)
    new = NewFlow(
        flow=asked, key=key or f"command.{secrets.token_hex(12)}", owner=me(), source="command",
        tag=tag,
    )  # fmt: skip
    with at.open() as project:
        with project.db.transaction():
            number = moves.submit(project.db, new, project.clock.now())
        project.poke()
        notes = (*waits, *flow.idle(project))
    if wait:
        return flow_follow.follow(number, at, notes, patience)
    count = flow.counted(len(asked.steps))
    return Answer(
        {"id": number, "name": asked.name, "steps": len(asked.steps), "key": new.key},
        (line("flow ", Styled(str(number), "bold"), f"  {asked.name}, {count}"),),
        (number,),
        notes,
    )


def params(given: Sequence[str]) -> dict[str, str]:
    """Read `name=value`; what a value is like says the definition."""
    found: dict[str, str] = {}
    for one in given:
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise errors.UsageError(f"`--param {one}` has no value", hint="write `--param name=5`")
        found[name] = value
    return found


def is_file(name: str) -> bool:
    """Return whether a word means a file rather than a flow."""
    return name == "-" or name.endswith(_ENDS) or Path(name).is_file()


def read(file: Path, given: Mapping[str, str]) -> Flow:
    """Read a definition."""
    from pilotage.flow import read as reading

    if file.suffix in (".py", ".yaml", ".yml"):
        hint = "write it as TOML or JSON"
        if file.suffix == ".py":
            hint = "run it with Python: `Flow.submit(project)` starts what it describes"
        raise errors.UsageError(f"`{file}` is neither TOML nor JSON", hint=hint)
    source = _source(file)
    form: Literal["json", "toml"] = "json" if file.suffix == ".json" or str(file) == "-" else "toml"
    base = Path.cwd() if str(file) == "-" else file.absolute().parent
    if form == "json" and (chain := _chain(source)) is not None:
        if given:
            message = "a definition of Argo has no parameters"
            raise errors.UsageError(message, hint="leave `--param` out")
        return chain
    name = "" if str(file) == "-" else str(file)
    return reading.read(source, form=form, base=base, params=given, file=name)


def _source(file: Path) -> bytes:
    try:
        return sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        message = f"cannot read `{file}`: {error.strerror}"
        raise errors.NotFound(message, hint="name a .toml or .json file") from error


def _chain(source: bytes) -> Flow | None:
    """Read a definition of Argo, if it is one."""
    from pilotage.bus import balsam
    from pilotage.bus.model import Chain
    from pilotage.flow.read import from_chain

    try:
        found = msgspec.json.decode(source)
    except msgspec.DecodeError:
        return None
    if not isinstance(found, dict) or not ("subjobs" in found or found.get("kind") == "chain"):
        return None
    message = balsam.read_message(source).message
    return from_chain(message) if isinstance(message, Chain) else None


def _plan(asked: Flow, notes: tuple[str, ...]) -> Answer:
    """Return what would be started, and draw it."""
    from pilotage.draw.graph import as_text
    from pilotage.flow import picture

    drawn = picture.as_graph(picture.draw(picture.plan(asked)), 0.0)
    shown: list[Shown] = [
        line(Styled("would start", "bold"), f"  {asked.name}, {flow.counted(len(asked.steps))}")
    ]
    if asked.params:
        values = ", ".join(f"{name} = {value}" for name, value in asked.params.items())
        shown.append(line(Styled("params  ", "dim"), values))
    shown += ["", *as_text(drawn).rstrip("\n").split("\n")]
    return Answer({"flow": msgspec.to_builtins(asked)}, tuple(shown), notes=notes)
