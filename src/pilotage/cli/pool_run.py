"""`pilotage pool run`: control pools by a COBalD configuration."""

from __future__ import annotations

import contextlib
import fcntl
import logging.config
import os
import platform
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import errors
from pilotage.base.owner import me
from pilotage.cli import formatting, printing
from pilotage.cli.answer import Answer, AnswerStream
from pilotage.cli.common import HERE, Common
from pilotage.pool.words import volume

if TYPE_CHECKING:
    from pilotage.compat.cobald.build import Loaded
    from pilotage.compat.cobald.ours import Setup
    from pilotage.pool.drive import Driver
    from pilotage.pool.model import Plan

_log = logging.getLogger("pilotage.pool")
_INTERRUPTED = 130
#: Seconds after which an unchanged decision is shown again.
_AGAIN_S = 60.0
_LONG = 200


def run(
    file: Annotated[Path, Parameter(help="A configuration of COBalD, in YAML.")],
    /,
    *,
    once: Annotated[bool, Parameter(help="Decide once, and end.")] = False,
    dry_run: Annotated[
        bool, Parameter(name=("--dry-run", "-n"), help="Show what would be done; do nothing.")
    ] = False,
    allow_import: Annotated[
        tuple[str, ...], Parameter(help="Import this, `package.Class` or `package.*`; repeatable.")
    ] = (),
    at: Common = HERE,
) -> AnswerStream:
    """Control pools by a COBalD configuration, until Ctrl-C."""
    from pilotage.compat.cobald.ours import Setup
    from pilotage.pool.remote import Voice

    voice = Voice(f"{me()}@{platform.node()}:{file.absolute()}"[:_LONG])
    setup = Setup(file, voice, allow=allow_import, start=at.project)
    stop = Stop()
    if dry_run:
        return AnswerStream(_planned(setup, stop))
    return AnswerStream(_steered(setup, stop, file, once=once))


@dataclass(eq=False)
class Stop:
    """Hears that it is time to end."""

    signal: int = field(default=0, init=False)
    _event: threading.Event = field(default_factory=threading.Event, init=False)

    def listen(self) -> None:
        """Hear signals from now on."""
        signal.signal(signal.SIGINT, self._heard)
        signal.signal(signal.SIGTERM, self._heard)

    def wait(self, seconds: float) -> bool:
        """Sleep; return whether to stop."""
        return self._event.wait(seconds)

    def _heard(self, number: int, _: object) -> None:
        if self.signal:
            # Asked twice: whatever hangs, nothing is lost, since each request has the whole demand.
            os._exit(_INTERRUPTED)
        self.signal = number
        self._event.set()


def _planned(setup: Setup, stop: Stop) -> Iterator[Answer]:
    """Return what would be decided."""
    from pilotage.pool.drive import Driver
    from pilotage.pool.pipeline import explain
    from pilotage.pool.remote import Voice

    with contextlib.closing(setup):
        loaded = _loaded(setup, stop, once=True)
        driver = Driver(loaded.pipeline, Voice(""))
        plan = driver.plan()
    yield Answer(_data(driver, plan), tuple(explain(plan)), (), loaded.advice)


def _steered(setup: Setup, stop: Stop, file: Path, *, once: bool) -> Iterator[Answer]:
    """Decide until stopped."""
    from pilotage.pool import drive

    with _alone(file), contextlib.closing(setup):
        stop.listen()
        loaded = _loaded(setup, stop, once=once)
        for one in loaded.advice:
            printing.say(f"note: {one}")
        setup.services.start()
        driver = drive.Driver(loaded.pipeline, setup.voice)
        yield from _turns(driver, stop, once=once)
    if stop.signal:
        status = _INTERRUPTED if stop.signal == signal.SIGINT else 0
        note = "stopped; pools stay as they were asked for last"
        yield Answer({"stopped": signal.Signals(stop.signal).name}, notes=(note,), status=status)


def _turns(driver: Driver, stop: Stop, *, once: bool) -> Iterator[Answer]:
    from pilotage.pool.guarded import RETRY

    failures, last, when = 0, "", -_AGAIN_S
    while not stop.signal:
        wait = 0.0
        try:
            plan = driver.step()
            failures = 0
        except Exception as error:
            # Log any error of a third-party controller, wait and continue.
            if once:
                raise
            plan, failures = None, failures + 1
            wait = RETRY.bound(failures)
            _log.error("nothing is decided, next try in %g s: %s", wait, error)
        if plan is not None:
            told, now = _told(plan), time.monotonic()
            repeated = told == last and now - when < _AGAIN_S
            shown = () if repeated else (f"{formatting.clock(time.time(), day=False)} {told}",)
            last, when = told, when if repeated else now
            yield Answer(_data(driver, plan), shown)
        if once or stop.wait(max(wait, driver.wait())):
            return


def _loaded(setup: Setup, stop: Stop, *, once: bool) -> Loaded:
    """Read the configuration, as soon as the hubs of its pools answer."""
    from pilotage.pool import drive
    from pilotage.pool.guarded import RETRY

    failures = 0
    while True:
        loaded = setup.load()
        _logs(loaded)
        loaded.pipeline.target = drive.guard(loaded.pipeline.target)
        loaded.pipeline.view()
        lost = [one.error for one in setup.leaves if isinstance(one.error, errors.Unavailable)]
        bad = [one.error for one in setup.leaves if one.error is not None]
        if bad and len(bad) == len(setup.leaves) and not lost:
            raise bad[0]
        if not lost:
            return loaded
        # What a pool was asked for last is not known: to begin with nothing would end its pilots.
        failures += 1
        if once or stop.wait(RETRY.bound(failures)):
            raise lost[0]


def _logs(loaded: Loaded) -> None:
    if loaded.logging is None:
        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
        return
    try:
        logging.config.dictConfig({"version": 1, **loaded.logging})
    except (ValueError, TypeError, AttributeError, ImportError) as error:
        raise errors.ConfigError(f"`logging` cannot be set up: {error}") from error


@contextlib.contextmanager
def _alone(file: Path) -> Iterator[None]:
    """Have the file for this process: two that do the same would not know of each other."""
    try:
        opened = file.open("rb")
    except OSError as error:
        raise errors.ConfigError(f"{file} cannot be read: {error.strerror}") from None
    with opened:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise errors.AlreadyRunning(f"another process runs {file} already") from None
        except OSError as error:
            # A file system without locks.
            _log.info("cannot lock %s: %s", file, error)
        yield


def _told(plan: Plan) -> str:
    from pilotage.pool import drive

    wanted = plan.taken if plan.demand is None else plan.demand
    return f"demand {volume(wanted)}: {drive.said(plan)}"


def _data(driver: Driver, plan: Plan) -> dict[str, Any]:
    from pilotage.pool import drive

    return {
        "time": time.time(), "controller": plan.name, "demand": plan.demand, "taken": plan.taken,
        "why": plan.words, "words": drive.said(plan), "pools": list(_pools(plan)),
        "sees": msgspec.to_builtins(driver.seen),
    }  # fmt: skip


def _pools(plan: Plan) -> Iterator[dict[str, Any]]:
    if not plan.below:
        yield {"name": plan.name, "demand": plan.demand, "taken": plan.taken, "words": plan.words}
    for one in plan.below:
        yield from _pools(one)
