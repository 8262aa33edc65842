"""SHA-256 of files here, computed once for each version."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
import hashlib
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TypeVar

from pilotage.base import errors, text
from pilotage.data.stage.model import Digest, Hash, Key
from pilotage.data.transfer.version import Version

T = TypeVar("T")

_CHUNK = 1 << 20
_THREADS = 4
_ATTEMPTS = 3
#: Within this time a file may change again unnoticed: clocks of file systems are coarse.
_RACY_NS = 100_000_000


class Changed(Exception):
    """A file is no longer what it was."""


class Digests:
    """Caches digests of files; concurrent callers share one computation."""

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._known: OrderedDict[Key, str] = OrderedDict()
        self._under_way: dict[Key, concurrent.futures.Future[str]] = {}
        self._pool = concurrent.futures.ThreadPoolExecutor(_THREADS, "digest")

    async def versions(self, paths: Sequence[str]) -> list[Key]:
        """Look which versions files have now; raise `NotFound` for one that is not there."""
        look = asyncio.get_running_loop().run_in_executor
        return await look(self._pool, lambda: [_key(path) for path in paths])

    def known(self, key: Key) -> Digest | None:
        """Return the sum of a version if it was computed already."""
        found = self._known.get(key)
        if found is None:
            return None
        self._known.move_to_end(key)
        return Digest(found, key.version.size)

    def learn(self, key: Key, sha256: str) -> None:
        """Remember the sum of a version."""
        self._known[key] = sha256
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    async def of(self, path: str) -> Digest:
        """Hash a file as it is now; raise `Conflict` if it changes all the time."""
        for _ in range(_ATTEMPTS):
            (key,) = await self.versions([path])
            with contextlib.suppress(Changed):
                return await self.of_version(key)
        raise errors.Conflict(
            f"{text.show(path)} changes while it is read",
            hint="write it elsewhere and rename it when it is complete",
        )

    async def of_version(self, key: Key) -> Digest:
        """Hash one version of a file; raise `Changed` if it is gone."""
        if known := self.known(key):
            return known
        sha256 = await asyncio.shield(asyncio.wrap_future(self.begin(key)))
        return Digest(sha256, key.version.size)

    def begin(self, key: Key) -> concurrent.futures.Future[str]:
        """Begin to hash a version, unless that is under way; to be called in the loop's thread."""
        known = self.known(key)
        if known is not None:
            done: concurrent.futures.Future[str] = concurrent.futures.Future()
            done.set_result(known.sha256)
            return done
        if key not in self._under_way:
            loop = asyncio.get_running_loop()
            # Asked before it is read: what is written while we read must not go unnoticed.
            end = functools.partial(self._end, key, settled(key.version))
            future = self._pool.submit(_hash, key)
            self._under_way[key] = future
            future.add_done_callback(lambda _: _later(loop, end))
        return self._under_way[key]

    def close(self) -> None:
        """Let the threads go; sums that are being computed come to nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def compare(self, key: Key, decide: Callable[[Hash], T]) -> T:
        """Make a decision that needs hashes of stretches of a file, in a thread."""
        look = asyncio.get_running_loop().run_in_executor
        return await look(self._pool, _compare, key, decide)

    def _end(self, key: Key, sure: bool) -> None:  # noqa: FBT001 - bound where it is decided
        future = self._under_way.pop(key)
        if sure and not future.cancelled() and future.exception() is None:
            self.learn(key, future.result())


def settled(version: Version) -> bool:
    """Return whether a change from now on would show."""
    return time.time_ns() - max(version.modified, version.changed) > _RACY_NS


def _later(loop: asyncio.AbstractEventLoop, act: Callable[[], None]) -> None:
    # The loop may have ended before the thread.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act)


def _key(path: str) -> Key:
    try:
        facts = os.stat(path)
    except OSError as error:
        raise errors.NotFound(f"cannot read {text.show(path)}: {error.strerror}") from error
    if not stat.S_ISREG(facts.st_mode):
        raise errors.UsageError(f"{text.show(path)} is not a file")
    return Key(path, Version.of(facts))


def _hash(key: Key) -> str:
    return _compare(key, lambda ours: ours(0, key.version.size))


def _compare(key: Key, decide: Callable[[Hash], T]) -> T:
    try:
        with open(key.path, "rb", buffering=0) as file:
            if Version.of(os.fstat(file.fileno())) != key.version:
                raise Changed
            decided = decide(functools.partial(_stretch, file.fileno(), bytearray(_CHUNK)))
        after = Version.of(os.stat(key.path))
    except OSError as error:
        raise Changed from error
    if after != key.version:
        raise Changed
    return decided


def _stretch(file: int, buffer: bytearray, at: int, length: int) -> str:
    """Hash a stretch of a file."""
    digest = hashlib.sha256()
    while length:
        got = os.preadv(file, [memoryview(buffer)[: min(length, _CHUNK)]], at)
        if not got:
            raise Changed
        digest.update(memoryview(buffer)[:got])
        at, length = at + got, length - got
    return digest.hexdigest()
