"""From a claim to the evidence of an end."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import beside, claim, durable
from . import inputs, order, outputs, pulse, surroundings
from .signals import Signals, Stopped
from .starter import Starter, ending

_USAGE = 2
#: There is no order, nobody could write, or the claim could not be made: nothing was run.
_NO_ORDER = 66
_NO_EVIDENCE = 74
_NO_CLAIM = 75
_NOT_RUN = 70
_BY_SIGNAL = 128

#: How long it may take to write something down: before a payload runs, and after the warning.
_CLAIM_S = 300.0
_WARNED_S = 25.0
_GONE_S = 60.0
#: How long outputs are looked at after the warning.
_LOOK_S = 5.0
_SLOWEST_S = 5.0
_DEFAULTS: dict[str, Any] = {
    "env": {},
    "files": {},
    "limits": {},
    "timeout": None,
    "grace": 10.0,
    "memory": None,
}


def main(words: Sequence[str]) -> int:
    """Run the item of a submission that this batch job is for, if nobody else does or did."""
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
        self._number = number
        self._item = item
        self._env = env
        self._signals = signals
        self._launch: dict[str, Any] = {**_DEFAULTS, **item["launch"]}
        self._area = os.path.join(folder, str(number))
        self._news = os.path.join(os.path.dirname(os.path.dirname(folder)), "news")
        self._point = beside.module("starter.crash").point
        self._facts = {
            "key": os.path.basename(folder),
            "index": number,
            "attempt": self._launch["key"],
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "batch": order.batch(env),
        }

    def run(self, umask: int) -> int:
        """Do all of it, and return the exit status."""
        self._point("single.begun")
        if self._signals.heard():
            return _BY_SIGNAL + self._signals.number
        mine = self._claim()
        if mine is not True:
            return 0 if mine is False else _NO_CLAIM
        self._point("single.claimed")
        with contextlib.ExitStack() as stack:
            starter = None
            try:
                passed = surroundings.passed(self._env)
                # It gets ready while we write.
                starter = Starter(passed, umask, self._signals, self._area)
                # Not before the fork: a thread does not come along.
                pulse.begin(os.path.join(claim.path(self._folder, self._number), "by.json"))
                self._announce()
                self._point("single.announced")
                end, found = self._work(starter, passed, stack)
            except Stopped as error:
                end, found = ending(self._launch["key"], "stopped", str(error)), {}
            except Exception as error:  # noqa: BLE001 - whatever it was, the hub must hear of it
                words = f"{type(error).__name__}: {error}"
                end, found = ending(self._launch["key"], "not_started", words), {}
            if not self._testify(end, found):
                return _NO_EVIDENCE
            self._point("single.evident")
            if starter is not None:
                starter.leave(self._launch["key"])
        self._clean()
        self._point("single.left")
        return _status(end)

    def _claim(self) -> bool | None:
        """Claim the item; nothing is returned if that was not possible."""
        by = {**self._facts, "time": time.time()}
        deadline = time.monotonic() + _CLAIM_S
        pause = 0.1
        while True:
            try:
                holder = claim.take(self._folder, self._number, by)
            except OSError as error:
                sys.stderr.write(f"cannot claim {error.filename}: {error.strerror}\n")
                gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
                if self._signals.wait(pause) or gone or time.monotonic() > deadline:
                    return None
                pause = min(2 * pause, _SLOWEST_S)
                continue
            if holder is None:
                return True
            sys.stdout.write(f"duplicate: {json.dumps(holder)}\n")
            return False

    def _announce(self) -> None:
        """Tell that it begins; if that cannot be told, its end will be."""
        try:
            self._write("started", {**self._facts, "time": time.time()})
        except OSError as error:
            sys.stderr.write(f"cannot write {error.filename}: {error.strerror}\n")

    def _work(
        self, starter: Starter, passed: Mapping[str, str], stack: contextlib.ExitStack
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Place what is needed, run the payload, look at what it left."""
        self._prepare()
        shared = inputs.place(
            self._item.get("inputs") or (), self._folder, self._area, self._signals.check
        )
        if self._item.get("mount"):
            from . import mount

            stack.enter_context(mount.mounted(self._item, self._area))
        self._open_folders()
        launch = self._completed(passed)
        self._point("single.placed")
        end = starter.run(launch)
        self._point("single.ran")
        found: dict[str, Any] = {}
        wrong = [f"its input {path} was changed in place" for path in inputs.changed(shared)]
        names = {**(self._item.get("outputs") or {}), **(self._item.get("optional") or {})}
        if end["reason"] == "stopped":
            found = dict.fromkeys(names)
        else:
            try:
                found, bad = outputs.look(names, self._hurry)
                wrong += bad
            except Stopped as error:
                found = dict.fromkeys(names)
                end.update(reason="stopped", message=f"{error} while its outputs were looked at")
        end["message"] = "; ".join([end["message"], *wrong])
        self._point("single.looked")
        return end, found

    def _prepare(self) -> None:
        """Make the folders and programs that the launch names."""
        inside = f"{self._area}/"
        if not self._launch["dir"].startswith(inside):
            raise inputs.PlaceError(f"{self._launch['dir']} is not below {self._area}")
        os.makedirs(self._area, exist_ok=True)
        cwd, attempt = f"{self._launch['cwd']}/", f"{self._launch['dir']}/"
        # The attempt's own directory is made by the starter, as its claim.
        if cwd.startswith(inside) and not cwd.startswith(attempt):
            os.makedirs(cwd, exist_ok=True)
        library = os.path.join(self._area, "lib")
        for name in ("call.py", "warm.py"):
            path = os.path.join(library, name)
            if path in self._launch["argv"]:
                os.makedirs(library, exist_ok=True)
                with open(path, "wb") as file:
                    file.write(beside.data(name))

    def _open_folders(self) -> None:
        """Make the folders that outputs go to, as they are where the job comes from."""
        named = {**(self._item.get("outputs") or {}), **(self._item.get("optional") or {})}
        for path in named.values():
            folder = os.path.dirname(path)
            if f"{folder}/".startswith(f"{self._area}/"):
                os.makedirs(folder, exist_ok=True)

    def _completed(self, passed: Mapping[str, str]) -> dict[str, Any]:
        """Add to the launch what it needs of this node."""
        launch = surroundings.completed(self._launch, self._env)
        if self._item.get("image"):
            from . import image

            launch = image.ready(launch, self._item, self._area)
        if (launch.get("sandbox") or {}).get("kind", "none") != "none":
            from .. import boxed

            library = os.path.join(self._area, "lib")
            programs = {os.path.join(library, name) for name in ("call.py", "warm.py")}
            launch = boxed.complete(launch, passed, programs)
        return launch

    def _hurry(self) -> None:
        """Complain when outputs are looked at for too long after the warning."""
        if self._signals.heard() and time.monotonic() > self._signals.at + _LOOK_S:
            raise Stopped(self._signals.words())

    def _testify(self, end: dict[str, Any], found: dict[str, Any]) -> bool:
        """Write the evidence, however long it takes; tell whether that was possible."""
        body = {**self._facts, "time": time.time(), "end": end, "outputs": found}
        begun = time.monotonic()
        pause = 0.05
        while True:
            try:
                self._write("ended", body)
                return True
            except OSError as error:
                sys.stderr.write(f"cannot write {error.filename}: {error.strerror}\n")
                warned = self._signals.heard() and time.monotonic() > self._signals.at + _WARNED_S
                gone = error.errno in (errno.ENOENT, errno.ENOTDIR)
                if warned or (gone and time.monotonic() > begun + _GONE_S):
                    return False
            time.sleep(pause)
            pause = min(2 * pause, _SLOWEST_S)

    def _write(self, kind: str, body: dict[str, Any]) -> None:
        name = f"{self._facts['key']}.{self._number}.{kind}"
        part = os.path.join(self._news, f".{name}.part")
        durable.write(os.path.join(self._news, name), json.dumps(body), part)

    def _clean(self) -> None:
        """Remove what nobody needs any more, if that is wanted: inputs and our programs."""
        if self._item.get("cleanup"):
            ours = [one["path"] for one in self._item.get("inputs") or ()]
            library = os.path.join(self._area, "lib")
            for path in (*ours, os.path.join(library, "call.py"), os.path.join(library, "warm.py")):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _status(end: Mapping[str, Any]) -> int:
    """Make the exit status of the payload ours; success is only what ended by itself."""
    if end["exit"] is not None and (end["exit"] or end["reason"] == "exited"):
        return int(end["exit"])
    return _BY_SIGNAL + int(end["signal"]) if end["signal"] is not None else _NOT_RUN
