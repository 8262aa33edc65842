"""Rows of attempts at sites with an agent, and of messages to those sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pilotage.base import text
from pilotage.base.backoff import Backoff
from pilotage.data.transfer.url import at_port
from pilotage.edge import message
from pilotage.edge.message import Handoff
from pilotage.store import Db

#: States in which an attempt has ended.
OVER = frozenset({"done", "failed", "cancelled", "rejected"})
#: The code of an attempt that its site does not know any more.
FORGOTTEN = "forgotten"
#: Seconds before the first further try to send a message, and between the last ones.
_RETRY = Backoff(first=1.0, limit=15.0)
#: What a message to a site is: `follow` asks for logs.
Kind = Literal["job", "control", "follow"]


class RemoteAttempt(msgspec.Struct, frozen=True):
    """An attempt at a site, as far as the site has said."""

    #: Its job and its number; of a pilot, no job, and the number of the pilot.
    job: int
    number: int
    site: str
    state: str
    reason: str
    kind: str
    code: str
    seq: int
    cancel: int
    created: float
    sent: float | None
    heard: float | None
    asked: float | None
    began: float | None
    stopped: float | None
    place: str
    digest: str
    read: int
    #: The ends of its streams in base64, if an earlier version left them here.
    stdout: str
    stderr: str
    #: Its key at the site.
    key: str
    #: Of which attempt at the site there is a log, and how many bytes of both streams.
    log_attempt: int = 0
    stdout_size: int = 0
    stderr_size: int = 0

    @property
    def over(self) -> bool:
        """Whether it is over at its site."""
        return self.state in OVER

    @property
    def pilot(self) -> int:
        """The number of the pilot that it is; 0 if it is an attempt of a job."""
        return 0 if self.job else self.number


class RemoteEnd(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    state: str
    reason: str
    kind: str
    code: str


class OutgoingMessage(msgspec.Struct, frozen=True):
    """A message that waits to be sent."""

    id: int
    job: int
    number: int
    kind: Kind
    topic: str
    body: str
    tries: int

    @property
    def line(self) -> tuple[int, int]:
        """Messages with the same key keep their order: a job is sent before its cancellation."""
        return (self.job, self.number) if self.number else (-1, self.id)


def get(db: Db, job: int, number: int) -> RemoteAttempt | None:
    """Read an attempt."""
    row = db.row("edge_attempt_get", job=job, number=number)
    return None if row is None else RemoteAttempt(*row)


def by_key(db: Db, key: str) -> RemoteAttempt | None:
    """Read the attempt that a site knows by a key."""
    row = db.row("edge_attempt_by_key", key=key)
    return None if row is None else RemoteAttempt(*row)


def add(
    db: Db, attempt: tuple[int, int], site: str, data: Handoff, body: bytes, now: float
) -> None:  # fmt: skip
    """Queue the message of an attempt for its site, once.

    From now on it may read and write at this hub's port what its message names there.
    """
    job, number = attempt
    key = message.attempt_key(job, number)
    fresh = db.value(
        "edge_attempt_add", job=job, number=number, site=site, place=data.place, key=key, now=now
    )
    if fresh is None:
        return
    put(db, f"job.{site}", body, attempt, kind="job")
    urls = [(one.url, False) for one in data.inputs] + [(one.url, True) for one in data.outputs]
    rows = [(text.store_path(path), write) for url, write in urls if (path := at_port(url))]
    if rows:
        db.run("edge_access_add", job=job, number=number, rows=text.dump(rows))


def may(db: Db, site: str, path: str, *, write: bool) -> str:
    """Return the file or folder at this hub's port that an attempt may use for a path, or none.

    That is the file itself, or a folder with a slash at its end.
    """
    folders = [path[: at + 1] for at, one in enumerate(path) if one == "/"]
    paths = [text.store_path(one) for one in dict.fromkeys([path, *folders])]
    found = db.value("edge_access_find", paths=text.dump(paths), site=site, write=write)
    return text.load_path(found) if found else ""


def reads(db: Db, attempt: tuple[int, int]) -> list[str]:
    """Return the inputs of an attempt at this hub's port."""
    job, number = attempt
    rows = db.rows("edge_access_reads", job=job, number=number)
    return [text.load_path(path) for (path,) in rows]


