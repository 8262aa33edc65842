"""Files that have arrived: checked, made durable, and put in their places."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import stat
from collections.abc import Sequence

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import failures, plan, tree
from pilotage.data.transfer.model import UNKNOWN, TransferItem
from pilotage.data.transfer.plan import ExistingFile, FileAction, FreeSpace

#: Waits for a disk overlap, and a journal takes many at once.
_FLUSHERS = 8
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


def settle(items: Sequence[TransferItem], part: str, target: str) -> None:
    """Put files that are complete in their places; raise if one of them is not right.

    Those before and after it are in their places all the same: they need not come again.
    """
    if len(items) == 1:
        # There is nothing that its wait for the disk could overlap with.
        _settle_one(items[0], part, target)
        return
    failed: list[BaseException] = []
    folders = set()
    with concurrent.futures.ThreadPoolExecutor(_FLUSHERS, "settle") as pool:
        done = [pool.submit(_one, item, part, target) for item in items]
        for item, future in zip(items, done, strict=True):
            error = future.exception()
            if error is not None:
                failed.append(error)
            else:
                folders.add(os.path.dirname(os.path.join(target, item.name)))
        flushed = [pool.submit(durable.sync_folder, folder) for folder in folders]
        failed += [error for one in flushed if (error := one.exception())]
    for error in failed:
        if isinstance(error, OSError):
            raise failures.of_writing(error) from error
        raise error


def _settle_one(item: TransferItem, part: str, target: str) -> None:
    try:
        _one(item, part, target)
        durable.sync_folder(os.path.dirname(os.path.join(target, item.name)))
    except OSError as error:
        raise failures.of_writing(error) from error


def _one(item: TransferItem, part: str, target: str) -> None:
    here = os.path.join(part, item.name)
    try:
        file = os.open(here, _OPEN)
    except FileNotFoundError as error:
        raise errors.Damaged(f"{text.show(item.name)} has not arrived") from error
    try:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise errors.Denied(f"{text.show(item.name)} did not arrive as a file")
        _check(item, file, facts.st_size, here)
        if item.mtime:
            os.utime(file, ns=(item.mtime, item.mtime))
        mode = 0o777 if item.executable else 0o666
        os.fchmod(file, mode & ~_umask())
        durable.sync_file(file)
    finally:
        os.close(file)
    path = paths.inside(target, item.name)
    try:
        os.rename(here, path)
    except (IsADirectoryError, NotADirectoryError) as error:
        shown = text.show(path)
        raise errors.Conflict(f"{shown} is a folder, but a file must be put there") from error


def _check(item: TransferItem, file: int, size: int, here: str) -> None:
    name = text.show(item.name)
    if item.size not in (UNKNOWN, size):
        if size > item.size:
            # It cannot be resumed.
            os.unlink(here)
        raise errors.Damaged(f"{name} has {size} bytes instead of {item.size}")
    if item.sha256 and (found := tree.digest(file)) != item.sha256:
        os.unlink(here)
        raise errors.Damaged(f"{name} has the SHA-256 {found} instead of {item.sha256}")


def _umask() -> int:
    """Read the mask of new files; Python can only set it, the kernel also tells."""
    with contextlib.suppress(OSError, ValueError), open("/proc/self/status", "rb") as file:
        for line in file:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    return 0o077


def look(item: TransferItem, target: str) -> FileAction:
    """Compare a file with what has its name here."""
    path = os.path.join(target, item.name)
    try:
        facts = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return plan.step(item, None)
    there = ExistingFile(facts.st_size, facts.st_mtime_ns, regular=stat.S_ISREG(facts.st_mode))
    step = plan.step(item, there)
    if step is not FileAction.COMPARE:
        return step
    with paths.opened(target, item.name) as file:
        same = tree.digest(file) == item.sha256
    return FileAction.HAVE if same else FileAction.CONFLICT


def arrived(item: TransferItem, part: str) -> int:
    """Return how many bytes of a file an earlier attempt has left."""
    try:
        return min(os.lstat(os.path.join(part, item.name)).st_size, max(0, item.size))
    except OSError:
        return 0


def room(where: str) -> FreeSpace:
    """Return the free space of a file system."""
    facts = os.statvfs(where)
    files = facts.f_favail if facts.f_files else None
    return FreeSpace(facts.f_bavail * facts.f_frsize, files)
