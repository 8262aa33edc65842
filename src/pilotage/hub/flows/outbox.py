"""Messages that wait to be sent: each has its row before it, and loses it only after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pilotage import text
from pilotage.store import Db

Kind = Literal["job", "control", "status", "webhook", "email"]
#: The time of a message that was sent, and is only sent again if somebody says so.
KEPT = 1e18
#: Seconds before the first further try, and between the last ones.
_SOON_S, _LATE_S = 1.0, 15.0


class Word(msgspec.Struct, frozen=True):
    """A message."""

    id: int
    flow: int
    #: The attempt that it is about; 0 if it is about the flow.
    task: int
    number: int
    kind: Kind
    #: A topic, a URL or an address.
    topic: str
    body: str
    tries: int

    @property
    def line(self) -> tuple[object, ...]:
        """What keeps its order: messages of one line are sent one after the other."""
        if self.kind == "status":
            return (self.flow, self.topic)
        # A site must not be told to call off what it has not heard of.
        return (self.task, self.number) if self.task else (0, self.id)


def put(
    db: Db, flow: int, kind: Kind, topic: str, body: str | bytes, *, task: int = 0, number: int = 0,
    after: float = 0.0,
) -> None:  # fmt: skip
    """Have a message sent, in a transaction of the caller's."""
    said = body.decode() if isinstance(body, bytes) else body
    db.run(
        "flows_put", flow=flow, task=task, number=number, kind=kind, topic=topic, body=said,
        after=after,
    )  # fmt: skip


def unsent(db: Db, kinds: Sequence[Kind], now: float, *, after: int, most: int) -> list[Word]:
    """Read messages of some kinds that are to be sent now."""
    wanted = text.dump(list(kinds))
    rows = db.rows("flows_unsent", kinds=wanted, now=now, after=after, most=most)
    return [Word(*row) for row in rows]


def sent(db: Db, words: Sequence[Word], now: float) -> list[Word]:
    """Forget messages that were sent, but keep jobs until their sites were heard on them.

    Return the jobs whose messages were dropped while they were on the way.
    """
    jobs = {one.id: one for one in words if one.kind == "job"}
    others = [one.id for one in words if one.kind != "job"]
    if others:
        db.run("flows_sent", ids=text.dump(others))
    if not jobs:
        return []
    rows = text.dump([(one.task, one.number) for one in jobs.values()])
    db.run("flows_gone_out", rows=rows, now=now)
    kept = {row[0] for row in db.rows("flows_keep", ids=text.dump(list(jobs)), after=KEPT)}
    return [one for number, one in jobs.items() if number not in kept]


def drop(db: Db, task: int, number: int) -> None:
    """Forget the job of an attempt: its site has it, or is not to have it."""
    db.run("flows_drop", task=task, number=number)


def again(db: Db, task: int, number: int) -> bool:
    """Have the job of an attempt sent once more, if it is still here."""
    return db.value("flows_again", task=task, number=number) is not None


def never_sent(db: Db, task: int, number: int) -> bool:
    """Say whether the broker has refused the job of an attempt, so that nobody has it."""
    return db.value("flows_never_sent", task=task, number=number, kept=KEPT) is not None


def later(db: Db, word: Word, now: float) -> float:
    """Have a message tried again, each time a little later; return when."""
    after = now + min(_LATE_S, _SOON_S * 2.0 ** min(word.tries, 10))
    db.run("flows_later", id=word.id, after=after)
    return after
