"""`pilotage site send`: send a job to a site by the broker, and follow it."""

from __future__ import annotations

import hashlib
import queue
import re
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import anyio
import msgspec
from anyio.from_thread import start_blocking_portal
from cyclopts import Parameter

from pilotage.base import errors, text, units
from pilotage.bus import balsam, wire
from pilotage.bus.model import Chain, Job, Status
from pilotage.bus.port import Bus as Talk
from pilotage.bus.port import Message
from pilotage.cli import formatting, printing
from pilotage.cli.answer import Answer, AnswerStream, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.edge import broker, view
from pilotage.hub.project import Project
from pilotage.job.machine import FINAL
from pilotage.project.settings import BusSettings

#: Seconds of silence of the site after which a hint is shown.
_SLOW_S = 5.0
_ROUTE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,190}", re.ASCII)
_TOPIC = Annotated[str, Parameter(help="Topic that the site reads, if it is not the usual one.")]


class Parcel(NamedTuple):
    """A job to send, and the broker."""

    job: Job
    topic: str
    bus: BusSettings
    root: Path


def send(
    site: Annotated[str, Parameter(help="Name of the site.")],
    file: Annotated[
        str,
        Parameter(allow_leading_hyphen=True, help="Job definition in JSON; `-` is standard input."),
    ],
    /,
    *,
    key: Annotated[
        str, Parameter(help="The same key again is the same job; else the same definition is.")
    ] = "",
    wait_: Annotated[
        bool, Parameter(name="--wait", help="Print the site's reports until the job has ended.")
    ] = False,
    timeout: Annotated[
        str, Parameter(help="With --wait: stop waiting after `30s`, `1h`, …; the job continues.")
    ] = "",
    topic: _TOPIC = "",
    at: Common = HERE,
) -> Answer | AnswerStream:
    """Send a job to a site by the broker, which has stored it when this returns."""
    patience = units.seconds(timeout) if timeout else None
    with at.open() as project:
        found = _read(file, site)
        job = addressed(found.message, site, file, key, project.settings.bus.user)
        parcel = Parcel(job, topic or f"job.{site}", project.settings.bus, project.root)
        notes = (*found.notes, *_silence(project, site))
    if not wait_:
        anyio.run(_send, parcel)
        data = {"site": site, "key": job.key, "reply": job.reply, "notes": list(notes)}
        said = line("sent to ", Styled(site, "bold"), f"  {job.application}  key {job.key}")
        return Answer(data, (said,), (job.key,), notes)
    for note in notes:
        printing.say(text.show(note))
    return AnswerStream(_story(parcel, patience))


# -- the job to send -----------------------------------------------------------------------------


def _read(file: str, site: str) -> balsam.ReadMessage:
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        message = f"cannot read {file}: {error.strerror}"
        raise errors.UsageError(message, hint="name a file with a job definition, or -") from None
    try:
        return balsam.read_message(body, site)
    except errors.BadMessage as error:
        message = f"{_shown(file)}: {error}"
        raise errors.BadMessage(message, hint=error.hint, field=error.field) from None


def addressed(message: object, site: str, file: str, key: str, user: str) -> Job:
    """Make a job of a message that its sender can recognise the answers of.

    All of it follows from the definition: the same one again is the same message.
    """
    if isinstance(message, Chain):
        said = f"{_shown(file)} is a chain of jobs, and a site takes single ones"
        raise errors.UsageError(said, hint="send each of its jobs by itself")
    if not isinstance(message, Job):
        said = f"{_shown(file)} is no job definition"
        raise errors.UsageError(said, hint=f"`pilotage site control {site}` changes jobs")
    if message.site != site:
        said = f"{_shown(file)} is for the site {message.site}"
        raise errors.UsageError(said, hint=f"`pilotage site send {message.site} {file}`")
    made = msgspec.structs.replace(
        message, key=key or message.key or wire.message_key(message, "").digits, speech="pilotage"
    )
    made = msgspec.structs.replace(made, reply=message.reply or _reply(user or made.key))
    # A key from the command line has not been looked at yet.
    wire.decode(wire.encode(made))
    return made


def _reply(who: str) -> str:
    name = who if _ROUTE.fullmatch(who) else hashlib.sha256(who.encode()).hexdigest()[:16]
    return f"status.{name}"


