"""Workflows and jobs that users send by the broker: decoded, checked, stored, then acknowledged.

The sender is verified by the broker, or named by the settings for a topic. Such a workflow runs
applications only: this hub runs no program that came in a message. A failure of the broker leaves
the rest of the hub at work.
"""

from __future__ import annotations

import functools
import logging
from asyncio import gather
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
import msgspec

from pilotage.base import backoff, errors, text
from pilotage.base.supervise import Supervisor
from pilotage.bus import model as bus
from pilotage.bus import port, wire
from pilotage.bus.balsam import read_message
from pilotage.bus.port import Message
from pilotage.edge import broker
from pilotage.flow import moves, read
from pilotage.flow import notify as flow_notify
from pilotage.flow import sites as flow_sites
from pilotage.flow.model import Flow, NewFlow, Notify
from pilotage.flow.notify import NO_JOB, argo, balsam, ours
from pilotage.flow.read import is_route
from pilotage.flow.records import StoryLine
from pilotage.match.sites import SiteView
from pilotage.project import settings as config
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db, Writer

if TYPE_CHECKING:
    from pilotage.bus.amqp.bus import AmqpBus

_log = logging.getLogger("pilotage.flow")
#: Prefixes of topics that agents obey; this hub sends no notification there.
_THEIRS = ("job.", "control.", "heartbeat.", "refused.")
_LONGEST = 2000
#: The site of a job that may run anywhere.
ANY = "any"
#: The most refusals that are kept.
_MOST_KEPT = 10_000


class RefusedFlow(msgspec.Struct, frozen=True):
    """A refused message, and the address for the answer."""

    reason: str
    user: str
    key: str = ""
    reply: str = ""
    speech: str = "pilotage"
    number: int = 0


#: Returns the state of the named sites.
Standing = Callable[[Collection[str]], SiteView]


async def take(
    messages: Sequence[Message], settings: config.Settings, writer: Writer, standing: Standing,
    now: float,
) -> None:  # fmt: skip
    """Start or refuse the workflows in messages; all of it is durable when this returns."""
    run_sync = anyio.to_thread.run_sync
    judged = await gather(*(run_sync(judge, message, settings) for message in messages))
    named = {
        site for one in judged if isinstance(one, NewFlow) for site in flow_sites.named(one.flow)
    }
    sites = standing(named) if named else SiteView({})
    await gather(*(_one(one, sites, settings, writer, now) for one in judged))


def submit(db: Db, new: NewFlow, sites: SiteView, now: float) -> int:
    """Start a workflow unless its sites will never accept its steps; a known key is no error."""
    if db.row("flow_by_key", key=new.key) is None:
        flow_sites.judge_flow(sites, new.flow, now)
    return moves.submit(db, new, now)


async def _one(
    judged: NewFlow | RefusedFlow,
    sites: SiteView,
    settings: config.Settings,
    writer: Writer,
    now: float,
) -> None:
    if isinstance(judged, NewFlow):
        try:
            step = functools.partial(submit, new=judged, sites=sites, now=now)
            number = await writer.run(step)
        except errors.StoreUnavailable:
            raise
        except errors.PilotageError as error:
            notify = judged.flow.notify
            judged = RefusedFlow(
                said(error), judged.owner, _token(judged), notify.reply, notify.speech,
                notify.number,
            )  # fmt: skip
        else:
            _log.info("flow %d came from %s", number, judged.owner)
            return
    refused = judged
    _log.warning("a flow of %r is refused: %s", refused.user or "an unknown user", refused.reason)
    await writer.run(lambda db: _refuse(db, refused, settings, now))


def judge(message: Message, settings: config.Settings) -> NewFlow | RefusedFlow:
    """Return the workflow in a message, or why it is refused."""
    topics = settings.bus.jobs
    user = message.user or topics.get(message.topic, "")
    known = guess(message.body, user, settings.bus.balsam_status)
    try:
        if not user:
            raise errors.Denied("unknown sender: the broker has verified no name")
        if user not in {*settings.flows.users, *topics.values()}:
            raise errors.Denied(f"the user `{user}` may not send workflows")
        asked = read_message(message.body, ANY).message
        flow = _flow(asked, settings.bus.balsam_status)
        _check(flow, settings)
    except errors.PilotageError as error:
        return msgspec.structs.replace(known, reason=said(error))
    digits = asked.key or wire.message_key(asked, user).digits  # type: ignore[union-attr, arg-type]
    return NewFlow(flow=flow, key=f"message:{user}:{digits}", owner=user, source="message")


