"""What `pilotage up` tells while it runs: a board in a terminal, lines in a log."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from pathlib import Path

import anyio

from pilotage.base import text
from pilotage.cli import live, render, shape, tally
from pilotage.cli.answer import Cell, Style, Styled
from pilotage.store import Db, connect

_GLANCE_S = 0.25
#: At most this share of time is spent on looking, however many jobs there are.
_SHARE = 0.05
#: More news than this between two looks are told as numbers.
_MANY = 20


class Watch:
    """Looks at the store every now and then, and tells what is new."""

    def __init__(self, path: Path) -> None:
        """Begin with what is there."""
        self._db: Db = connect(path)
        self._board = live.Board()
        first = self._db.value("job_first_live")
        last = int(self._db.value("job_last"))
        self._after = last if first is None else min(last, first - 1)
        self._start = self._seq = int(self._db.value("journal_last"))

    async def run(self) -> None:
        """Tell until cancelled."""
        try:
            while True:
                began = time.monotonic()
                self.look()
                cost = time.monotonic() - began
                await anyio.sleep(max(_GLANCE_S, cost / _SHARE))
        finally:
            self._board.clear()

    def look(self) -> None:
        """Tell what is new since the last look."""
        if self._board.on:
            self._board.draw(self._lines())
        else:
            self._tell_news()

    def say(self, *pieces: Cell) -> None:
        """Tell people something above the board."""
        self._board.clear()
        render.say(*pieces)

    def finish(self) -> dict[str, int]:
        """Tell what is left to tell; return how many jobs ended in which state meanwhile."""
        self._board.clear()
        if not self._board.on:
            self._tell_news()
        counts = Counter(dict(self._db.rows("journal_end_counts", after=self._start)))
        lines = self._lines() if self._board.on else []
        self._db.close()
        for pieces in lines:
            render.say(*pieces)
        return dict(counts)

    def _lines(self) -> list[tuple[Cell, ...]]:
        rows = self._db.rows("job_counts_after", after=self._after)
        return tally.lines(tally.by_name(rows))

    def _tell_news(self) -> None:
        while news := self._db.rows("journal_news", after=self._seq):
            self._seq = news[-1][0]
            if len(news) > _MANY:
                counts = Counter((row[5], row[3]) for row in news)
                for (name, state), count in counts.items():
                    render.say(f"{_now()} {name}: {count} ", shape.state(state))
                continue
            for _, when, job, state, reason, name in news:
                why = f": {text.show(reason)}" if reason else ""
                head = f"{shape.clock(when, day=False)} job {job} {text.show(name)} "
                render.say(head, shape.state(state), why)


def _now() -> str:
    return shape.clock(time.time(), day=False)


class Words(logging.Handler):
    """Prints what the parts of the running process log, above the board."""

    def __init__(self, watch: Watch) -> None:
        """Print by the watch's leave."""
        super().__init__(logging.INFO)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        style: Style = "red" if record.levelno >= logging.ERROR else "yellow"
        if record.levelno <= logging.INFO:
            self._watch.say(f"{_now()} {text.show(record.getMessage())}")
        else:
            word = Styled(record.levelname.lower(), style)
            self._watch.say(f"{_now()} ", word, f" {text.show(record.getMessage())}")
        if record.exc_info:
            sys.stderr.write(logging.Formatter().formatException(record.exc_info) + "\n")
