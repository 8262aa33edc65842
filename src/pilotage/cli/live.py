"""A board of lines that is redrawn at the bottom of a terminal; silent without a terminal."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pilotage.cli import printing
from pilotage.cli.answer import Cell, Styled

_UP = "\033[{}F"
_CLEAR = "\033[J"


class Board:
    """Lines on standard error that take the place of the ones before."""

    def __init__(self) -> None:
        """Find out whether there is a terminal."""
        self.on = sys.stderr.isatty()
        self._high = 0

    def draw(self, lines: Sequence[Sequence[Cell]]) -> None:
        """Show lines in the place of those shown before."""
        if not self.on:
            return
        columns, high = printing.size()
        shown = [self._fit(line, columns) for line in lines[: high - 1]]
        sys.stderr.write(self._back() + "".join(f"{line}\n" for line in shown))
        sys.stderr.flush()
        self._high = len(shown)

    def clear(self) -> None:
        """Take the lines away, so that something else can be printed."""
        if self.on and self._high:
            sys.stderr.write(self._back())
            sys.stderr.flush()
            self._high = 0

    def _back(self) -> str:
        return (_UP.format(self._high) if self._high else "") + _CLEAR

    def _fit(self, line: Sequence[Cell], wide: int) -> str:
        left, pieces = wide - 1, []
        for cell in line:
            content = printing.shorten(printing.plain(cell), max(left, 1))
            left -= printing.width(content)
            style = "" if isinstance(cell, (str, int)) else cell.style
            pieces.append(printing.paint(Styled(content, style), sys.stderr))
            if left <= 0:
                break
        return "".join(pieces)
