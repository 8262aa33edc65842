"""Files of this machine and of file systems that it has mounted, below folders that are allowed."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import stat
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import ClassVar

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import allow, failures, tree
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing
from pilotage.data.transfer.url import Url

_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Files that a thread lists before others have their turn.
_TURN = 500
#: Files that a thread copies before it can be told to stop.
_TOGETHER = 50


class LocalFiles:
    """Copies from folder to folder."""

    flags: ClassVar[Flags] = Flags(checksum=False, atomic=True, times=True, steady=True)

    def __init__(self, allowed: Allowed) -> None:
        self._allowed = allowed

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there."""
        allow.check(self._allowed, url)
        try:
            facts = await asyncio.to_thread(os.stat, url.path)
            if stat.S_ISDIR(facts.st_mode):
                return TransferListing(url, folder=True, items=_turns(tree.walk(url.path)))
            above, name = url.above
            return TransferListing(above, folder=False, items=_only(tree.item(name, facts)))
        except OSError as error:
            raise failures.of_reading(error) from error

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Copy files; each is seen to stay the same meanwhile."""
        allow.check(self._allowed, base)
        for at in range(0, len(items), _TOGETHER):
            await asyncio.to_thread(_fetch_some, base.path, items[at : at + _TOGETHER], folder)

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Copy files to temporary names, and rename them."""
        allow.check(self._allowed, base, write=True)
        for item in items:
            await asyncio.to_thread(_send, base.path, item, folder)

    async def clear(self, url: Url, aside: Url) -> None:
        """Remove a folder with all that is in it: it is out of sight at once."""
        allow.check(self._allowed, url, write=True)
        allow.check(self._allowed, aside, write=True)
        await asyncio.to_thread(_clear, url.path.rstrip("/"), aside.path.rstrip("/"))

    async def close(self) -> None:
        """Nothing is open."""


async def _turns(items: Iterator[TransferItem]) -> AsyncGenerator[TransferItem, None]:
    """Walk in a thread, a batch of files at a time."""
    while batch := await asyncio.to_thread(_some, items):
        for item in batch:
            yield item
        if len(batch) < _TURN:
            return


async def _only(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item


def _some(items: Iterator[TransferItem]) -> list[TransferItem]:
    return list(itertools.islice(items, _TURN))


def _fetch_some(top: str, items: Sequence[TransferItem], folder: str) -> None:
    for item in items:
        _fetch(top, item, folder)


def _fetch(top: str, item: TransferItem, folder: str) -> None:
    try:
        with paths.opened(top, item.name) as source:
            if tree.item(item.name, os.fstat(source)).mark != item.mark and item.mark:
                raise failures.changed(item.name)
            target = os.open(os.path.join(folder, item.name), _NEW, 0o600)
            try:
                # With holes its length does not tell how much of it has come.
                at = 0 if item.stored >= 0 else min(os.fstat(target).st_size, item.size)
                _copying(source, target, at, item.size)
            finally:
                os.close(target)
            if tree.item(item.name, os.fstat(source)).mark != item.mark and item.mark:
                raise failures.changed(item.name)
    except OSError as error:
        raise failures.of_reading(error) from error


def _clear(path: str, aside: str) -> None:
    try:
        for _ in range(2):
            # What an earlier process has put aside and not removed goes first.
            if os.path.isdir(aside) and not os.path.islink(aside):
                shutil.rmtree(aside)
            with contextlib.suppress(FileNotFoundError):
                os.rename(path, aside)
    except OSError as error:
        raise failures.of_writing(error) from error


def _copying(source: int, target: int, at: int, size: int) -> None:
    try:
        tree.copy(source, target, at, size)
    except OSError as error:
        # The disk that is written to may be full; nothing else is likely with open files.
        raise failures.of_writing(error) from error


def _send(top: str, item: TransferItem, folder: str) -> None:
    try:
        os.makedirs(top, exist_ok=True)
        path = paths.inside(top, item.name)
        aside = durable.hidden(path)
        with paths.opened(folder, item.name) as source:
            mode = 0o777 if item.executable else 0o666
            target = os.open(aside, _NEW | os.O_EXCL, mode)
            try:
                _copying(source, target, 0, item.size)
                if item.mtime:
                    os.utime(target, ns=(item.mtime, item.mtime))
                durable.sync_file(target)
                durable.rename(aside, path)
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(aside)
                raise
            finally:
                os.close(target)
    except PermissionError as error:
        raise errors.Denied(f"cannot write below {text.show(top)}: {error.strerror}") from error
    except OSError as error:
        raise failures.of_writing(error) from error
