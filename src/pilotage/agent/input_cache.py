"""A cache of inputs by content, so that jobs with the same inputs fetch them once.

A large file is shared, read-only, by all jobs that read it. Small files, and files that a job
overwrites, are copied. A job that changes a shared file all the same changes its modification time,
which is in the name: no later job gets it. Each sender has files of its own, so that to know a
digest is not enough to get the file of another user.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
import shutil
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import anyio
import msgspec

from pilotage.base import durable
from pilotage.data.transfer.model import TransferItem

#: Beside the folders of jobs.
FOLDER = "contents"
#: Files of at least this many bytes are shared.
SHARED = 1 << 20
_NAME = re.compile(r"([0-9a-f]{64})-([0-9a-f]+)-([0-9a-f]+)")


class _Kept(NamedTuple):
    path: str
    size: int
    mtime: int


class CacheTurn:
    """The right to fetch some content; it is released while waiting for a server."""

    def __init__(self, lock: anyio.Lock) -> None:
        self._lock = lock
        self._mine = False

    async def take(self) -> None:
        """Wait for the turn."""
        await self._lock.acquire()
        self._mine = True

    def leave(self) -> None:
        """Release the turn."""
        if self._mine:
            self._mine = False
            self._lock.release()


class InputCache:
    """Files that jobs of this site have read, up to a limit; threads may share it."""

    def __init__(self, most: Callable[[], int]) -> None:
        """Take how many bytes are kept, which may change."""
        self._most = most
        self._folder = ""
        #: By key, least recently used first.
        self._known: OrderedDict[str, _Kept] = OrderedDict()
        self._lock = threading.Lock()
        self._turns: dict[str, tuple[anyio.Lock, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[CacheTurn]:
        """Fetch some content alone: others that want the same wait, and find it in the cache."""
        lock, users = self._turns.get(key, (anyio.Lock(), 0))
        self._turns[key] = (lock, users + 1)
        turn = CacheTurn(lock)
        try:
            await turn.take()
            yield turn
        finally:
            turn.leave()
            lock, users = self._turns.pop(key)
            if users > 1:
                self._turns[key] = (lock, users - 1)

    def of(self, jobs: str, user: str, *, copy: bool) -> UserCache:
        """Return the cache of a sender beside the folders of jobs.

        With `copy`, files are copied instead of shared.
        """
        with self._lock:
            if self._folder != os.path.join(jobs, FOLDER):
                self._folder = os.path.join(jobs, FOLDER)
                self._known = _load(self._folder)
        return UserCache(self, user, copy)

    def take(self, key: str, path: str, *, executable: bool | None, copy: bool) -> int:
        """Put content in a place; return its bytes, and -1 if it is not here.

        Without `executable` it may be run if the file that is kept may be.
        """
        with self._lock:
            found = self._known.get(key)
            if found is None:
                return -1
            self._known.move_to_end(key)
        try:
            with open(found.path, "rb") as source:
                facts = os.fstat(source.fileno())
                if (facts.st_size, facts.st_mtime_ns) != (found.size, found.mtime):
                    raise FileNotFoundError
                kept = bool(facts.st_mode & 0o100)
                runs = kept if executable is None else executable
                _place(found.path, path, runs, share=runs == kept and not copy)
        except OSError:
            # It was changed or removed: it is fetched again.
            self._drop(key)
            return -1
        return found.size

    def keep(self, key: str, path: str, *, executable: bool, copy: bool) -> None:
        """Keep a file that has arrived and is on disk; one that cannot be kept is not."""
        size = os.stat(path).st_size
        if size > self._most() or key in self._known:
            return
        part = os.path.join(self._folder, f"{secrets.token_hex(8)}.part")
        with contextlib.suppress(OSError):
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            _place(path, part, executable, share=not copy)
            facts = os.stat(part)
            name = f"{key}-{size:x}-{facts.st_mtime_ns:x}"
            kept = _Kept(os.path.join(self._folder, name), size, facts.st_mtime_ns)
            os.rename(part, kept.path)
            with self._lock:
                self._known[key] = kept
        with contextlib.suppress(OSError):
            os.unlink(part)
        self._evict()

    def _evict(self) -> None:
        with self._lock:
            total = sum(one.size for one in self._known.values())
            gone = []
            while self._known and total > self._most():
                _, one = self._known.popitem(last=False)
                total -= one.size
                gone.append(one.path)
        for path in gone:
            with contextlib.suppress(OSError):
                os.unlink(path)

    def _drop(self, key: str) -> None:
        with self._lock:
            found = self._known.pop(key, None)
        if found is not None:
            with contextlib.suppress(OSError):
                os.unlink(found.path)


class UserCache(msgspec.Struct, frozen=True):
    """The cache as one sender sees it; see `data.transfer.fetch.Known`."""

    contents: InputCache
    #: The sender of the job.
    user: str
    #: Whether the job gets files of its own, since it writes over them.
    copy: bool

    def key(self, sha256: str) -> str:
        """Name some content of this sender; no other sender has the same name for it."""
        return hashlib.sha256(f"{sha256} {self.user}".encode()).hexdigest()

    def take(self, item: TransferItem, path: str) -> bool:
        """Put a file in its place, if it is here."""
        key = self.key(item.sha256)
        return self.contents.take(key, path, executable=item.executable, copy=self.copy) >= 0

    def take_as_kept(self, sha256: str, path: str) -> int:
        """Put a file in its place with the mode that it is kept with; return its bytes, or -1."""
        return self.contents.take(self.key(sha256), path, executable=None, copy=self.copy)

    def keep(self, item: TransferItem, path: str) -> None:
        """Keep a file that has arrived."""
        key = self.key(item.sha256)
        self.contents.keep(key, path, executable=item.executable, copy=self.copy)


def _place(source: str, target: str, executable: bool, *, share: bool) -> None:  # noqa: FBT001
    """Give a file another name, or copy it where it is small or that cannot be done."""
    part = f"{target}.{secrets.token_hex(4)}"
    try:
        if not (share and os.stat(source).st_size >= SHARED and _join(source, part, executable)):
            shutil.copyfile(source, part)
            if executable:
                os.chmod(part, os.stat(part).st_mode | 0o100)
            durable.sync_file(part)
        os.rename(part, target)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(part)


def _join(source: str, target: str, executable: bool) -> bool:  # noqa: FBT001
    try:
        os.link(source, target)
        os.chmod(target, 0o555 if executable else 0o444)
    except OSError:
        return False
    return True


def _load(folder: str) -> OrderedDict[str, _Kept]:
    """List files that an earlier process has cached, least recently used first."""
    found: list[tuple[float, str, _Kept]] = []
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            told = _NAME.fullmatch(entry.name)
            if told is None:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
                continue
            facts = entry.stat(follow_symlinks=False)
            kept = _Kept(entry.path, int(told[2], 16), int(told[3], 16))
            found.append((facts.st_ctime, told[1], kept))
    return OrderedDict((key, kept) for _, key, kept in sorted(found))
