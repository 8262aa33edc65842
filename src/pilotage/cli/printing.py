"""Print answers to standard output, everything else to standard error."""

from __future__ import annotations

import os
import sys
import unicodedata
from typing import TYPE_CHECKING, Any, TextIO

from pilotage.base import text
from pilotage.cli.answer import Answer, AnswerStream, Cell, Column, Shown, Style, Styled, Table

if TYPE_CHECKING:
    from pilotage.base.errors import PilotageError
    from pilotage.cli.common import Mode

SCHEMA = 1
_GAP = 2
_CODES = {"bold": 1, "dim": 2, "red": 31, "green": 32, "yellow": 33, "blue": 34, "cyan": 36}
#: The last column of a table is cut to the width of the terminal, but never shorter than this.
_SHORTEST = 16


def answer(value: object, mode: Mode) -> int:
    """Print what a command returned, and return its exit status."""
    if isinstance(value, AnswerStream):
        return max((_one(part, mode) for part in value.parts), default=0)
    return _one(value, mode) if isinstance(value, Answer) else 0


def _one(value: Answer, mode: Mode) -> int:
    if mode == "json":
        write(dump(value.data))
    elif mode == "quiet":
        write("".join(f"{one}\n" for one in value.ids))
    else:
        write("".join(f"{line}\n" for part in value.shown for line in lines(part, sys.stdout)))
        sys.stdout.buffer.write(value.raw)
    sys.stdout.flush()
    for note in value.notes:
        say(note)
    return value.status


def write(content: str) -> None:
    """Print to standard output; a name that is not UTF-8 comes out as the bytes it was."""
    sys.stdout.flush()
    sys.stdout.buffer.write(content.encode("utf-8", "surrogateescape"))


def dump(data: dict[str, Any]) -> str:
    """Write one JSON value on one line."""
    return text.dump({"schema": SCHEMA, **data}) + "\n"


def say(*pieces: Cell) -> None:
    """Print a message to standard error."""
    content = "".join(paint(piece, sys.stderr) for piece in pieces)
    sys.stderr.write(content.encode("utf-8", "backslashreplace").decode() + "\n")
    sys.stderr.flush()


def complain(error: PilotageError, mode: Mode) -> int:
    """Print an error with its hint, and return its exit status."""
    message = "\n".join(text.show(line) for line in str(error).split("\n"))
    say(Styled("error:", "red"), f" {message}")
    if error.hint:
        say(Styled("\nhint:", "cyan"), f" {error.hint}")
    if mode == "json":
        facts = {"code": error.code, "message": str(error), "hint": error.hint}
        write(dump({"error": facts | {"status": error.exit_status}}))
        sys.stdout.flush()
    return error.exit_status


def lines(part: Shown, stream: TextIO) -> list[str]:
    """Write a part of an answer as lines for people."""
    if isinstance(part, Table):
        return _table(part, stream)
    if isinstance(part, str):
        return [part]
    return ["".join(paint(piece, stream) for piece in part.pieces)]


def _table(table: Table, stream: TextIO) -> list[str]:
    heads: tuple[Cell, ...] = tuple(Styled(one.title, "bold") for one in table.columns)
    rows = (heads, *table.rows)
    widths = [max(width(plain(row[at])) for row in rows) for at in range(len(table.columns))]
    if stream.isatty() and widths:
        taken = sum(widths[:-1]) + _GAP * (len(widths) - 1)
        room = size()[0] - taken
        widths[-1] = min(widths[-1], max(room, _SHORTEST))
    return [_row(row, table.columns, widths, stream) for row in rows]


def _row(
    row: tuple[Cell, ...], columns: tuple[Column, ...], widths: list[int], stream: TextIO
) -> str:
    written = []
    for cell, column, wide in zip(row, columns, widths, strict=True):
        content = shorten(plain(cell), wide)
        space = " " * (wide - width(content))
        shown = paint(Styled(content, _style(cell)), stream)
        written.append(space + shown if column.right else shown + space)
    return (" " * _GAP).join(written).rstrip()


def plain(cell: Cell) -> str:
    """Write a cell without colour, on one line."""
    return text.show(cell.text if isinstance(cell, Styled) else str(cell))


def _style(cell: Cell) -> Style:
    return cell.style if isinstance(cell, Styled) else ""


def paint(cell: Cell, stream: TextIO) -> str:
    """Write a cell, in its colour where the stream shows colours."""
    if not isinstance(cell, Styled):
        return str(cell)
    if not cell.style or not cell.text or not coloured(stream):
        return cell.text
    return f"\033[{_CODES[cell.style]}m{cell.text}\033[0m"


def coloured(stream: TextIO) -> bool:
    """Return whether a stream shows colours and the user wants them."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def size() -> tuple[int, int]:
    """Return the columns and lines of the terminal."""
    for stream in (sys.stdout, sys.stderr):
        if stream.isatty():
            found = os.get_terminal_size(stream.fileno())
            # A terminal that does not know its size says 0.
            return found.columns or 80, found.lines or 24
    return 80, 24


def width(content: str) -> int:
    """Count the places that text takes in a terminal."""
    if content.isascii():
        return len(content)
    return sum(_places(char) for char in content)


def _places(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def shorten(content: str, most: int) -> str:
    """Cut text to a width in columns."""
    if width(content) <= most:
        return content
    kept, taken = [], 1
    for char in content:
        taken += _places(char)
        if taken > most:
            break
        kept.append(char)
    return "".join(kept) + "…"
