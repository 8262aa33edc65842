"""What a job brings to an application that takes commands or functions, as its message has it.

It travels as the `config` of the message, in JSON. Nothing of it is seen by a shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from pilotage import errors, text
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


_Kind = TypeVar("_Kind", CommandOrder, FunctionOrder)
text.prime(CommandOrder)
text.prime(FunctionOrder)


def write_command(argv: Sequence[str]) -> str:
    """Write a program with its arguments for a message."""
    return text.dump(CommandOrder(tuple(argv)))


def write_function(recipe: Call, calls: Mapping[str, Any]) -> str:
    """Write a function and its calls for a message."""
    return text.dump(FunctionOrder(recipe.function, recipe.source, dict(calls)))


def command(config: str) -> tuple[str, ...]:
    """Read a program with its arguments; raise `Denied` for what is none."""
    found = _read(config, CommandOrder, "a command")
    if not found.argv or not found.argv[0] or any("\0" in word for word in found.argv):
        raise errors.Denied("`config` is no command: it names no program")
    return found.argv


def function(config: str) -> FunctionOrder:
    """Read a function and its calls; raise `Denied` for what is none."""
    found = _read(config, FunctionOrder, "a function")
    if not found.function or not found.source or not isinstance(found.calls.get("calls"), list):
        raise errors.Denied("`config` is no function: its text or its calls are missing")
    written = found.calls.get("alone", [])
    if not isinstance(written, list) or not all(isinstance(one, str) for one in written):
        raise errors.Denied("`config` is no function: it does not say what it writes")
    return found


def reasons(takes: str, job: Job) -> list[str]:
    """Say what is wrong with what a job brings; nothing if an application could run it."""
    if job.config_file:
        return [f"`config_file` is given, and the application takes {takes}"]
    try:
        _ = command(job.config) if takes == "commands" else function(job.config)
    except errors.Denied as error:
        return [error.message]
    return []


def _read(config: str, kind: type[_Kind], what: str) -> _Kind:
    try:
        return msgspec.json.decode(config, type=kind)
    except msgspec.DecodeError as error:
        raise errors.Denied(f"`config` is not {what}: {error}") from None
