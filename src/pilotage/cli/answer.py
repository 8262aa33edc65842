"""Answers of commands: data for programs, lines and tables for people, ids for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import msgspec

Style = Literal["", "bold", "dim", "red", "green", "yellow", "blue", "cyan"]


class Styled(msgspec.Struct, frozen=True):
    """A piece of text with a colour that it can do without."""

    text: str
    style: Style = ""


Cell: TypeAlias = str | int | Styled


class Column(msgspec.Struct, frozen=True):
    """The head of a column."""

    #: In capitals, as batch systems write it.
    title: str
    #: Numbers stand to the right.
    right: bool = False


class Table(msgspec.Struct, frozen=True):
    """Rows under heads, without lines around them."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


class TextLine(msgspec.Struct, frozen=True):
    """A line of pieces."""

    pieces: tuple[Cell, ...]


Shown: TypeAlias = Table | TextLine | str


class Answer(msgspec.Struct, frozen=True):
    """The result of a command."""

    #: For programs: what `--json` prints beside the schema's number.
    data: dict[str, Any]
    #: For people, from top to bottom.
    shown: tuple[Shown, ...] = ()
    #: For scripts: what `--quiet` prints, one a line.
    ids: tuple[int | str, ...] = ()
    #: Remarks for people that are no part of the answer.
    notes: tuple[str, ...] = ()
    #: Text of other programs, printed as it is after the rest.
    raw: bytes = b""
    #: The exit status.
    status: int = 0


class AnswerStream(msgspec.Struct, frozen=True):
    """Answers that arrive one by one while something runs."""

    parts: Iterator[Answer]


def columns(titles: str) -> tuple[Column, ...]:
    """Write heads in short: `ID> NAME STATE` has its first column to the right."""
    return tuple(Column(title.rstrip(">"), title.endswith(">")) for title in titles.split())


def line(*pieces: Cell) -> TextLine:
    """Write one line."""
    return TextLine(pieces)
