"""Report what jobs write to the news folder as soon as it is there."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import re
import select
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, Callable

_NEW = 0x00000080 | 0x00000100  # IN_MOVED_TO | IN_CREATE
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC


class FolderWatch:
    """The kernel's news of a folder, where it has some."""

    def __init__(self, folder: str) -> None:
        self._poll = select.poll()
        self._fd = _watched(folder)
        if self._fd is not None:
            self._poll.register(self._fd, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait for a change, but no longer than so."""
        if self._fd is None:
            time.sleep(seconds)
        elif self._poll.poll(seconds * 1000):
            try:
                os.read(self._fd, 1 << 16)
            except OSError:
                time.sleep(seconds)


def _watched(folder: str) -> int | None:
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        fd = int(libc.inotify_init1(_FLAGS))
        if fd < 0:
            return None
        if libc.inotify_add_watch(fd, os.fsencode(folder), _NEW) < 0:
            os.close(fd)
            return None
    except (OSError, AttributeError):
        return None
    return fd


_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}\.[0-9]{1,9}\.(?:started|ended)")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

#: The pause between two looks: after something has changed, and after long quiet.
_FASTEST_S = 0.05
_SLOWEST_S = 1.0
_SLOWER = 1.2
_AWAKE_S = 10.0
#: A change within the same tick of a file server's clock does not show in the time of a folder.
_TICK_NS = 3_000_000_000
#: Some file systems do not keep the time of folders.
_ANYWAY_S = 10.0
#: What a frame holds at most.
_BULK = 256
_BULK_BYTES = 4 << 20
#: A file that is no news is looked at so often before that is said.
_TRIES = 5


class News:
    """The folder of news, as the hub has been told of it."""

    def __init__(self, folder: str, say: Callable[[dict[str, Any]], None]) -> None:
        self._folder = folder
        self._say = say
        #: Names that the hub has been told of, and those that are no news.
        self._told: set[str] = set()
        self._junk: set[str] = set()
        self._tries: dict[str, int] = {}
        self._seen: tuple[int, int] | None = None
        self._looked = float("-inf")
        self._trouble = ""

    def follow(self, tick: Callable[[], None]) -> None:
        """Report news for ever; `tick` is called periodically."""
        watch = FolderWatch(self._folder)
        changed = time.monotonic()
        pause = _FASTEST_S
        while True:
            if self.look():
                changed = time.monotonic()
            awake = time.monotonic() < changed + _AWAKE_S
            pause = _FASTEST_S if awake else min(pause * _SLOWER, _SLOWEST_S)
            tick()
            watch.wait(pause)

    def look(self) -> bool:
        """Report what is new; return whether there was something."""
        try:
            names = self._names()
            self._trouble = ""
        except OSError as error:
            self._complain(f"cannot look for news in {self._folder}: {error.strerror}")
            return False
        if names is None:
            return False
        self._told &= names
        fresh = sorted(names - self._told - self._junk)
        found = self._read(fresh)
        for bulk in _bulks(found):
            self._say({"news": [item for item, _ in bulk]})
        self._told.update(item["name"] for item, _ in found)
        # Those that could not be read are looked at again.
        if len(found) < len(fresh):
            self._seen = None
        return bool(found)

    def _names(self) -> set[str] | None:
        """List the names of news; nothing if none can have been added."""
        # Opening makes a network file system ask its server; a mere stat may not.
        fd = os.open(self._folder, _FOLDER)
        try:
            facts = os.fstat(fd)
            state = (facts.st_ino, facts.st_mtime_ns)
            now = time.monotonic()
            still = time.time_ns() - facts.st_mtime_ns > _TICK_NS
            if state == self._seen and now < self._looked + _ANYWAY_S:
                return None
            names = {name for name in os.listdir(fd) if self._is_news(name)}
            self._seen = state if still else None
            self._looked = now
            return names
        finally:
            os.close(fd)

    def _is_news(self, name: str) -> bool:
        if _NAME.fullmatch(name):
            return True
        # Names with a dot in front are of files that are being written.
        if not name.startswith(".") and name not in self._junk:
            self._junk.add(name)
            sys.stderr.write(f"{self._folder} holds {name!a}, which is no news\n")
        return False

    def _read(self, names: Iterable[str]) -> list[tuple[dict[str, Any], int]]:
        """Read news that are there, with the sizes of their files."""
        found: list[tuple[dict[str, Any], int]] = []
        for name in names:
            try:
                data = _load(os.path.join(self._folder, name))
                body = json.loads(data)
            except OSError as error:
                # It vanished, or a file server has another one now: the next look shows.
                if error.errno not in (errno.ENOENT, errno.ESTALE):
                    self._give_up(name, error.strerror or str(error), found)
            except (ValueError, RecursionError) as error:
                self._give_up(name, str(error), found)
            else:
                if isinstance(body, dict):
                    self._tries.pop(name, None)
                    found.append(({"name": name, "body": body}, len(data)))
                else:
                    self._give_up(name, "it is no JSON object", found)
        return found

    def _give_up(self, name: str, words: str, found: list[tuple[dict[str, Any], int]]) -> None:
        """Report a file that cannot be read as news, after several attempts."""
        self._tries[name] = self._tries.get(name, 0) + 1
        if self._tries[name] >= _TRIES:
            del self._tries[name]
            found.append(({"name": name, "error": words}, len(words)))

    def _complain(self, words: str) -> None:
        if words != self._trouble:
            self._trouble = words
            sys.stderr.write(f"{words}\n")


def _load(path: str) -> bytes:
    fd = os.open(path, _READ)
    try:
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)


def acknowledge(folder: str, names: Iterable[str]) -> None:
    """Remove news that are safe with the hub."""
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of news")
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))


def start(news: News, tick: Callable[[], None]) -> None:
    """Report news in a thread, beside the requests."""
    threading.Thread(target=news.follow, args=(tick,), name="news", daemon=True).start()


def _bulks(
    found: list[tuple[dict[str, Any], int]],
) -> Iterable[list[tuple[dict[str, Any], int]]]:
    bulk: list[tuple[dict[str, Any], int]] = []
    size = 0
    for item, length in found:
        if bulk and (len(bulk) >= _BULK or size + length > _BULK_BYTES):
            yield bulk
            bulk, size = [], 0
        bulk.append((item, length))
        size += length
    if bulk:
        yield bulk
