"""Files by content, kept on the node for all attempts that read them, up to a limit.

Pilots share a folder: locks keep them from bringing the same content twice and from removing what
another brings. Where a file server has no locks, content may come twice, and is right all the same:
it gets its name when it is whole, and a pilot checks what it has not brought itself.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import stat
import threading
import time
from typing import Callable

from .. import tidy

_BULK = 1 << 20
_GLANCE_S = 0.1
#: Seconds after which part of a file that no pilot writes to is removed.
_STALE_S = 60.0
_LOCK, _PART = ".lock", ".part"
#: What is there is counted whenever a pilot has brought this part of the limit.
_PARTS = 8


class UnsafeError(Exception):
    """A folder that another user could write to."""


def shared(folder: str) -> str:
    """Make a folder for a cache, and return its real path; complain if others may write to it."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.realpath(folder)
    found, top = os.lstat(path), path
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o022:
        raise UnsafeError(f"another user may write to {path}: `chmod go-w`, or choose another")
    while top != "/":
        top = os.path.dirname(top)
        above = os.lstat(top)
        # Who may rename a folder may put another in its place; in /tmp only its owner may.
        open_to_all = above.st_mode & 0o022 and not above.st_mode & stat.S_ISVTX
        if open_to_all or above.st_uid not in (0, os.geteuid()):
            raise UnsafeError(f"another user may replace {path}: {top} belongs to others, too")
    return path