def _shown(file: str) -> str:
    return "the definition" if file == "-" else file


def _silence(project: Project, site: str) -> tuple[str, ...]:
    """Return a warning that the site will not receive it soon."""
    seen = view.look(project.db, project.clock.now(), running=project.running())
    return tuple(
        f"{site} is silent: {one.words}; the job waits at the broker until its agent is back"
        for one in seen.edges
        if one.name == site and one.state == "silent"
    )


# -- the broker ----------------------------------------------------------------------------------


async def _send(parcel: Parcel) -> None:
    async with broker.connect(parcel.bus, parcel.root) as bus:
        await post(bus, parcel.topic, wire.encode(parcel.job), parcel.job)


async def post(bus: Any, topic: str, body: bytes, job: Job) -> None:  # noqa: ANN401 - any bus
    """Send a job; raise an error if no agent serves the site."""
    try:
        await bus.publish(topic, body, job.key, heard=True)
    except errors.Unavailable as error:
        raise unheard(error, job.site, bus.trouble) from None


def unheard(error: errors.Unavailable, site: str, trouble: str) -> errors.Unavailable:
    """Return what to do about a message that was not taken."""
    if trouble:
        message = f"the broker cannot be reached: {trouble}"
        hint = "the table `bus` of pilotage.toml says where it is"
        return errors.Unavailable(message, hint=hint)
    hint = f"was {site} ever served at this broker? `pilotage site ls` lists the known sites"
    return errors.Unavailable(str(error), hint=hint)


async def _talk(
    parcel: Parcel, patience: float | None, found: queue.SimpleQueue[Status | None]
) -> None:
    """Send a job, and pass on what the site says of it until it has ended."""
    job = parcel.job
    async with broker.connect(parcel.bus, parcel.root, job.reply) as bus:
        with anyio.move_on_after(patience):
            async with bus.subscribe(job.reply) as messages:
                await post(bus, parcel.topic, wire.encode(job), job)
                async for status in _statuses(bus, messages, job):
                    found.put(status)
                    if status.state in FINAL:
                        return
    message = f"the job {job.key} has not ended within {units.for_people(patience or 0.0)}"
    raise errors.TimedOut(message, hint="it continues; the same command waits for it again")


async def _statuses(bus: Talk, messages: AsyncIterator[Message], job: Job) -> AsyncIterator[Status]:
    """Yield status messages of one job; repeated and older ones are skipped."""
    number = seq = 0
    async for message in messages:
        await bus.ack(message)
        try:
            found = wire.decode(message.body)
        except errors.BadMessage:
            continue
        if not isinstance(found, Status) or (found.site, found.key) != (job.site, job.key):
            continue
        if (found.job, found.seq) > (number, seq):
            number, seq = found.job, found.seq
            yield found


# -- output --------------------------------------------------------------------------------------


def _story(parcel: Parcel, patience: float | None) -> Iterator[Answer]:
    found: queue.SimpleQueue[Status | None] = queue.SimpleQueue()
    with start_blocking_portal() as portal:
        task = portal.start_task_soon(_talk, parcel, patience, found)
        task.add_done_callback(lambda _: found.put(None))
        try:
            try:
                status = found.get(timeout=_SLOW_S)
            except queue.Empty:
                site = parcel.job.site
                printing.say(f"no report from {site} yet: `pilotage site show {site}`")
                status = found.get()
            while status is not None:
                yield _line(status)
                status = found.get()
            task.result()
        finally:
            task.cancel()


def _line(status: Status) -> Answer:
    facts: dict[str, Any] = msgspec.to_builtins(status)
    reason = status.reason.text or status.reason.code
    if status.state not in FINAL and not reason:
        reason = status.step.replace("_", " ")
    state = formatting.state(status.state)
    said = line(
        Styled(formatting.clock(status.time, day=False), "dim"), "  ", state,
        " " * (13 - len(state.text)), text.show(reason),
    )  # fmt: skip
    over = status.state in FINAL
    return Answer(
        facts | {"time": formatting.stamp(status.time)},
        (said,),
        (status.job,) if over else (),
        status=int(over and status.state != "done"),
    )
