"""What jobs have left goes out once more, when somebody has lost it and asks for it.

The wish is in the store with the answer to it, and is forgotten when what came of it is written to
be told: an agent that is killed meanwhile begins again.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shutil
from collections.abc import Callable, Sequence

import anyio
from anyio.to_thread import run_sync

from pilotage.agent import prepare, records, staging
from pilotage.agent.data import FOLDER
from pilotage.agent.registry import Registry
from pilotage.agent.settings import Settings
from pilotage.agent.staging import Errand, Lanes
from pilotage.base import errors
from pilotage.batch.connection import SiteConnection
from pilotage.bus.model import Job, Left
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.store import Db, Writer

#: Seconds between two looks at the least, however much is written.
_LOOK_S = 0.2


class Resends:
    """Sends outputs of jobs that are done once more."""

    def __init__(
        self, remote: SiteConnection, writer: Writer, open_reader: Callable[[], Db],
        registry: Registry, settings: Callable[[], Settings], lanes: Lanes,
        now: Callable[[], float], home: Callable[[str], HubAddress | None] = lambda _: None,
    ) -> None:  # fmt: skip
        """Share the lanes of all transfers; nothing happens before `run`."""
        self._remote = remote
        self._writer = writer
        self._open_reader = open_reader
        self._registry = registry
        self._settings = settings
        self._lanes = lanes
        self._now, self._home = now, home
        self._busy: set[int] = set()
        self._new = asyncio.Event()

    async def run(self) -> None:
        """Send until cancelled; while nobody asks, nothing is done."""
        db, loop = self._open_reader(), asyncio.get_running_loop()
        wake = functools.partial(loop.call_soon_threadsafe, self._new.set)
        with contextlib.closing(db), self._writer.telling(wake):
            async with anyio.create_task_group() as tasks:
                while True:
                    self._new.clear()
                    for job in records.asked_again(db):
                        if job not in self._busy:
                            self._busy.add(job)
                            tasks.start_soon(self._one, job)
                    await self._new.wait()
                    await anyio.sleep(_LOOK_S)

    async def _one(self, number: int) -> None:
        left: Sequence[Left] = ()
        why = ""
        try:
            left = await self._send(number)
        except errors.PilotageError as error:
            why = f"what it has left cannot be sent again: {error.message}"
        except OSError as error:
            why = f"what it has left cannot be sent again: {error.strerror}"
        note = functools.partial(
            records.sent_again, job=number, what=left, why=why, now=self._now()
        )
        await self._writer.run(note)
        self._busy.discard(number)

    async def _send(self, number: int) -> Sequence[Left]:
        job, attempt, state, user = await self._writer.run(functools.partial(_asked, number=number))
        if state is not State.DONE:
            raise errors.Conflict(f"it is {state} now")
        app = await run_sync(self._registry.find, job.application)
        prepare.check_outputs(app, job)
        key = f"{number}.{attempt}"
        folder = f"{(await self._remote.ready()).root}/{FOLDER}/{key}"
        if not await run_sync(os.path.isdir, folder):
            raise errors.NotFound("its folder is not there any more")
        errand = Errand(
            app=app, job=job, key=key, folder=folder, keys=self._settings().credentials,
            home=self._home(user),
        )  # fmt: skip
        beside = f"{folder}.out"
        try:
            return await staging.send(errand, beside, self._lanes, again=True, anew=True)
        finally:
            with anyio.CancelScope(shield=True):
                await run_sync(functools.partial(shutil.rmtree, beside, ignore_errors=True))


def _asked(db: Db, number: int) -> tuple[Job, int, State, str]:
    """Read what was asked for, how far it is, and whose it is."""
    found = jobs.get(db, number)
    user = records.owner_of(db, number) or ""
    return records.message(db, number), found.attempt, found.state, user