class Cache:
    """The cache: files that this pilot uses are kept. Threads and pilots share it."""

    def __init__(self, folder: str, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        #: Bytes in it, as far as this pilot knows, and those that it brought since it counted.
        self._total, self._fresh = limit + 1, 0
        #: How content looked when this pilot found it right.
        self._known: dict[str, tuple[int, int, int]] = {}
        #: How many attempts use each, and who holds the lock of what is being brought.
        self._users: dict[str, int] = {}
        self._coming: dict[str, int] = {}
        self._changed = threading.Condition()
        self._alive = self._stay()
        # Pilots before this one may have left more than the limit, and some of it in part.
        with self._changed:
            self._evict()

    def path(self, digest: str) -> str:
        """Return where content is, or would be."""
        return os.path.join(self._folder, digest[:2], digest)

    def use(self, digest: str, check: Callable[[], None]) -> bool:
        """Keep content from being removed; return whether it is here, else the caller brings it.

        Who asks for what another brings waits for that; `check` may raise meanwhile.
        """
        with self._changed:
            while digest in self._coming:
                check()
                self._changed.wait(0.5)
            self._users[digest] = self._users.get(digest, 0) + 1
            if self._is_known(digest):
                return True
            self._coming[digest] = -1
        with contextlib.ExitStack() as undo:
            undo.callback(self.fail, digest)
            self._coming[digest] = self._lock(digest, check)
            found = self._is_right(digest, check)
            undo.pop_all()
        if found:
            with self._changed:
                self._came(digest)
        return found

    def keep(self, digest: str, size: int) -> None:
        """Note that content was brought."""
        with self._changed:
            self._known[digest] = _facts(self.path(digest))
            self._total += size
            self._fresh += size
            _touch(self.path(digest) + _LOCK)
            self._came(digest)
            self._evict()

    def fail(self, digest: str) -> None:
        """Note that content could not be brought; the next who asks for it may try."""
        with self._changed:
            self._let_go(digest)
            self._came(digest)

    def release(self, digest: str) -> None:
        """Note that an attempt uses content no more."""
        with self._changed:
            self._let_go(digest)
            self._evict()

    def drop(self, digest: str) -> None:
        """Forget content that is not what it was any more."""
        with self._changed:
            self._known.pop(digest, None)
            _unlink(self.path(digest))

    def close(self, *, remove: bool) -> None:
        """Leave; if `remove`, the last pilot removes all of it."""
        with contextlib.suppress(OSError):
            fcntl.flock(self._alive, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if remove:
                tidy.remove(self._folder)
        os.close(self._alive)

    # -- pilots ----------------------------------------------------------------------------------

    def _stay(self) -> int:
        """Mark this pilot as a user of the cache, for other pilots."""
        path = os.path.join(self._folder, "pilots")
        while True:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            try:
                held = _open(path)
            except FileNotFoundError:
                # The last pilot removes it just now.
                continue
            with contextlib.suppress(OSError):
                fcntl.flock(held, fcntl.LOCK_SH)
            if _is_there(held, path):
                return held
            os.close(held)

    def _lock(self, digest: str, check: Callable[[], None]) -> int:
        """Wait until no other pilot brings or removes some content."""
        path = self.path(digest) + _LOCK
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        while (held := _try_lock(path)) < 0:
            check()
            time.sleep(_GLANCE_S)
        return held

    # -- content ---------------------------------------------------------------------------------

    def _is_known(self, digest: str) -> bool:
        """Return whether content is unchanged since this pilot saw it; note that it is used."""
        try:
            same = self._known.get(digest) == _facts(self.path(digest))
            if same:
                _touch(self.path(digest) + _LOCK)
        except FileNotFoundError:
            return False
        return same

    def _is_right(self, digest: str, check: Callable[[], None]) -> bool:
        """Look whether another pilot has brought some content, and whether it is that."""
        total = hashlib.sha256()
        try:
            with open(self.path(digest), "rb", buffering=0) as file:
                while data := file.read(_BULK):
                    check()
                    total.update(data)
                if total.hexdigest() == digest:
                    self._known[digest] = _facts(file.fileno())
                    _touch(self.path(digest) + _LOCK)
                    return True
        except FileNotFoundError:
            return False
        self.drop(digest)
        return False

    def _came(self, digest: str) -> None:
        held = self._coming.pop(digest, -1)
        if held >= 0:
            os.close(held)
        self._changed.notify_all()

    def _let_go(self, digest: str) -> None:
        left = self._users[digest] - 1
        if left:
            self._users[digest] = left
        else:
            del self._users[digest]

    def _evict(self) -> None:
        """Remove what was used longest ago, of all pilots, until the rest is within the limit."""
        # Others bring something, too: so it is counted again from time to time.
        if self._total <= self._limit and self._fresh <= self._limit // _PARTS:
            return
        lock = _try_lock(os.path.join(self._folder, "evict"))
        if lock < 0:
            # Another pilot is at it.
            return
        try:
            found = sorted(self._entries())
            self._total, self._fresh = sum(size for _, size, _ in found), 0
            for _, size, digest in found:
                if self._total <= self._limit:
                    return
                if digest not in self._users and self._remove(digest):
                    self._total -= size
        finally:
            os.close(lock)

    def _entries(self) -> list[tuple[float, int, str]]:
        """List content with when it was used last and its size; what is stale is removed."""
        entries = []
        for folder in os.listdir(self._folder):
            for name in _names(os.path.join(self._folder, folder)):
                path = os.path.join(self._folder, folder, name)
                with contextlib.suppress(FileNotFoundError):
                    if name.endswith(_PART):
                        self._clear(path, name.partition(".")[0])
                    elif not name.endswith(_LOCK):
                        entries.append((_used(path), os.stat(path).st_size, name))
        return entries

    def _clear(self, part: str, digest: str) -> None:
        """Remove what a pilot has left that was killed while it brought some content."""
        if digest in self._coming or time.time() - os.stat(part).st_mtime < _STALE_S:
            return
        held = _try_lock(self.path(digest) + _LOCK)
        if held >= 0:
            _unlink(part)
            os.close(held)

    def _remove(self, digest: str) -> bool:
        path = self.path(digest)
        held = _try_lock(path + _LOCK)
        if held < 0:
            return False
        self._known.pop(digest, None)
        # A process that waits for the lock finds that it is gone, and makes another.
        for one in (path, path + _LOCK):
            _unlink(one)
        os.close(held)
        return True


def part(path: str) -> str:
    """Name the file that content is written to before it is whole; no other pilot's is the same."""
    return f"{path}.{os.urandom(6).hex()}{_PART}"


def _try_lock(path: str) -> int:
    """Open a file and lock it; below 0 if another has it."""
    while True:
        held = _open(path)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            return -1
        except OSError:
            # This file server has no locks.
            return held
        if _is_there(held, path):
            return held
        os.close(held)


def _open(path: str) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


def _is_there(held: int, path: str) -> bool:
    """Return whether a file that is open still has its name."""
    try:
        return os.path.samestat(os.fstat(held), os.lstat(path))
    except FileNotFoundError:
        return False


def _facts(path: str | int) -> tuple[int, int, int]:
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns


def _touch(path: str) -> None:
    """Note that content is used now; the kernel's own time is coarse."""
    with contextlib.suppress(FileNotFoundError):
        os.utime(path, ns=(time.time_ns(),) * 2)


def _used(path: str) -> float:
    try:
        return os.stat(path + _LOCK).st_mtime
    except FileNotFoundError:
        return os.stat(path).st_mtime


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except (NotADirectoryError, FileNotFoundError):
        return []


def _unlink(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