def used(db: Db, folder: str) -> bool:
    """Return whether an attempt that is not over reads from a folder of this hub's port."""
    beyond = f"{folder.rstrip('/')}0"
    return db.value("edge_access_used", folder=f"{folder.rstrip('/')}/", beyond=beyond) is not None


def leaves(db: Db, job: int, number: int) -> bool:
    """Return whether outputs of an attempt are still to be fetched."""
    return db.value("edge_access_leaves", job=job, number=number) is not None


def end(db: Db, attempt: RemoteAttempt, how: RemoteEnd, now: float) -> RemoteAttempt:
    """Record an end of an attempt that its site did not report; return the attempt."""
    db.run(
        "edge_attempt_hear", job=attempt.job, number=attempt.number, state=how.state,
        reason=how.reason, kind=how.kind, code=how.code, seq=0, now=attempt.heard, began=None,
        stopped=now, digest="", files=0, bytes=0, read=0,
    )  # fmt: skip
    return msgspec.structs.replace(
        attempt, state=how.state, reason=how.reason, kind=how.kind, code=how.code, stopped=now
    )


def put(
    db: Db, topic: str, body: bytes, attempt: tuple[int, int] = (0, 0), *,
    kind: Kind = "control", after: float = 0.0,
) -> None:  # fmt: skip
    """Queue a message, in a transaction of the caller."""
    job, number = attempt
    db.run(
        "edge_message_put", job=job, number=number, kind=kind, topic=topic, body=body.decode(),
        after=after,
    )  # fmt: skip


def due(db: Db, now: float, after: int, most: int, site: str = "") -> list[OutgoingMessage]:
    """Read messages that are to be sent now, after one that was looked at.

    Those to one site whose agent is at this hub's port, or else those for the broker.
    """
    asked = {"after_id": after, "now": now, "most": most}
    if site:
        rows = db.rows("edge_messages_due_at", **asked, site=site)
    else:
        rows = db.rows("edge_messages_due", **asked)
    return [OutgoingMessage(*row) for row in rows]


def ported(db: Db) -> frozenset[str]:
    """Return the sites whose agents come by this hub's port."""
    return frozenset(row[0] for row in db.rows("agent_sites"))


def sent(db: Db, some: Sequence[OutgoingMessage], now: float) -> list[tuple[int, int]]:
    """Remove messages that were sent, except jobs that their sites have not confirmed.

    Return attempts whose messages were dropped while they were on the way: the site was heard on
    them already, or they were cancelled.
    """
    jobs = {one.id: (one.job, one.number) for one in some if one.kind == "job"}
    if others := [one.id for one in some if one.kind != "job"]:
        db.run("edge_messages_drop", ids=text.dump(others))
    if not jobs:
        return []
    db.run("edge_attempts_sent", rows=text.dump(list(jobs.values())), now=now)
    kept = {(row[0], row[1]) for row in db.rows("edge_messages_keep", ids=text.dump(list(jobs)))}
    return [attempt for attempt in jobs.values() if attempt not in kept]


def later(db: Db, one: OutgoingMessage, now: float) -> None:
    """Retry a message, each time a little later."""
    db.run("edge_message_later", id=one.id, after=now + _RETRY.bound(one.tries + 1))


def soon(db: Db, topics: Sequence[str]) -> None:
    """Send messages that waited for a listener on these topics."""
    for topic in topics:
        db.run("edge_messages_soon", topic=topic)


def drop_job(db: Db, job: int, number: int) -> None:
    """Forget the message of an attempt: its site has it, or is not to have it."""
    db.run("edge_job_drop", job=job, number=number)


def again(db: Db, job: int, number: int) -> bool:
    """Send the message of an attempt again, if it is still stored."""
    return db.value("edge_job_again", job=job, number=number) is not None


def say(db: Db, job: int, number: int, words: str) -> None:
    """Record for users why an attempt waits."""
    if job:
        db.run("job_say", rows=text.dump([(job, number)]), reason=words)
    else:
        db.run("pilot_say", ids=text.dump([number]), reason=words)
