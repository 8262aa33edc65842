"""A submission in the queue of one machine: its files, and the processes that serve it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import socket
from collections.abc import Iterator
from typing import Any

from .. import durable


def me() -> dict[str, Any]:
    """Describe this process."""
    return describe(os.getpid())


def describe(pid: int) -> dict[str, Any]:
    """Describe a process of this machine."""
    return {"pid": pid, "start": _start(pid), "boot": _boot(), "host": socket.gethostname()}


def elsewhere(who: dict[str, Any]) -> bool:
    """Return whether a process runs on another machine, so that its state is unknown here."""
    return bool(who["host"] != socket.gethostname())


def lives(who: dict[str, Any]) -> bool:
    """Return whether a process of this machine is still there, and no zombie."""
    start = _start(who["pid"])
    return start != "" and start == who["start"] and _boot() == who["boot"]


def _start(pid: int) -> str:
    """Return when a process began, in ticks since the machine did; empty if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in b"ZX" else words[19].decode()


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


class LocalSubmission:
    """The folder of a submission."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.id = os.path.basename(path)

    @property
    def script(self) -> str:
        """The path of what runs."""
        return os.path.join(self.path, "script")

    def order(self) -> dict[str, Any]:
        """Return what was asked for."""
        found = self.read("order.json")
        if found is None:
            raise FileNotFoundError(self.path)
        return found

    def read(self, name: str) -> dict[str, Any] | None:
        """Return what a file says; nothing if there is none."""
        try:
            with open(os.path.join(self.path, name), encoding="utf-8") as file:
                found: dict[str, Any] = json.load(file)
        except FileNotFoundError:
            return None
        return found

    def write(self, name: str, record: dict[str, Any]) -> None:
        """Write a file, durably."""
        part = os.path.join(self.path, f".{name}.{os.getpid()}")
        durable.write(os.path.join(self.path, name), json.dumps(record), part)

    def claim(self, name: str, record: dict[str, Any]) -> bool:
        """Write a file unless there is one; return whether it is ours."""
        part = os.path.join(self.path, f".{name}.{os.getpid()}")
        durable.fill(part, json.dumps(record))
        try:
            os.link(part, os.path.join(self.path, name))
        except FileExistsError:
            return False
        finally:
            os.unlink(part)
        durable.sync(self.path)
        return True

    def has(self, name: str) -> bool:
        """Return whether there is a file."""
        return os.path.exists(os.path.join(self.path, name))

    def remove(self) -> None:
        """Forget the submission."""
        gone = os.path.join(os.path.dirname(self.path), f".gone.{self.id}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.path, gone)
            shutil.rmtree(gone)


def new(root: str, order: dict[str, Any], script: str) -> LocalSubmission:
    """Make the folder of a submission, whole or not at all; its number is never used again."""
    durable.folder(root)
    with _locked(os.path.join(root, ".next")) as file:
        number = int(file.read() or "1")
        file.seek(0)
        file.write(str(number + 1))
        file.flush()
        os.fsync(file.fileno())
    path = os.path.join(root, str(number))
    part = os.path.join(root, f".new.{number}")
    durable.folder(part)
    durable.fill(os.path.join(part, "script"), script)
    durable.fill(os.path.join(part, "order.json"), json.dumps(order))
    durable.sync(part)
    os.rename(part, path)
    durable.sync(root)
    return LocalSubmission(path)


def every(root: str) -> list[LocalSubmission]:
    """Return all submissions, in order."""
    try:
        names = [name for name in os.listdir(root) if name.isdigit()]
    except FileNotFoundError:
        return []
    return [LocalSubmission(os.path.join(root, name)) for name in sorted(names, key=int)]


@contextlib.contextmanager
def _locked(path: str) -> Iterator[Any]:
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
