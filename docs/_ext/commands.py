"""Every command with its arguments and options, as the command line itself knows them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from cyclopts import App
from cyclopts.argument import Argument

from pilotage.cli.tree import app

_EVERYWHERE = "Everywhere"
_HEAD = ["| option | meaning |", "| --- | --- |"]


class Option(NamedTuple):
    """An option or argument of a command."""

    #: All that it may be called, such as `--follow` and `-f`.
    names: tuple[str, ...]
    #: What may stand after it; empty for a flag.
    value: str
    about: str
    default: str
    #: Whether every command has it.
    everywhere: bool
    required: bool
    #: Whether it may be given several times.
    many: bool


class Command(NamedTuple):
    """A command that can be run."""

    #: Its words without `pilotage`.
    words: tuple[str, ...]
    about: str
    function: Any
    arguments: tuple[Option, ...]
    options: tuple[Option, ...]


def words() -> set[str]:
    """Return all that may stand right after `pilotage`."""
    return set(app)


@cache
def every() -> tuple[Command, ...]:
    """List all commands, in the order of `pilotage --help`."""
    return tuple(_walk(app, ()))


def _walk(one: App, words: tuple[str, ...]) -> Iterator[Command]:
    if one.default_command is not None and words:
        yield _command(one, words)
    for name in one:
        if not name.startswith("-"):
            yield from _walk(one[name], (*words, name))


def _command(one: App, words: tuple[str, ...]) -> Command:
    shown = [each for each in one.assemble_argument_collection() if each.show]
    arguments = tuple(_option(each) for each in shown if not each.name.startswith("-"))
    options = tuple(_option(each) for each in shown if each.name.startswith("-"))
    about = inspect.getdoc(one.default_command) or one.help
    return Command(words, about.split("\n\n", 1)[0], one.default_command, arguments, options)


def _option(one: Argument) -> Option:
    flag = one.hint is bool
    default = one.field_info.default
    plain = default in (None, "", (), inspect.Parameter.empty) or isinstance(default, bool)
    return Option(
        names=tuple(one.names),
        value="" if flag else one.names[0].lstrip("-").upper(),
        about=one.parameter.help or "",
        default="" if plain else str(default),
        everywhere=_EVERYWHERE in str(one.parameter.group),
        required=bool(one.required),
        many=str(one.hint).startswith("tuple"),
    )


def page() -> str:
    """Write all commands."""
    parts: list[str] = []
    first: dict[Any, tuple[str, ...]] = {}
    for one in every():
        title = f"## `pilotage {' '.join(one.words)}`"
        if one.function in first:
            same = " ".join(first[one.function])
            parts.append(f"{title}\n\nThe same as `pilotage {same}`.")
            continue
        first[one.function] = one.words
        parts.append("\n\n".join([title, one.about, *_body(one)]))
    return "\n\n".join(parts)


def everywhere() -> str:
    """Write the options that every command has."""
    rows = [_line(each) for each in every()[0].options if each.everywhere]
    return "\n".join([*_HEAD, *rows])


def _body(one: Command) -> Iterator[str]:
    own = [each for each in one.options if not each.everywhere]
    options = ["[OPTIONS]"] if own else []
    usage = ["pilotage", *one.words, *options, *map(_usage, one.arguments)]
    yield f"```text\n{' '.join(usage)}\n```"
    lines = [_line(each) for each in (*one.arguments, *own)]
    if lines:
        yield "\n".join([*_HEAD, *lines])


def _usage(one: Option) -> str:
    name = one.names[0] + ("..." if one.many else "")
    return name if one.required else f"[{name}]"


def _line(one: Option) -> str:
    names = ", ".join(f"`{name}`" for name in one.names if not name.startswith("--no-"))
    value = f" `{one.value}`" if one.value and one.names[0].startswith("-") else ""
    default = f" Default: `{one.default}`." if one.default else ""
    about = re.sub(r"\s*\n\s*", " ", one.about).replace("|", "\\|")
    return f"| {names}{value} | {about}{default} |"
