"""Workflows and jobs that users send by the broker: understood, checked, kept, then acknowledged.

Who sent one is the broker's word, or that of the settings for its topic. A workflow that comes so
runs applications alone: programs that somebody wrote into a message are not run by this hub.
"""

from __future__ import annotations

import functools
import logging
from asyncio import gather
from collections.abc import Callable, Collection, Sequence

import anyio.to_thread
import msgspec

from pilotage.base import errors, text
from pilotage.bus import key, strict
from pilotage.bus import model as bus
from pilotage.bus.balsam import read_message
from pilotage.bus.port import Message
from pilotage.flow import moves, outbox, post, read
from pilotage.flow.model import Flow, NewFlow, Notify
from pilotage.flow.notify import NO_JOB, argo, balsam, ours
from pilotage.flow.read import is_route
from pilotage.flow.records import Line
from pilotage.match.sites import Sites
from pilotage.project import settings as config
from pilotage.status import sites as site_view
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.flow")
#: What begins topics that agents obey: nothing of ours goes there.
_THEIRS = ("job.", "control.", "heartbeat.", "refused.")
_LONGEST = 2000
#: What a job names that may run wherever the hub has room, or that names no site.
ANY = "any"
#: So many refusals are kept.
_MOST_KEPT = 10_000


class Refused(msgspec.Struct, frozen=True):
    """A message that becomes nothing, and whom to tell."""

    reason: str
    user: str
    key: str = ""
    reply: str = ""
    speech: str = "pilotage"
    number: int = 0


#: Says of sites that are named whether they take jobs.
Standing = Callable[[Collection[str]], Sites]


async def take(
    messages: Sequence[Message], settings: config.Settings, writer: Writer, standing: Standing,
    now: float,
) -> None:  # fmt: skip
    """Make messages workflows, or refuse them; all of it is safe when this returns."""
    run_sync = anyio.to_thread.run_sync
    judged = await gather(*(run_sync(judge, message, settings) for message in messages))
    named = {
        site for one in judged if isinstance(one, NewFlow) for site in site_view.named(one.flow)
    }
    sites = standing(named) if named else Sites({})
    await gather(*(_one(one, sites, settings, writer, now) for one in judged))


def submit(db: Db, new: NewFlow, sites: Sites, now: float) -> int:
    """Start a workflow, unless its sites will never take its steps; a known one is the same."""
    if db.row("flow_by_key", key=new.key) is None:
        site_view.judge_flow(sites, new.flow, now)
    return moves.submit(db, new, now)


async def _one(
    judged: NewFlow | Refused, sites: Sites, settings: config.Settings, writer: Writer, now: float
) -> None:
    if isinstance(judged, NewFlow):
        try:
            step = functools.partial(submit, new=judged, sites=sites, now=now)
            number = await writer.run(step)
        except errors.StoreUnavailable:
            raise
        except errors.PilotageError as error:
            notify = judged.flow.notify
            judged = Refused(
                said(error), judged.owner, _token(judged), notify.reply, notify.speech,
                notify.number,
            )  # fmt: skip
        else:
            _log.info("flow %d came from %s", number, judged.owner)
            return
    refused = judged
    _log.warning("a flow of %r is refused: %s", refused.user or "somebody", refused.reason)
    await writer.run(lambda db: _refuse(db, refused, settings, now))


def judge(message: Message, settings: config.Settings) -> NewFlow | Refused:
    """Decide on a message."""
    topics = settings.bus.jobs
    user = message.user or topics.get(message.topic, "")
    known = guess(message.body, user, settings.bus.balsam_status)
    try:
        if not user:
            raise errors.Denied("the sender is unknown: the broker has verified no name")
        if user not in {*settings.flows.users, *topics.values()}:
            raise errors.Denied(f"the user `{user}` may not send workflows")
        asked = read_message(message.body, ANY).message
        flow = _flow(asked, settings.bus.balsam_status)
        _check(flow, settings)
    except errors.PilotageError as error:
        return msgspec.structs.replace(known, reason=said(error))
    digits = asked.key or key.of(asked, user).digits  # type: ignore[union-attr, arg-type]
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
        raise errors.BadMessage("it is no workflow, and workflows are taken here")
    flow = read.from_dict(asked.flow, params=asked.params, recipes=False)
    if asked.reply:
        notify = msgspec.structs.replace(flow.notify, reply=asked.reply)
        flow = msgspec.structs.replace(flow, notify=notify)
    return flow


def _anywhere(flow: Flow) -> Flow:
    """Let steps that name no site run where there is room, as registered applications."""
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
        post.check(flow.notify.webhook, settings.flows.webhooks)


def may_reply(topic: str, settings: config.Settings) -> bool:
    """Say whether words may be sent to a topic: not to one that is none, or that somebody obeys."""
    obeyed = {*settings.flows.topics, *settings.bus.jobs}
    return is_route(topic) and not topic.startswith(_THEIRS) and topic not in obeyed


def guess(body: bytes, user: str, back: str) -> Refused:
    """Find out whom to tell that a message was refused; senders of Balsam's hear it `back`."""
    try:
        found = strict.load(body)
    except errors.BadMessage:
        return Refused("", user)
    old = "v" not in found and "kind" not in found
    reply = found.get("job_status_routing_key" if old else "reply", "")
    speech = "argo" if old else "pilotage"
    if old and "subjobs" not in found:
        reply, speech = back, "balsam"
    number = found.get("job_id", 0)
    token = found.get("key", "")
    return Refused(
        "", user, token if isinstance(token, str) else "", reply if isinstance(reply, str) else "",
        speech, number if isinstance(number, int) else 0,
    )  # fmt: skip


def _refuse(db: Db, one: Refused, settings: config.Settings, now: float) -> None:
    """Keep why a message was refused, and tell who sent it."""
    words = one.reason[:_LONGEST]
    last = int(db.value("flows_refused", user=one.user, key=one.key, reason=words, now=now))
    db.run("flows_refused_purge", before=last - _MOST_KEPT)
    if not (one.reply and may_reply(one.reply, settings)):
        return
    line = Line(0, now, 0, "", 0, 0, "rejected", one.reason)
    if one.speech == "argo":
        for body in argo(line, one.number):
            outbox.put(db, 0, "status", one.reply, body)
    elif one.speech == "balsam":
        for body in balsam(line, one.number, NO_JOB):
            outbox.put(db, 0, "status", one.reply, body)
    else:
        outbox.put(db, 0, "status", one.reply, ours(line, "", one.key, 1))


def _token(new: NewFlow) -> str:
    return new.key.removeprefix(f"message:{new.owner}:")


def said(error: errors.PilotageError) -> str:
    """Return the words of an error, with what to do about it."""
    return text.show(f"{error.message}; {error.hint}" if error.hint else error.message)