def _flow(asked: bus.Message, back: str) -> Flow:
    if isinstance(asked, bus.Chain):
        return _anywhere(read.from_chain(asked))
    if isinstance(asked, bus.Job):
        # A single job of Balsam's or ours: a chain of one.
        chain = bus.Chain(jobs=(asked,), name=asked.name or asked.application, reply=asked.reply)
        flow = _anywhere(read.from_chain(chain))
        if asked.speech != "balsam":
            return flow
        number = asked.job_id or asked.argo_job_id
        notify = Notify(reply=back, speech="balsam", number=number)
        return msgspec.structs.replace(flow, notify=notify)
    if not isinstance(asked, bus.Flow):
        raise errors.BadMessage("it is no workflow, and only workflows are accepted here")
    flow = read.from_dict(asked.flow, params=asked.params, recipes=False)
    if asked.reply:
        notify = msgspec.structs.replace(flow.notify, reply=asked.reply)
        flow = msgspec.structs.replace(flow, notify=notify)
    return flow


def _anywhere(flow: Flow) -> Flow:
    """Let steps without a site run anywhere, as registered applications."""
    steps = {
        name: msgspec.structs.replace(
            one, sites=(), application="", recipe={"kind": "app", "app": one.application}
        )
        if one.sites == (ANY,)
        else one
        for name, one in flow.steps.items()
    }
    return msgspec.structs.replace(flow, steps=steps)


def _check(flow: Flow, settings: config.Settings) -> None:
    if not may_reply(flow.notify.reply, settings):
        raise errors.Denied(f"`reply` is `{flow.notify.reply}`, where this hub sends nothing")
    if flow.notify.webhook:
        flow_notify.check_webhook(flow.notify.webhook, settings.flows.webhooks)


def may_reply(topic: str, settings: config.Settings) -> bool:
    """Return whether notifications may be sent to a topic: a valid one that no agent obeys."""
    obeyed = {*settings.flows.topics, *settings.bus.jobs}
    return is_route(topic) and not topic.startswith(_THEIRS) and topic not in obeyed


def guess(body: bytes, user: str, back: str) -> RefusedFlow:
    """Return where to report that a message was refused; to senders of Balsam it is `back`."""
    try:
        found = wire.load(body)
    except errors.BadMessage:
        return RefusedFlow("", user)
    old = "v" not in found and "kind" not in found
    reply = found.get("job_status_routing_key" if old else "reply", "")
    speech = "argo" if old else "pilotage"
    if old and "subjobs" not in found:
        reply, speech = back, "balsam"
    number = found.get("job_id", 0)
    token = found.get("key", "")
    return RefusedFlow(
        "", user, token if isinstance(token, str) else "", reply if isinstance(reply, str) else "",
        speech, number if isinstance(number, int) else 0,
    )  # fmt: skip


def _refuse(db: Db, one: RefusedFlow, settings: config.Settings, now: float) -> None:
    """Record why a message was refused, and notify its sender."""
    words = one.reason[:_LONGEST]
    last = int(db.value("flows_refused", user=one.user, key=one.key, reason=words, now=now))
    db.run("flows_refused_purge", before=last - _MOST_KEPT)
    if not (one.reply and may_reply(one.reply, settings)):
        return
    line = StoryLine(0, now, 0, "", 0, 0, "rejected", one.reason)
    if one.speech == "argo":
        for body in argo(line, one.number):
            flow_notify.put(db, 0, "status", one.reply, body)
    elif one.speech == "balsam":
        for body in balsam(line, one.number, NO_JOB):
            flow_notify.put(db, 0, "status", one.reply, body)
    else:
        flow_notify.put(db, 0, "status", one.reply, ours(line, "", one.key, 1))


def _token(new: NewFlow) -> str:
    return new.key.removeprefix(f"message:{new.owner}:")


def said(error: errors.PilotageError) -> str:
    """Return the message of an error with its hint."""
    return text.show(f"{error.message}; {error.hint}" if error.hint else error.message)


#: A connection that failed is made again after 5 s.
_RESTART = backoff.fixed(5.0)

#: Stores messages, which are acknowledged after it.
TakeMessages = Callable[[Sequence[Message]], Awaitable[None]]


class FlowIntake:
    """Receives workflows from the broker, and reconnects after failures."""

    def __init__(
        self,
        project: ProjectFolder,
        flows: TakeMessages,
        send: Callable[[AmqpBus], Coroutine[Any, Any, None]],
    ) -> None:
        """Store messages by `flows`; `send` runs while there is a connection."""
        self._project, self._flows, self._send = project, flows, send

    async def run(self) -> None:
        """Receive and send until cancelled."""
        await Supervisor(self._project.clock, _log, _RESTART).keep("broker", self._talk)

    async def _talk(self) -> None:
        project = self._project
        bus, flows = project.settings.bus, project.settings.flows
        async with (
            broker.connect(bus, project.root) as line,
            anyio.create_task_group() as tasks,
        ):
            for topic in {*(flows.topics if flows.users else ()), *bus.jobs}:
                tasks.start_soon(self._listen, line, topic)
            tasks.start_soon(self._send, line)

    async def _listen(self, bus: AmqpBus, pattern: str) -> None:
        async with bus.subscribe(pattern, ahead=port.MOST_AT_ONCE) as incoming:
            await port.take_batches(
                incoming, lambda some: port.settle_batches(bus, some, self._flows, _log)
            )
