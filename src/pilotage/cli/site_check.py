"""`pilotage site check`: check the prerequisites of a site one by one."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import shlex
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated

import anyio
from cyclopts import Parameter

from pilotage.base import errors, units
from pilotage.batch import files
from pilotage.batch.connection import SiteConnection
from pilotage.batch.model import SiteSettings
from pilotage.batch.shell.choose import choose
from pilotage.batch.shell.model import Shell
from pilotage.batch.shell.ssh import SshShell
from pilotage.batch.shell.words import TroubleKind
from pilotage.batch.submission import new_key
from pilotage.batch.system import known
from pilotage.batch.system.model import (
    BatchCommand,
    BatchError,
    BatchItem,
    BatchOrder,
    BatchSystem,
    Phase,
)
from pilotage.batch.system.tools import Tools
from pilotage.bus import model as messages
from pilotage.bus import wire
from pilotage.cli import formatting
from pilotage.cli.answer import Answer
from pilotage.cli.common import HERE, Common
from pilotage.cli.doctor import CheckResult, report
from pilotage.cli.live import Board
from pilotage.cli.site import find
from pilotage.cli.site_state import look
from pilotage.edge import broker, health
from pilotage.edge.view import EdgeSite
from pilotage.hub.project import Project
from pilotage.status.sites import SiteStatus

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
    (("sshfs",), "mounts", "jobs with mounted data cannot run"),
)


def check(
    name: Annotated[str, Parameter(help="Name of the site.")],
    /,
    *,
    run: Annotated[bool, Parameter(help="Also run a tiny job, and wait for it.")] = False,
    patience: Annotated[str, Parameter(help="How long `--run` waits, else 5m.")] = "5m",
    rate: Annotated[bool, Parameter(help="Also measure how fast data gets there.")] = False,
    at: Common = HERE,
) -> Answer:
    """Check the prerequisites of a site, with a hint for each failure."""
    with at.open() as project:
        one = find(look(project).sites, name)
        if one.kind != "batch":
            if run or rate:
                message = f"this hub does not reach {name} itself: no `--run` and no `--rate`"
                raise errors.UsageError(message, hint=f"`pilotage site check {name}` alone")
            return report(check_heard(project, one))
        site = files.read(project.root, name)
        walk = _Walk(name, site, project.state, units.seconds(patience) if run else 0.0, rate=rate)
    return report(asyncio.run(_all(walk, name)))


async def _all(walk: _Walk, name: str) -> list[CheckResult]:
    board, found = Board(), list[CheckResult]()
    try:
        async for one in walk.steps():
            found.append(one)
            board.draw([[f"looking at {name}: {one.name} …"]])
    finally:
        board.clear()
    return found


class _Walk:
    """One check of a site."""

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

    async def steps(self) -> AsyncIterator[CheckResult]:
        """Yield the checks in order; those that cannot be reached are skipped."""
        from pilotage.pilot import pack

        if isinstance(self._shell, SshShell):
            try:
                await self._shell.connect()
            except errors.PilotageError as error:
                for one in _no_way(self._shell, error):
                    yield one
                return
            yield CheckResult("host key", "ok", f"the key of {self._site.host} is the known one")
            yield CheckResult("login", "ok", "there is a connection")
        remote = SiteConnection(self._name, self._site, self._shell, pack.archive(), self._place)
        try:
            async for one in self._inside(remote):
                yield one
        except errors.PilotageError as error:
            yield CheckResult("program", "bad", _words(error))
        finally:
            await self._shell.close()

    async def _inside(self, remote: SiteConnection) -> AsyncIterator[CheckResult]:
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
                yield await try_job(remote, batch, self._trial)

    async def _port(self) -> CheckResult:
        """Find out whether pilots there can reach this machine by our connection."""
        try:
            await self._shell.forward(9)
        except errors.PilotageError as error:
            return CheckResult("ports", "warn", f'{error}: pilots there need `link = "direct"`')
        return CheckResult("ports", "ok", "pilots there reach the hub by our connection")

    async def _queue(self, remote: SiteConnection, batch: BatchSystem) -> CheckResult | None:
        queue, command = self._site.defaults.queue, batch.queue if isinstance(batch, Tools) else ()
        if not queue or not command:
            return None
        try:
            said = await remote.run(BatchCommand((*command, queue)), ask=True)
        except errors.PilotageError as error:
            return CheckResult("queue", "bad", _words(error))
        if said.exit:
            words = (said.err or said.out).strip().partition("\n")[0]
            return CheckResult(
                "queue", "bad", f"{queue}: {words}; change `queue` in the site's file"
            )
        return CheckResult("queue", "ok", f"there is a queue {queue}")

    async def _measure(self) -> CheckResult:
        """Send something that is thrown away there."""
        process = await self._shell.start(["sh", "-c", "cat >/dev/null"])
        began = time.monotonic()
        await process.communicate(bytes(_RATE_BYTES))
        taken = time.monotonic() - began
        rate = units.bytes_for_people(int(_RATE_BYTES / taken))
        return CheckResult("rate", "ok", f"{rate} a second, as far as the login node")


def _no_way(shell: SshShell, error: errors.PilotageError) -> list[CheckResult]:
    """Distinguish an unreachable host, a changed host key and a refused login."""
    trouble = shell.files.trouble()
    words = _words(error)
    match trouble.kind if trouble else TroubleKind.OTHER:
        case TroubleKind.UNKNOWN_KEY | TroubleKind.CHANGED_KEY:
            return [CheckResult("host key", "bad", words)]
        case TroubleKind.LOGIN:
            known_key = CheckResult("host key", "ok", f"the key of {shell.host} is the known one")
            return [known_key, CheckResult("login", "bad", words)]
        case _:
            return [CheckResult("host", "bad", words)]


def _greeting(remote: SiteConnection, asked: float) -> list[CheckResult]:
    """Judge what the program at the login node says of itself."""
    hello = remote.hello
    late = time.time() - asked
    skew = hello.time - asked - late / 2
    far = abs(skew) > _SKEW_S + late
    room = units.bytes_for_people(hello.free)
    shared = "worker nodes must see it, too: `--run` finds out"
    return [
        CheckResult("python", "ok", f"{hello.python} on {hello.host}, as {hello.user}"),
        CheckResult(
            "folder", "ok" if hello.free >= _LEAST_ROOM else "warn",
            f"{hello.root}, {room} free; {shared}",
        ),
        CheckResult(
            "clock", "warn" if far else "ok",
            f"{units.for_people(abs(skew))} {'ahead' if skew > 0 else 'behind'}: set the clocks"
            if far else "like ours",
        ),
    ]  # fmt: skip


async def _tools(remote: SiteConnection, batch: BatchSystem) -> CheckResult:
    try:
        said = await remote.run(batch.version(), ask=True)
    except errors.PilotageError as error:
        return CheckResult(batch.name, "bad", _words(error))
    if said.exit:
        words = (said.err or said.out).strip().partition("\n")[0]
        hint = f": {_PATH}" if said.exit == _NOT_FOUND else ""
        return CheckResult(batch.name, "bad", f"{words}{hint}")
    words = said.out.strip().partition("\n")[0]
    return CheckResult(batch.name, "ok", "our own queue" if batch.name == "local" else words)


async def _listing(remote: SiteConnection, batch: BatchSystem) -> CheckResult:
    began = time.monotonic()
    try:
        found = batch.listed(await remote.run(batch.listing(), ask=True))
    except BatchError as error:
        return CheckResult("listing", "bad", str(error))
    except errors.PilotageError as error:
        return CheckResult("listing", "bad", _words(error))
    taken = units.for_people(time.monotonic() - began)
    return CheckResult("listing", "ok", f"{len(found)} of ours there, in {taken}")


async def _extra(
    remote: SiteConnection, programs: tuple[str, ...], what: str, without: str
) -> CheckResult:
    there = []
    for program in programs:
        with contextlib.suppress(errors.Unavailable):
            said = await remote.run(BatchCommand((program, "--version")), ask=True)
            there += [program] if said.exit == 0 else []
    if there:
        return CheckResult(what, "ok", f"{', '.join(there)} at the login node")
    return CheckResult(what, "warn", f"no {' and no '.join(programs)} at the login node: {without}")


def _words(error: errors.PilotageError) -> str:
    return f"{error}: {error.hint}" if error.hint else str(error)


#: How long an agent may take to answer, in seconds.
_PATIENCE_S = 10.0


def check_heard(project: Project, one: SiteStatus) -> list[CheckResult]:
    """Check what is known of a site, and query its agent if it has one."""
    found = [CheckResult("name", "bad", one.conflict)] if one.conflict else []
    if one.agent is not None:
        found += _agent(one.agent)
        if not one.agent.ported:
            found.append(anyio.run(_answers, project, one.name))
    else:
        words = one.words or f"{formatting.count(one.pilots, 'pilot')} there"
        about = "agent" if one.kind == "agent" else "pilots"
        found.append(CheckResult(about, "ok" if one.state == "well" else "warn", words))
    if one.drain is not None:
        by, why = one.drain.by or "a person", f": {one.drain.why}" if one.drain.why else ""
        found.append(CheckResult("drained", "warn", f"by {by}, at this hub{why}"))
    return found


def _agent(one: EdgeSite) -> list[CheckResult]:
    heard = f"last seen at {formatting.clock(one.heard)}, each {units.for_people(one.interval)}"
    scheduler, days = one.scheduler, one.certificate_days
    apps = ", ".join(one.applications)
    found = [
        CheckResult("agent", "bad" if one.state == "silent" else "ok", heard)
        if one.state != "unknown"
        else CheckResult("agent", "warn", f"{one.words}; {heard}"),
        CheckResult(
            scheduler.batch or "batch system",
            "ok" if scheduler.well else "bad",
            scheduler.text or "answers",
        ),
        CheckResult(
            "disk",
            "ok" if one.disk_free >= _LEAST_ROOM else "bad",
            f"{units.bytes_for_people(one.disk_free)} free",
        ),
        CheckResult("apps", "ok" if apps else "warn", apps or "none: it runs nothing for others"),
    ]
    if days is not None:
        left = f"good for {units.for_people(days * 86_400)}" if days >= 0 else "over"
        verdict = "bad" if days < 0 else "warn" if days < health.SOON_DAYS else "ok"
        found.append(CheckResult("certificate", verdict, left))
    if one.draining:
        found.append(CheckResult("jobs", "warn", health.drained(one.drain)))
    return found


async def _answers(project: Project, site: str) -> CheckResult:
    """Ask an agent for its counts, and see whether an answer comes."""
    began = time.monotonic()
    try:
        async with broker.connect(project.settings.bus, project.root) as bus:
            body = wire.encode(messages.Control(site=site, verb="query"))
            told = wire.decode(await bus.request(f"control.{site}", body, _PATIENCE_S))
    except errors.PilotageError as error:
        return CheckResult("answers", "bad", f"{error}: {error.hint}" if error.hint else str(error))
    if not isinstance(told, messages.Answer) or not told.ok:
        said = told.text if isinstance(told, messages.Answer) else "it gave no answer"
        return CheckResult("answers", "warn", said)
    return CheckResult("answers", "ok", f"in {units.for_people(time.monotonic() - began)}")


_WALL_S = 120.0
_POLL_S = 2.0
#: How long a shared file system may take to show a file that another node wrote.
_LINGER_S = 60.0


async def try_job(remote: SiteConnection, batch: BatchSystem, patience: float) -> CheckResult:
    """Have a job write a file in the folder of the site, and wait for it."""
    key = new_key()
    try:
        words = await _try(remote, batch, key, patience)
    except (BatchError, errors.PilotageError) as error:
        hint = getattr(error, "hint", "")
        return CheckResult("job", "bad", f"{error}: {hint}" if hint else str(error))
    finally:
        await remote.call("drop", keys=[key])
    return CheckResult("job", "ok", words)


async def _try(remote: SiteConnection, batch: BatchSystem, key: str, patience: float) -> str:
    folder = f"{remote.hello.root}/s/{key}"
    order = _order(remote, key, folder)
    await remote.call("prepare", key=key, order={"v": 1, "key": key, "items": []},
                      script=order.script)  # fmt: skip
    began = time.monotonic()
    number = batch.submitted(await remote.run(batch.submit(order), folder=folder))
    over: float | None = None
    item: BatchItem | None = None
    while time.monotonic() - began < patience:
        if node := await _written(remote, f"{folder}/ok"):
            taken = units.for_people(time.monotonic() - began)
            return f"{number or key} ran on {node} and was back after {taken}"
        item = next((one for one in await _list(remote, batch) if one.key == key), None)
        if item is None or item.phase is Phase.OVER:
            over = over or time.monotonic()
            if time.monotonic() - over > min(_LINGER_S, patience / 2):
                raise errors.Unavailable(_why(item, number, folder))
        await asyncio.sleep(_POLL_S)
    if item is not None:
        await remote.run(batch.cancel([item.id]))
        state = f"{item.phase}, {item.words}" if item.words else str(item.phase)
        message = f"{number or key} has not run within {units.for_people(patience)} ({state})"
        raise errors.TimedOut(message, hint="it was cancelled; `--patience` waits longer")
    raise errors.TimedOut(f"{number or key} is not in any listing")


def _order(remote: SiteConnection, key: str, folder: str) -> BatchOrder:
    given = remote.site.defaults
    place = shlex.quote(folder)
    script = f"#!/bin/sh\nhostname >{place}/ok.part && mv {place}/ok.part {place}/ok\n"
    return BatchOrder(
        key=key, script=script, folder=folder, queue=given.queue, account=given.account,
        qos=given.qos, constraint=given.constraint, reservation=given.reservation,
        time=min(_WALL_S, units.seconds(given.time)) if given.time else _WALL_S,
    )  # fmt: skip


async def _list(remote: SiteConnection, batch: BatchSystem) -> list[BatchItem]:
    return batch.listed(await remote.run(batch.listing(), ask=True))


async def _written(remote: SiteConnection, path: str) -> str:
    found = (await remote.call("read", paths=[path], most=256))["files"][path]
    return base64.b64decode(found["data"]).decode(errors="replace").strip() if found else ""


def _why(item: BatchItem | None, number: str, folder: str) -> str:
    if item is None:
        return f"{number} has ended and left nothing in {folder}: do worker nodes see it?"
    said = f"exit status {item.exit}" if item.exit is not None else item.words
    return f"{number} ended ({said}) and left nothing in {folder}: do worker nodes see it?"
