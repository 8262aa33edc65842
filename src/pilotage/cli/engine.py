"""Run a project in the foreground: progress on the terminal, and signals."""

from __future__ import annotations

import importlib.util
import logging
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import anyio
import msgspec

from pilotage.base import errors, text, units
from pilotage.cli import formatting, job_counts, live, printing
from pilotage.cli.answer import Cell, Style, Styled
from pilotage.cli.rule import trigger_texts
from pilotage.edge.forward import TargetHub
from pilotage.hub import process
from pilotage.hub.project import Project
from pilotage.project import settings
from pilotage.store import Db, connect

_GLANCE_S = 0.25
#: At most this share of time is spent on looking, however many jobs there are.
_SHARE = 0.05
#: More changes than this between two polls are shown as counts.
_MANY = 20


class ProgressView:
    """Polls the store and shows what changed."""

    def __init__(self, path: Path) -> None:
        self._db: Db = connect(path)
        self._board = live.Board()
        first = self._db.value("job_first_live")
        last = int(self._db.value("job_last"))
        self._after = last if first is None else min(last, first - 1)
        self._start = self._seq = int(self._db.value("journal_last"))

    async def run(self) -> None:
        """Show progress until cancelled."""
        try:
            while True:
                began = time.monotonic()
                self.look()
                cost = time.monotonic() - began
                await anyio.sleep(max(_GLANCE_S, cost / _SHARE))
        finally:
            self._board.clear()

    def look(self) -> None:
        """Show what changed since the last poll."""
        if self._board.on:
            self._board.draw(self._lines())
        else:
            self._tell_news()

    def say(self, *pieces: Cell) -> None:
        """Print a line above the board."""
        self._board.clear()
        printing.say(*pieces)

    def finish(self) -> dict[str, int]:
        """Show the last changes; return the number of ended jobs by state."""
        self._board.clear()
        if not self._board.on:
            self._tell_news()
        counts = Counter(dict(self._db.rows("journal_end_counts", after=self._start)))
        lines = self._lines() if self._board.on else []
        self._db.close()
        for pieces in lines:
            printing.say(*pieces)
        return dict(counts)

    def _lines(self) -> list[tuple[Cell, ...]]:
        rows = self._db.rows("job_counts_after", after=self._after)
        return job_counts.lines(job_counts.by_name(rows))

    def _tell_news(self) -> None:
        while news := self._db.rows("journal_news", after=self._seq):
            self._seq = news[-1][0]
            if len(news) > _MANY:
                counts = Counter((row[5], row[3]) for row in news)
                for (name, state), count in counts.items():
                    printing.say(f"{_now()} {name}: {count} ", formatting.state(state))
                continue
            for _, when, job, state, reason, name in news:
                why = f": {text.show(reason)}" if reason else ""
                head = f"{formatting.clock(when, day=False)} job {job} {text.show(name)} "
                printing.say(head, formatting.state(state), why)


def _now() -> str:
    return formatting.clock(time.time(), day=False)


class Words(logging.Handler):
    """Prints what the parts of the running process log, above the board."""

    def __init__(self, watch: ProgressView) -> None:
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


INTERRUPTED = 130
_FEW = 10


class Choices(msgspec.Struct, frozen=True):
    """How a project is run."""

    #: End when nothing is left to do.
    until_idle: bool = False
    #: Whether jobs run on this machine, and whether the port is open.
    local: bool = True
    serve: bool = True
    #: The hub that jobs go to instead.
    target: TargetHub | None = None
    #: What runs in place of a hub, and its description; its jobs continue without it.
    instead: process.Instead | None = None
    words: tuple[str, ...] = ()


def drive(project: Project, choices: Choices) -> tuple[dict[str, int], int]:
    """Run a project; return how many jobs ended in which state, and the signal that ended it."""
    watch = ProgressView(project.db.path)
    logger = logging.getLogger("pilotage")
    logger.addHandler(Words(watch))
    logger.setLevel(logging.INFO)
    try:
        heard = anyio.run(_run, project, watch, choices, backend_options=_loop())
    except* errors.PilotageError as group:
        raise _first(group) from None
    finally:
        counts = watch.finish()
    return counts, heard


def _loop() -> dict[str, bool]:
    """Use the faster event loop if it is installed."""
    return {"use_uvloop": importlib.util.find_spec("uvloop") is not None}


async def _run(project: Project, watch: ProgressView, choices: Choices) -> int:
    """Run until the end, or until a signal; return that signal."""
    heard: list[int] = []
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            ending = "" if choices.instead else ": jobs that run are asked to end"
            tasks.start_soon(_listen, scope, watch, heard, ending)
            tasks.start_soon(watch.run)
            await process.up(
                project,
                until_idle=choices.until_idle,
                ready=lambda: _announce(project, watch, choices),
                local=choices.local,
                serve=(lambda address: _invite(watch, address)) if choices.serve else None,
                target=choices.target,
                instead=choices.instead,
            )
        tasks.cancel_scope.cancel()
    return heard[0] if heard else 0


async def _listen(
    scope: anyio.CancelScope, watch: ProgressView, heard: list[int], ending: str
) -> None:  # fmt: skip
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            heard.append(number)
            if len(heard) > 1:
                os._exit(INTERRUPTED)
            watch.say(f"\nstopping{ending}; Ctrl-C again stops at once")
            scope.cancel()


def _invite(watch: ProgressView, address: str) -> None:
    watch.say("  the page is at ", Styled(address, "bold"))


def _announce(project: Project, watch: ProgressView, choices: Choices) -> None:
    if choices.instead:
        first, *more = choices.words
        watch.say(Styled("pilotage", "bold"), f" {first}; Ctrl-C stops")
        for line in more:
            watch.say(f"  {line}")
        return
    offer = settings.offer(project.settings)
    known = {name: one.rule for name, one in project.rules().items() if one.enabled}
    here = f"{formatting.count(offer.cpus, 'core')} and {units.bytes_for_people(offer.memory)}"
    watch.say(
        Styled("pilotage", "bold"),
        f" {_doing(project, choices, here)}; {formatting.count(len(known), 'rule')}, Ctrl-C stops",
    )
    texts = trigger_texts(known, str(project.root))
    wide = max((len(name) for name in known), default=0)
    for name in list(known)[:_FEW]:
        watch.say(f"  {name:<{wide}}  ", Styled(texts[name], "dim"))
    if len(known) > _FEW:
        watch.say(f"  … and {len(known) - _FEW} more: `pilotage rule ls`")
    if not known:
        watch.say(f"  no rules in {project.settings.rules.folder}/; `pilotage submit` queues jobs")


def _doing(project: Project, choices: Choices, here: str) -> str:
    if choices.target:
        return f"watches {project.root} for {choices.target.name}"
    return f"runs {project.root} with {here if choices.local else 'pilots only'}"


def _first(group: BaseExceptionGroup[errors.PilotageError]) -> errors.PilotageError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found
