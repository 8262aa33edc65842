"""Commands, functions and pilots that a job's message carries to an application that takes them.

They travel as the `config` of the message, in JSON. No shell sees any of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pilotage.base import errors, text
from pilotage.bus.fields import Word
from pilotage.bus.model import Job
from pilotage.job.model import Call


class CommandOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program with its arguments."""

    argv: tuple[str, ...]


class FunctionOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A function, and calls of it."""

    function: str
    #: The text of its file.
    source: str
    calls: dict[str, Any]


class PilotOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A pilot that a hub wants; its size is that of the message."""

    #: The token with which it enrols at its hub, once.
    secret: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{20,200}$(?!\n)")]
    #: Its name, for people.
    name: Word
    #: Where its hub is, as the hub says.
    hub: Annotated[str, Meta(pattern=r"^https?://[A-Za-z0-9.:_\[\]-]{1,255}/?$(?!\n)")]
    #: The CA certificate of the hub as PEM; empty means those of the node.
    vouch: Annotated[str, Meta(max_length=65_536, pattern=r"^[\x20-\x7e\r\n]*$")] = ""
    #: Seconds without work after which it leaves; nothing means the pilot's own rule.
    idle: Annotated[float, Meta(gt=0, le=31_622_400)] | None = None


#: The name of the application that takes pilots.
PILOT = "pilot"
#: Keys of pilots, so that no job of a hub's users is taken for one: HUB.pilot.NUMBER.
_KEY = re.compile(r"[^.]+\.pilot\.[1-9][0-9]{0,15}")
_Kind = TypeVar("_Kind", CommandOrder, FunctionOrder, PilotOrder)
text.prime(CommandOrder)
text.prime(FunctionOrder)
text.prime(PilotOrder)


def write_command(argv: Sequence[str]) -> str:
    """Write a program with its arguments for a message."""
    return text.dump(CommandOrder(tuple(argv)))


def write_function(recipe: Call, calls: Mapping[str, Any]) -> str:
    """Write a function and its calls for a message."""
    return text.dump(FunctionOrder(recipe.function, recipe.source, dict(calls)))


def command(config: str) -> tuple[str, ...]:
    """Read a program with its arguments; raise `Denied` if it is not one."""
    found = _read(config, CommandOrder, "a command")
    if not found.argv or not found.argv[0] or any("\0" in word for word in found.argv):
        raise errors.Denied("`config` is no command: it names no program")
    return found.argv


def function(config: str) -> FunctionOrder:
    """Read a function and its calls; raise `Denied` if it is not one."""
    found = _read(config, FunctionOrder, "a function")
    if not found.function or not found.source or not isinstance(found.calls.get("calls"), list):
        raise errors.Denied("`config` is no function: its text or its calls are missing")
    written = found.calls.get("alone", [])
    if not isinstance(written, list) or not all(isinstance(one, str) for one in written):
        raise errors.Denied("`config` is no function: it does not say what it writes")
    return found


def pilot(config: str) -> PilotOrder:
    """Read the order of a pilot; raise `Denied` if it is not one."""
    return _read(config, PilotOrder, "the order of a pilot")


def _pilot_reasons(job: Job) -> list[str]:
    found = [] if _KEY.fullmatch(job.key) else ["`key` is not that of a pilot: HUB.pilot.NUMBER"]
    given = {
        "inputs": job.inputs, "outputs": job.outputs, "parameters": job.parameters,
        "env": job.env, "options": job.options,
    }  # fmt: skip
    found += [f"`{name}` is given, and a pilot has none" for name, value in given.items() if value]
    return found


def reasons(takes: str, job: Job) -> list[str]:
    """Return the problems of the order of a job; none if an application could run it."""
    if job.config_file:
        return [f"`config_file` is given, and the application takes {takes}"]
    try:
        _ = _READ[takes](job.config)
    except errors.Denied as error:
        return [error.message]
    return _pilot_reasons(job) if takes == PILOT else []


def _read(config: str, kind: type[_Kind], what: str) -> _Kind:
    try:
        return msgspec.json.decode(config, type=kind)
    except msgspec.DecodeError as error:
        raise errors.Denied(f"`config` is not {what}: {error}") from None


_READ = {"commands": command, "functions": function, PILOT: pilot}
