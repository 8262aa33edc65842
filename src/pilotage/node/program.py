"""The pilot's program: options, wiring and the loop."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import random
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any

from . import dial, environment, exits, options, parts, tidy
from .boxed import Folders
from .checks import Boot
from .data.cache import Cache, UnsafeError, shared
from .data.line import DataConnection
from .data.stage import Stager
from .discover import batch, node
from .jobs import PilotJobs, Results
from .launcher import Launcher, StarterSupervisor
from .link import HubLink
from .pilot import Hooks, PilotLoop
from .policy import StayLimits
from .session import Session


class WorkFolder:
    """A folder that is there while the pilot is."""

    def __init__(self, parent: str, *, keep: bool = False) -> None:
        os.makedirs(parent, exist_ok=True)
        name = f"pilot-{socket.gethostname()}-"
        #: Absolute, since payloads begin elsewhere.
        self.folder = tempfile.mkdtemp(prefix=name, dir=os.path.abspath(parent))
        self.jobs = os.path.join(self.folder, "jobs")
        os.mkdir(self.jobs)
        self._data = os.path.join(self.folder, "data")
        #: Whether folders stay when they are not needed any more.
        self.keep = keep
        self._done: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._janitor = threading.Thread(target=self._tidy, name="janitor", daemon=True)
        self._janitor.start()

    def forget(self, folder: str) -> None:
        """Remove a folder of an attempt, some time; nothing that is not below ours."""
        ours = os.path.dirname(os.path.normpath(folder)) in {self.jobs, self._data}
        if not self.keep and ours:
            self._done.put(folder)

    def remove(self) -> None:
        """Remove everything."""
        self._done.put("")
        self._janitor.join(10.0)
        if not self.keep:
            tidy.remove(self.folder)

    def _tidy(self) -> None:
        while folder := self._done.get():
            tidy.remove(folder)


_log = logging.getLogger("pilot")
_USAGE = 2


def main(words: Sequence[str] | None = None) -> int:
    """Run a pilot until there is a reason to leave."""
    options.hide()
    given = options.parse(sys.argv[1:] if words is None else words)
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
    )
    umask = os.umask(0o077)
    try:
        way = dial.route(given.hub, given.link, given.proxy, given.ca, insecure=given.insecure)
        scratch = given.work or batch.scratch(os.environ)
        folders = Folders(given.readable, given.writable)
        if shown := folders.around(scratch):
            raise dial.RouteError(
                f"payloads would see the pilot's own files, which are in {scratch}, as {shown} is "
                "shown to them; choose another folder with --work"
            )
        if given.cache_folder:
            if folders.around(given.cache_folder):
                raise dial.RouteError(f"payloads would see the cache in {given.cache_folder}")
            given.cache_folder = shared(os.path.join(given.cache_folder, _hub(given.hub)))
        token = options.take(given.secret_file, os.environ)
    except (options.SecretError, dial.RouteError, UnsafeError, OSError) as error:
        _log.error("%s", error)
        return _USAGE
    work = WorkFolder(scratch, keep=given.keep)
    code = exits.UNDELIVERED
    try:
        code = _fly(given, token, way, work, umask)
    finally:
        if code == exits.UNDELIVERED:
            _log.error("results that the hub has not acknowledged are in %s", work.folder)
        else:
            work.remove()
    _log.info("left with status %d", code)
    return code


def _fly(given: Any, token: str, way: dial.Route, work: WorkFolder, umask: int) -> int:  # noqa: ANN401
    """Put the parts together, and run the loop."""
    now = clock()
    parts.unpack(work.folder)
    lot = node.Given(given.cpus, given.memory, given.lifetime, dict(given.attribute))
    facts = node.facts(work.folder, lot, os.environ)
    folders = Folders(given.readable, given.writable)
    facts["sandboxes"] = parts.sandboxes(work.folder)
    gpus = [one["device"] for one in facts["gpus"]]
    wake = _listen_to_signals()
    base = environment.scrubbed(os.environ)
    session = Session(HubLink(way, wake.poke, random.SystemRandom()), token, facts, given.name)

    cache = Cache(given.cache_folder or _beside(work.folder, given.hub), given.cache)

    def boot(terms: Mapping[str, Any]) -> Boot:
        folder = os.path.join(work.folder, "checks")
        return Boot(terms, given.site_checks, base, folder, folders, wake.poke)

    pilot = PilotLoop(
        session,
        PilotJobs(given.log_limit),
        StarterSupervisor(
            lambda: Launcher(work.folder, pilot.env, facts["cpus"], umask, folders, gpus)
        ),
        Results(os.path.join(work.folder, "spool")),
        Stager(lambda: DataConnection(way, session.credentials), cache, wake.poke),
        StayLimits.of(now, facts["lifetime"], given.idle),
        Hooks(boot, work.forget, lambda: options.forget(given.secret_file)),
        given.recheck,
    )
    try:
        return _loop(pilot, wake)
    finally:
        pilot.starter.close()
        session.link.close()
        cache.close(remove=not (given.cache_folder or given.keep))


def _hub(url: str) -> str:
    """Name the part of a cache that is one hub's; its data is for its own jobs alone."""
    return hashlib.sha256(url.encode()).hexdigest()[:16]


def _beside(work: str, url: str) -> str:
    """Return a folder for the cache that pilots of one hub and user share who work there, too."""
    folder = os.path.join(os.path.dirname(work), f"pilot-cache-{os.geteuid()}-{_hub(url)}")
    try:
        return shared(folder)
    except (UnsafeError, OSError) as error:
        _log.warning("inputs are cached for this pilot alone: %s", error)
        return os.path.join(work, "cache")


def _loop(pilot: PilotLoop, wake: Wake) -> int:
    while True:
        code = pilot.step(clock())
        if code is not None:
            return code
        poll = select.poll()
        poll.register(wake.inner, select.POLLIN)
        for one in (pilot.session.link.channel, pilot.starter.launcher):
            if one is not None:
                poll.register(one.socket, select.POLLIN | (select.POLLOUT if one.full else 0))
        poll.poll(pilot.patience(clock()) * 1000 + 0.5)
        for _ in range(wake.signals()):
            pilot.terminate(clock())


def clock() -> float:
    """Count seconds, also those for which the machine slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Wake:
    """Ends the loop's sleep: threads and signals write to it."""

    def __init__(self) -> None:
        self.inner, self._outer = socket.socketpair()
        self.inner.setblocking(False)
        self._outer.setblocking(False)
        signal.set_wakeup_fd(self._outer.fileno(), warn_on_full_buffer=False)

    def poke(self) -> None:
        """Have the loop look around."""
        try:
            self._outer.send(b"\0")
        except BlockingIOError:
            # It has enough reasons to wake up.
            return

    def signals(self) -> int:
        """Count the signals that have arrived and ask for our end."""
        try:
            return sum(1 for number in self.inner.recv(4096) if number)
        except BlockingIOError:
            return 0


def _listen_to_signals() -> Wake:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _note)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    return Wake()


def _note(_number: int, _frame: FrameType | None) -> None:
    """Do nothing: the loop reads the number from its socket."""
