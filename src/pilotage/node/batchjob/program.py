"""Run one item of a batch job, from its claim to the evidence of its end."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from .. import beside
from . import files, order, record
from .record import ItemRecord, Signals, Stopped
from .starter import Starter, ending

_PROGRAMS = ("call.py", "warm.py")


class Area:
    """One item and its folder."""

    def __init__(self, path: str, item: Mapping[str, Any]) -> None:
        self.path = path
        #: Declared outputs by name, also those that need not be there.
        self.outputs = {**(item.get("outputs") or {}), **(item.get("optional") or {})}
        self._item = item
        self._programs = [os.path.join(path, "lib", name) for name in _PROGRAMS]

    def prepare(self, launch: Mapping[str, Any]) -> None:
        """Make the folders and programs that the launch names."""
        if not self._holds(launch["dir"]):
            raise files.PlaceError(f"{launch['dir']} is not below {self.path}")
        os.makedirs(self.path, exist_ok=True)
        cwd = f"{launch['cwd']}/"
        # The attempt's own directory is made by the starter, as its claim.
        if self._holds(cwd) and not cwd.startswith(f"{launch['dir']}/"):
            os.makedirs(cwd, exist_ok=True)
        for path in self._programs:
            if path in launch["argv"]:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(beside.data(os.path.basename(path)))

    def open_folders(self) -> None:
        """Make the folders that outputs go to, as they are where the job comes from."""
        for folder in {os.path.dirname(path) for path in self.outputs.values()}:
            if self._holds(f"{folder}/"):
                os.makedirs(folder, exist_ok=True)

    @contextlib.contextmanager
    def mounted(self, launch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Have the data there, if it is to be mounted; yields the launch that sees it."""
        if not self._item.get("mount"):
            yield launch
            return
        from . import mount

        with mount.mounted(self._item, self.path) as path:
            yield mount.shown(launch, path)

    def completed(
        self, launch: dict[str, Any], env: Mapping[str, str], passed: Mapping[str, str]
    ) -> dict[str, Any]:
        """Add to the launch what it needs of this node."""
        launch = order.completed(launch, env)
        if self._item.get("image"):
            from . import image

            launch = image.ready(launch, self._item, self.path)
        if (launch.get("sandbox") or {}).get("kind", "none") != "none":
            from .. import boxed

            launch = boxed.complete(launch, passed, self._programs)
        return launch

    def clean(self) -> None:
        """Remove inputs and our programs, if that is wanted."""
        if self._item.get("cleanup"):
            ours = [one["path"] for one in self._item.get("inputs") or ()]
            for path in (*ours, *self._programs):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def _holds(self, path: str) -> bool:
        return path.startswith(f"{self.path}/")


_USAGE = 2
#: There is no order, nothing could be written, or the claim failed: nothing was run.
_NO_ORDER = 66
_NO_EVIDENCE = 74
_NO_CLAIM = 75
_NOT_RUN = 70
_BY_SIGNAL = 128

#: How long outputs are looked at after the warning.
_LOOK_S = 5.0
_DEFAULTS: dict[str, Any] = {
    "env": {},
    "files": {},
    "limits": {},
    "timeout": None,
    "grace": 10.0,
    "memory": None,
}


def main(words: Sequence[str]) -> int:
    """Run the item of a submission that this batch job is for, if no other process does or did."""
    if len(words) != 1:
        sys.stderr.write("usage: job FOLDER\n")
        return _USAGE
    umask = os.umask(0o077)
    env = dict(os.environ)
    signals = Signals()
    signals.listen()
    folder = os.path.abspath(words[0])
    try:
        texts = order.items(folder)
        number = order.index(env, len(texts))
        item = order.item(texts[number])
    except order.OrderError as error:
        sys.stderr.write(f"{error}\n")
        return _NO_ORDER
    return Single(folder, number, item, env, signals).run(umask)


