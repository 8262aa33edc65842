"""Removal of jobs that ended long ago: rows first, files after.

A crash in between leaves only files, which the next sweep finds: a folder is removed when its job
is no longer in the store, so the folder of a live job never is.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import secrets
import shutil
from collections.abc import Callable
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from pilotage.agent import records
from pilotage.agent.data import FOLDER
from pilotage.agent.settings import KeepTimes, Settings
from pilotage.base import text, units
from pilotage.job import purge
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
#: Longest pause between two sweeps, in seconds: each reads all jobs.
_LOOK_S = 600.0
#: Sweeps after which leftover files are searched for although no job was removed.
_SWEEP = 6
_AT_ONCE = 500
_TRASH = ".trash"
#: Names of files of an attempt: its folder, and files beside it.
_NAME = re.compile(r"([0-9]+)\.[0-9]+(\.(in|out|json|lock|part))?")


class Cleanup:
    """Removes jobs that ended long ago, and their files."""

    def __init__(
        self, state: Path, writer: Writer, settings: Callable[[], Settings],
        now: Callable[[], float], root: Callable[[], str | None],
    ) -> None:  # fmt: skip
        """Take the state folder of the agent, and the folder of its jobs while that is known."""
        self._state = state
        self._writer = writer
        self._settings = settings
        self._now = now
        self._root = root

    async def run(self) -> None:
        """Sweep periodically until cancelled."""
        left = 0
        while True:
            if await self.forget() or left <= 0:
                left = _SWEEP if await self.sweep() else 0
            left -= 1
            await anyio.sleep(_pause(self._settings().keep))

    async def forget(self) -> int:
        """Remove jobs that were kept for long enough; return their number."""
        keep, now = self._settings().keep, self._now()
        before = now - units.seconds(keep.refused)
        await self._writer.run(lambda db: records.forget_refused(db, before))
        settings = self._settings()
        if "" not in settings.carriers:
            # Messages for hubs that are no longer dialled.
            old = now - units.seconds(keep.failed)
            users = settings.hub_users
            await self._writer.run(lambda db: records.forget_undeliverable(db, users, old))
        count = 0
        while found := await self._writer.run(lambda db: _forget(db, keep, now)):
            jobs, folders = found
            count += jobs
            await run_sync(purge.remove, folders)
        return count

    async def sweep(self) -> bool:
        """Remove files of jobs that are not in the store; return whether all were checked."""
        root = self._root()
        places = [self._state / FOLDER, *([Path(root) / FOLDER] if root else [])]
        for place in places:
            for names in await run_sync(_names, place):
                numbers = list({number for number, _ in names})
                gone = await self._writer.run(functools.partial(_gone, numbers=numbers))
                litter = [name for number, name in names if number in gone]
                await run_sync(_discard, place, litter)
            await run_sync(_empty, place / _TRASH)
        return root is not None


def _pause(keep: KeepTimes) -> float:
    """Return the pause between checks, short against the shortest retention."""
    shortest = min(units.seconds(one) for one in (keep.done, keep.failed, keep.refused))
    return min(_LOOK_S, max(1.0, shortest / 10))


def _forget(db: Db, keep: KeepTimes, now: float) -> tuple[int, list[str]] | None:
    done, failed = now - units.seconds(keep.done), now - units.seconds(keep.failed)
    rows = db.rows("edge_purgeable", done=done, failed=failed, most=_AT_ONCE)
    found = [int(row[0]) for row in rows]
    return (len(found), purge.drop(db, found)) if found else None


def _gone(db: Db, numbers: list[int]) -> set[int]:
    return {int(row[0]) for row in db.rows("edge_gone", ids=text.dump(numbers))}


def _names(place: Path) -> list[list[tuple[int, str]]]:
    """List files of attempts in batches."""
    try:
        found = sorted(os.listdir(place))
    except FileNotFoundError:
        return []
    known = [(int(match[1]), name) for name in found if (match := _NAME.fullmatch(name))]
    return [known[at : at + _AT_ONCE] for at in range(0, len(known), _AT_ONCE)]


def _discard(place: Path, names: list[str]) -> None:
    """Move files to the trash folder; removing them may take long."""
    if not names:
        return
    trash = place / _TRASH
    trash.mkdir(mode=0o700, exist_ok=True)
    for name in names:
        one, target = place / name, trash / f"{name}.{secrets.token_hex(4)}"
        try:
            try:
                one.rename(target)
            except PermissionError:
                # A folder without permissions cannot even be moved.
                one.chmod(0o700)
                one.rename(target)
        except FileNotFoundError:
            continue
        except OSError as error:
            # A failure must not keep the others.
            _log.warning("%s cannot be removed: %s", one, error.strerror)


def _empty(trash: Path) -> None:
    """Empty the trash folder; no link is followed."""
    if not trash.is_dir():
        return
    for one in list(trash.iterdir()):
        if one.is_dir() and not one.is_symlink():
            shutil.rmtree(one, ignore_errors=True)
            if one.exists():
                with contextlib.suppress(OSError):
                    _open(one)
                shutil.rmtree(one, ignore_errors=True)
        else:
            one.unlink(missing_ok=True)


def _open(top: Path) -> None:
    """Make folders accessible that a payload has made inaccessible."""
    top.chmod(0o700)
    for folder, folders, _ in os.walk(top):
        for name in folders:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
