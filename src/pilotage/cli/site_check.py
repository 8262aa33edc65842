"""`pilotage site check`: walk through all that a site needs, one thing after the other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.batch import files
from pilotage.batch.connection import SiteConnection
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.choose import choose
from pilotage.batch.shell.model import Shell
from pilotage.batch.shell.ssh import SshShell
from pilotage.batch.shell.words import TroubleKind
from pilotage.batch.system import known
from pilotage.batch.system.model import BatchCommand, BatchError, BatchSystem
from pilotage.batch.system.tools import Tools
from pilotage.cli import site_heard, site_trial
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.cli.doctor import Check, report
from pilotage.cli.live import Board
from pilotage.cli.site import find
from pilotage.cli.site_state import look

_LEAST_ROOM = 1 << 30
#: Clocks that differ by more make stories hard to read.
_SKEW_S = 5.0
_RATE_BYTES = 64 << 20
#: The exit status of a shell that found no program.
_NOT_FOUND = 127
_PATH = "`path` in the site's file says where its programs are"
#: What only some jobs need, and which.
_EXTRAS = (
    (("podman", "apptainer"), "containers", "jobs with an `image` cannot run"),
    (("sshfs",), "mounts", "jobs whose data is mounted cannot run"),
)


def check(
    name: Annotated[str, Parameter(help="Name of the site.")],
    /,
    *,
    run: Annotated[bool, Parameter(help="Also have a tiny job run, and wait for it.")] = False,
    patience: Annotated[str, Parameter(help="How long `--run` waits, else 5m.")] = "5m",
    rate: Annotated[bool, Parameter(help="Also measure how fast data gets there.")] = False,
    at: Common = HERE,
) -> Answer:
    """Look at all that a site needs, and say what to do about what is missing."""
    with at.open() as project:
        one = find(look(project).sites, name)
        if one.kind != "batch":
            if run or rate:
                message = f"this hub does not reach {name} itself: no `--run` and no `--rate`"
                raise errors.UsageError(message, hint=f"`pilotage site check {name}` alone")
            return report(site_heard.check(project, one))
        site = files.read(project.root, name)
        walk = _Walk(name, site, project.state, units.seconds(patience) if run else 0.0, rate=rate)
    return report(asyncio.run(_all(walk, name)))


async def _all(walk: _Walk, name: str) -> list[Check]:
    board, found = Board(), list[Check]()
    try:
        async for one in walk.steps():
            found.append(one)
            board.draw([[f"looking at {name}: {one.name} …"]])
    finally:
        board.clear()
    return found


class _Walk:
    """One look at a site."""

    def __init__(
        self, name: str, site: SiteSettings, state: Path, trial: float, *, rate: bool
    ) -> None:
        """Take how long to wait for a job, which is none if it is 0."""
        self._name = name
        self._site = site
        self._place = files.place(site, state)
        self._shell: Shell = choose(name, site, state)
        self._trial = trial
        self._rate = rate

    async def steps(self) -> AsyncIterator[Check]:
        """Look at one thing after the other; what cannot be reached is not looked at."""
        from pilotage.pilot import pack

        if isinstance(self._shell, SshShell):
            try:
                await self._shell.connect()
            except errors.PilotageError as error:
                for one in _no_way(self._shell, error):
                    yield one
                return
            yield Check("host key", "ok", f"the key of {self._site.host} is the known one")
            yield Check("login", "ok", "there is a connection")
        remote = SiteConnection(self._name, self._site, self._shell, pack.archive(), self._place)
        try:
            async for one in self._inside(remote):
                yield one
        except errors.PilotageError as error:
            yield Check("program", "bad", _words(error))
        finally:
            await self._shell.close()

    async def _inside(self, remote: SiteConnection) -> AsyncIterator[Check]:
        asked = time.time()
        async with remote.once():
            for one in _greeting(remote, asked):
                yield one
            if self._site.link == "relay" and isinstance(self._shell, SshShell):
                yield await self._port()
            folder = f"{remote.hello.root}/local"
            batch = known.adapter(
                self._site.batch, program=remote.program, folder=folder, settings=self._site.plugin
            )
            tools = await _tools(remote, batch)
            yield tools
            if tools.verdict == "ok":
                yield await _listing(remote, batch)
                if (queue := await self._queue(remote, batch)) is not None:
                    yield queue
            for programs, what, without in _EXTRAS:
                yield await _extra(remote, programs, what, without)
            if self._rate:
                yield await self._measure()
            if self._trial and tools.verdict == "ok":
                yield await site_trial.try_job(remote, batch, self._trial)

    async def _port(self) -> Check:
        """Find out whether pilots there can reach this machine by our connection."""
        try:
            await self._shell.forward(9)
        except errors.PilotageError as error:
            return Check("ports", "warn", f'{error}: pilots there need `link = "direct"`')
        return Check("ports", "ok", "pilots there reach the hub by our connection")

    async def _queue(self, remote: SiteConnection, batch: BatchSystem) -> Check | None:
        queue, command = self._site.defaults.queue, batch.queue if isinstance(batch, Tools) else ()
        if not queue or not command:
            return None
        try:
            said = await remote.run(BatchCommand((*command, queue)), ask=True)
        except errors.PilotageError as error:
            return Check("queue", "bad", _words(error))
        if said.exit:
            words = (said.err or said.out).strip().partition("\n")[0]
            return Check("queue", "bad", f"{queue}: {words}; change `queue` in the site's file")
        return Check("queue", "ok", f"there is a queue {queue}")

    async def _measure(self) -> Check:
        """Send something that is thrown away there."""
        process = await self._shell.start(["sh", "-c", "cat >/dev/null"])
        began = time.monotonic()
        await process.communicate(bytes(_RATE_BYTES))
        taken = time.monotonic() - began
        rate = units.bytes_for_people(int(_RATE_BYTES / taken))
        return Check("rate", "ok", f"{rate} a second, as far as the login node")


def _no_way(shell: SshShell, error: errors.PilotageError) -> list[Check]:
    """Tell apart a host that is not there, one that is another, and one that knows us not."""
    trouble = shell.nest.trouble()
    words = _words(error)
    match trouble.kind if trouble else TroubleKind.OTHER:
        case TroubleKind.UNKNOWN_KEY | TroubleKind.CHANGED_KEY:
            return [Check("host key", "bad", words)]
        case TroubleKind.LOGIN:
            known_key = Check("host key", "ok", f"the key of {shell.host} is the known one")
            return [known_key, Check("login", "bad", words)]
        case _:
            return [Check("host", "bad", words)]


def _greeting(remote: SiteConnection, asked: float) -> list[Check]:
    """Judge what the program at the login node says of itself."""
    hello = remote.hello
    late = time.time() - asked
    skew = hello.time - asked - late / 2
    far = abs(skew) > _SKEW_S + late
    room = units.bytes_for_people(hello.free)
    shared = "worker nodes must see it, too: `--run` finds out"
    return [
        Check("python", "ok", f"{hello.python} on {hello.host}, as {hello.user}"),
        Check(
            "folder", "ok" if hello.free >= _LEAST_ROOM else "warn",
            f"{hello.root}, {room} free; {shared}",
        ),
        Check(
            "clock", "warn" if far else "ok",
            f"{units.for_people(abs(skew))} {'ahead' if skew > 0 else 'behind'}: set the clocks"
            if far else "like ours",
        ),
    ]  # fmt: skip


async def _tools(remote: SiteConnection, batch: BatchSystem) -> Check:
    try:
        said = await remote.run(batch.version(), ask=True)
    except errors.PilotageError as error:
        return Check(batch.name, "bad", _words(error))
    if said.exit:
        words = (said.err or said.out).strip().partition("\n")[0]
        hint = f": {_PATH}" if said.exit == _NOT_FOUND else ""
        return Check(batch.name, "bad", f"{words}{hint}")
    words = said.out.strip().partition("\n")[0]
    return Check(batch.name, "ok", "our own queue" if batch.name == "local" else words)


async def _listing(remote: SiteConnection, batch: BatchSystem) -> Check:
    began = time.monotonic()
    try:
        found = batch.listed(await remote.run(batch.listing(), ask=True))
    except BatchError as error:
        return Check("listing", "bad", str(error))
    except errors.PilotageError as error:
        return Check("listing", "bad", _words(error))
    taken = units.for_people(time.monotonic() - began)
    return Check("listing", "ok", f"{len(found)} of ours there, in {taken}")


async def _extra(
    remote: SiteConnection, programs: tuple[str, ...], what: str, without: str
) -> Check:
    there = []
    for program in programs:
        with contextlib.suppress(errors.Unavailable):
            said = await remote.run(BatchCommand((program, "--version")), ask=True)
            there += [program] if said.exit == 0 else []
    if there:
        return Check(what, "ok", f"{', '.join(there)} at the login node")
    return Check(what, "warn", f"no {' and no '.join(programs)} at the login node: {without}")


def _words(error: errors.PilotageError) -> str:
    return f"{error}: {error.hint}" if error.hint else str(error)