class Single:
    """One item of a submission, and this job, which wants to run it."""

    def __init__(
        self,
        folder: str,
        number: int,
        item: dict[str, Any],
        env: Mapping[str, str],
        signals: Signals,
    ) -> None:
        self._folder = folder
        self._item = item
        self._env = env
        self._signals = signals
        self._launch: dict[str, Any] = {**_DEFAULTS, **item["launch"]}
        self._area = Area(os.path.join(folder, str(number)), item)
        self._point = beside.module("starter.crash").point
        facts = {
            "key": os.path.basename(folder),
            "index": number,
            "attempt": self._launch["key"],
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "batch": order.batch(env),
        }
        self._record = ItemRecord(folder, number, facts, signals)

    def run(self, umask: int) -> int:
        """Do all of it, and return the exit status."""
        self._point("single.begun")
        if self._signals.heard():
            return _BY_SIGNAL + self._signals.number
        mine = self._record.claim()
        if mine is not True:
            return 0 if mine is False else _NO_CLAIM
        self._point("single.claimed")
        passed = order.passed(self._env)
        # It gets ready while we write.
        starter = Starter(passed, umask, self._signals, self._folder)
        # Not before the fork: a thread does not come along.
        record.begin(self._record.claimed)
        self._record.announce()
        self._point("single.announced")
        with contextlib.ExitStack() as stack:
            end, found = self._work(starter, passed, stack)
            if not self._record.testify(end, found):
                return _NO_EVIDENCE
            self._point("single.evident")
            starter.leave(self._launch["key"])
        self._area.clean()
        self._point("single.left")
        return _status(end)

    def _work(
        self, starter: Starter, passed: Mapping[str, str], stack: contextlib.ExitStack
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Place what is needed, run the payload, look at what it left."""
        key = self._launch["key"]
        launch = self._launch
        try:
            self._area.prepare(launch)
            given = self._item.get("inputs") or ()
            shared = files.place(given, self._folder, self._area.path, self._signals.check)
            launch = stack.enter_context(self._area.mounted(launch))
            self._area.open_folders()
            launch = self._area.completed(launch, self._env, passed)
            self._point("single.placed")
            end = starter.run(launch)
        except Stopped as error:
            return ending(key, "stopped", str(error)), {}
        except Exception as error:  # noqa: BLE001 - whatever it was, the hub must hear of it
            words = f"{type(error).__name__}: {error}"
            if starter.ordered:
                # It may run, so it is ended, and must not be reported as not started.
                return {**starter.bury(launch), "message": words}, {}
            return ending(key, "not_started", words), {}
        self._point("single.ran")
        try:
            found = self._look(end, shared)
        except Exception as error:  # noqa: BLE001 - the payload has ended, and that must be told
            found = dict.fromkeys(self._area.outputs)
            end["message"] += f"; what it left cannot be described: {error!r}"
        self._point("single.looked")
        return end, found

    def _look(self, end: dict[str, Any], shared: Sequence[files.Placed]) -> dict[str, Any]:
        """Describe the outputs; what is wrong with them is reported with the end."""
        wrong = [f"its input {path} was changed in place" for path in files.changed(shared)]
        found: dict[str, Any] = dict.fromkeys(self._area.outputs)
        if end["reason"] != "stopped":
            try:
                found, bad = files.look(self._area.outputs, self._hurry)
                wrong += bad
            except Stopped as error:
                end.update(reason="stopped", message=f"{error} while its outputs were looked at")
        end["message"] = "; ".join([end["message"], *wrong])
        return found

    def _hurry(self) -> None:
        """Complain when outputs are looked at for too long after the warning."""
        if self._signals.heard() and time.monotonic() > self._signals.at + _LOOK_S:
            raise Stopped(self._signals.words())


def _status(end: Mapping[str, Any]) -> int:
    """Make the exit status of the payload ours; success is only what ended by itself."""
    if end["exit"] is not None and (end["exit"] or end["reason"] == "exited"):
        return int(end["exit"])
    return _BY_SIGNAL + int(end["signal"]) if end["signal"] is not None else _NOT_RUN
