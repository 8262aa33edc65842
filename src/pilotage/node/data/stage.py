"""Fetch inputs and return outputs of attempts in threads, so that the loop never waits."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import random
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, Callable

from .. import beside
from ..batchjob import files
from ..launcher import over
from ..link import pause
from . import cache
from .cache import Cache
from .line import CutError, DataConnection, RefusalError

_log = logging.getLogger("pilot")
#: Attempts whose data moves at once, and seconds after which a thread without work ends.
_THREADS = 4
_IDLE_S = 20.0
_LONGEST_PAUSE_S = 10.0
_GLANCE_S = 0.2
#: How often content may turn out to be wrong before it is given up.
_TRIES = 3

Words = Mapping[str, Any]


class GivenUpError(Exception):
    """The attempt was given up."""


class PlaceError(Exception):
    """This node cannot hold what an attempt needs."""


@dataclass
class StagedAttempt:
    """An attempt with data."""

    key: str
    #: The folder that stands for the project's, and the attempt's directory.
    folder: str
    run: str
    #: Declared outputs by name: those that must be left, and those that may.
    outputs: dict[str, str]
    optional: dict[str, str]
    ok_codes: list[int]
    #: Whether its inputs are there.
    begun: bool = False
    #: What it uses of the cache, and of that what shares its content with it, as it looked.
    used: list[str] = field(default_factory=list)
    shared: dict[str, tuple[int, int]] = field(default_factory=dict)
    given_up: bool = False

    def check(self) -> None:
        """Raise if the attempt was given up."""
        if self.given_up:
            raise GivenUpError


@dataclass(frozen=True)
class Done:
    """Result of staging for an attempt."""

    key: str
    #: Its launch, now that its inputs are there; or how it ended, now that all is done.
    launch: Words | None = None
    report: Words | None = None


class Stager:
    """All attempts with data; threads move it, the loop asks what is done."""

    def __init__(
        self, line: Callable[[], DataConnection], cache: Cache, wake: Callable[[], None]
    ) -> None:
        """Take what makes connections; `wake` has the loop look around."""
        self._make_line = line
        self._cache = cache
        self._wake = wake
        self._attempts: dict[str, StagedAttempt] = {}
        #: Attempts for which something is being done.
        self._busy: set[str] = set()
        self._tasks: queue.Queue[tuple[StagedAttempt, Callable[[DataConnection], Done]]] = (
            queue.Queue()
        )
        self._done: queue.SimpleQueue[Done] = queue.SimpleQueue()
        self._threads = 0
        self._lock = threading.Lock()
        self._dice = random.SystemRandom()
        self._point = beside.module("starter.crash").point

    def __contains__(self, key: object) -> bool:
        return key in self._busy

    def __bool__(self) -> bool:
        return bool(self._busy)

    def bring(self, launch: Words) -> None:
        """Fetch the inputs of an attempt; `done` returns its launch then."""
        data = launch["data"]
        one = StagedAttempt(
            launch["key"], data["folder"], launch["dir"], launch.get("outputs") or {},
            data["optional"], data["ok_codes"],
        )  # fmt: skip
        rest = {name: value for name, value in launch.items() if name != "data"}
        self._attempts[one.key] = one
        self._submit(one, lambda line: self._bring(line, one, data["inputs"], rest))

    def home(self, report: Words) -> bool:
        """Have what an attempt has left taken home; return whether there is anything to take."""
        one = self._attempts.get(report["key"])
        if one is None:
            return False
        self._drop_changed(one)
        well = report["reason"] == "exited" and report["exit"] in one.ok_codes
        if well and (one.outputs or one.optional):
            self._submit(one, lambda line: self._home(line, one, report))
            return True
        return False

    def stop(self, key: str) -> bool:
        """Give an attempt up if its data is on its way; return whether it is."""
        if key not in self._busy:
            return False
        self._attempts[key].given_up = True
        self._busy.discard(key)
        return True

    def waiting(self) -> list[str]:
        """Name the attempts that have not begun, since their inputs are not there."""
        return [key for key in self._busy if not self._attempts[key].begun]

    def done(self) -> list[Done]:
        """Return what has been done since; what was given up meanwhile is left out."""
        found = []
        while not self._done.empty():
            one = self._done.get()
            if one.key in self._busy:
                self._busy.discard(one.key)
                found.append(one)
        return found

    def forget(self, key: str) -> str:
        """Release the files of an attempt; return its folder, empty if it has none."""
        one = self._attempts.pop(key, None)
        if one is None:
            return ""
        with self._lock:
            one.given_up = True
            used, one.used = one.used, []
        for digest in used:
            self._cache.release(digest)
        return one.folder

    # -- threads ---------------------------------------------------------------------------------

    def _submit(self, one: StagedAttempt, act: Callable[[DataConnection], Done]) -> None:
        self._busy.add(one.key)
        with self._lock:
            self._tasks.put((one, act))
            start = self._threads < min(_THREADS, len(self._busy))
            self._threads += start
        if start:
            threading.Thread(target=self._work, name="data", daemon=True).start()

    def _work(self) -> None:
        line = self._make_line()
        while True:
            try:
                one, act = self._tasks.get(timeout=_IDLE_S)
            except queue.Empty:
                with self._lock:
                    if not self._tasks.empty():
                        continue
                    self._threads -= 1
                line.close()
                return
            try:
                done = act(line)
            except GivenUpError:
                line.close()
                continue
            except Exception as error:  # noqa: BLE001 - the hub must hear of it, whatever it was
                _log.exception("the data of attempt %s cannot be moved", one.key)
                done = Done(one.key, report=over(one.key, "lost", f"its data: {error!r}"))
            self._done.put(done)
            self._wake()

    def _pause(self, one: StagedAttempt, failures: int, why: CutError) -> None:
        """Wait before the next try, as long as anybody wants the attempt."""
        if not failures:
            _log.warning("data of attempt %s waits: %s", one.key, why)
        until = time.monotonic() + pause(failures, self._dice, _LONGEST_PAUSE_S)
        while (left := until - time.monotonic()) > 0:
            one.check()
            time.sleep(min(left, _GLANCE_S))

    # -- what is read ----------------------------------------------------------------------------

    def _bring(
        self, line: DataConnection, one: StagedAttempt, given: list[Words], launch: Words
    ) -> Done:
        try:
            os.makedirs(one.folder, exist_ok=True)
            for each in given:
                one.check()
                self._supply(line, one, each)
            self._open_folders(one, launch["cwd"])
        except RefusalError as error:
            # What it reads has changed there, or it is not ours any more: it begins again.
            return Done(one.key, report=over(one.key, "stopped", str(error)))
        except (OSError, PlaceError, files.PlaceError) as error:
            words = f"its data cannot be stored there: {error}"
            return Done(one.key, report=over(one.key, "not_started", words))
        one.begun = True
        self._point("node.placed")
        return Done(one.key, launch=launch)

    def _supply(self, line: DataConnection, one: StagedAttempt, given: Words) -> None:
        """Give an attempt an input; another pilot may remove content before it has its name."""
        for left in reversed(range(_TRIES)):
            self._have(line, one, given)
            try:
                self._place(one, given)
            except FileNotFoundError:
                if not left or os.path.lexists(self._cache.path(given["sha256"])):
                    raise
            else:
                return

    def _have(self, line: DataConnection, one: StagedAttempt, given: Words) -> None:
        """Have some content in the cache, for as long as the attempt needs it."""
        digest, size = given["sha256"], given["size"]
        if not self._cache.use(digest, one.check):
            with contextlib.ExitStack() as undo:
                undo.callback(self._cache.fail, digest)
                self._fetch(line, one, digest, size)
                undo.pop_all()
            self._cache.keep(digest, size)
        with self._lock:
            if not one.given_up:
                one.used.append(digest)
                return
        self._cache.release(digest)
        raise GivenUpError

    def _fetch(self, line: DataConnection, one: StagedAttempt, digest: str, size: int) -> None:
        path = self._cache.path(digest)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        facts = os.statvfs(os.path.dirname(path))
        if size > facts.f_bavail * facts.f_frsize:
            raise PlaceError(f"{size} bytes are needed, {facts.f_bavail * facts.f_frsize} are free")
        part = cache.part(path)
        try:
            with open(part, "wb") as file:
                self._fill(line, one, digest, file)
            os.chmod(part, 0o444)
            os.rename(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise
        self._point("node.fetched")

    def _fill(self, line: DataConnection, one: StagedAttempt, digest: str, file: BinaryIO) -> None:
        """Write some content to a file; a cut in between costs nothing that had arrived."""
        for _ in range(_TRIES):
            file.seek(0)
            file.truncate()
            total = hashlib.sha256()

            def take(data: bytes) -> None:
                one.check()
                file.write(data)
                total.update(data)  # noqa: B023 - called in this turn only

            failures = 0
            while True:
                try:
                    line.fetch(one.key, digest, file.tell(), take)
                    break
                except CutError as error:
                    line.close()
                    self._pause(one, failures, error)
                    failures += 1
            if total.hexdigest() == digest:
                return
        raise PlaceError("the content does not match its digest")

    def _place(self, one: StagedAttempt, given: Words) -> None:
        """Give an input the name that the payload looks for."""
        target = os.path.normpath(given["path"])
        if not target.startswith(f"{one.folder}/"):
            raise PlaceError(f"the input {target} is not below {one.folder}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        digest = given["sha256"]
        source = self._cache.path(digest)
        # What it writes to must not be what others read.
        written = target in {*one.outputs.values(), *one.optional.values()}
        if files.join(source, target, given, copy=written):
            one.shared[digest] = files.facts(source)

    def _open_folders(self, one: StagedAttempt, cwd: str) -> None:
        """Make the folders that it begins in and writes to, as they are where it comes from."""
        paths = [*one.outputs.values(), *one.optional.values()]
        for folder in {os.path.normpath(cwd), *map(os.path.dirname, paths)}:
            if f"{folder}/".startswith(f"{one.folder}/"):
                os.makedirs(folder, exist_ok=True)

    # -- what is left ----------------------------------------------------------------------------

    def _drop_changed(self, one: StagedAttempt) -> None:
        """Forget content that a payload has changed in place, so that no other gets it."""
        for digest, before in one.shared.items():
            with contextlib.suppress(FileNotFoundError):
                if files.facts(self._cache.path(digest)) != before:
                    self._cache.drop(digest)

    def _home(self, line: DataConnection, one: StagedAttempt, report: Words) -> Done:
        try:
            found, wrong = files.look({**one.outputs, **one.optional}, one.check)
            left = {name: facts for name, facts in found.items() if facts is not None}
            absent = [path for name, path in one.outputs.items() if name not in left]
            if absent and not any(map(os.path.exists, absent)):
                # Who reports the end tells which are missing.
                return Done(one.key, report=report)
            if absent or wrong:
                words = "; ".join(wrong) or f"its output {absent[0]} is no file and no folder"
                return Done(one.key, report={**report, "unsaved": words})
            paths = _paths({**one.outputs, **one.optional}, left)
            if strange := [path for path in paths if not _is_inside(path, one)]:
                words = f"its output {strange[0]} is a link that leads out of its folder"
                return Done(one.key, report={**report, "unsaved": words})
            self._point("node.ended")
            self._send(line, one, left, paths)
        except (OSError, RefusalError) as error:
            return Done(one.key, report={**report, "unsaved": str(error)})
        self._point("node.home")
        return Done(one.key, report=report)

    def _send(self, line: DataConnection, one: StagedAttempt, left: Words, paths: set[str]) -> None:
        failures = 0
        while True:
            try:
                line.home(one.key, left, paths, one.check)
                return
            except CutError as error:
                line.close()
                self._pause(one, failures, error)
                failures += 1


def _paths(names: Mapping[str, str], left: Words) -> set[str]:
    """Name all files that were left."""
    found = set()
    for name, facts in left.items():
        inside = facts.get("files")
        top = names[name]
        found |= {top} if inside is None else {os.path.join(top, each) for each in inside}
    return found


def _is_inside(path: str, one: StagedAttempt) -> bool:
    """Return whether a file is the attempt's own, wherever its links lead to."""
    tops = (os.path.realpath(top) for top in (one.folder, one.run))
    return any(os.path.realpath(path).startswith(f"{top}/") for top in tops)
