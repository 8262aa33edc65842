"""What is told of workflows: each message has its row before it, and loses it only after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from pilotage.base import text
from pilotage.store import Db

Kind = Literal["status", "webhook", "email"]
#: Seconds before the first further try, and between the last ones.
_SOON_S, _LATE_S = 1.0, 15.0


class Word(msgspec.Struct, frozen=True):
    """A message."""

    id: int
    flow: int
    kind: Kind
    #: A topic, a URL or an address.
    topic: str
    body: str
    tries: int

    @property
    def line(self) -> tuple[int, str]:
        """What keeps its order: messages of one line are sent one after the other."""
        return (self.flow, self.topic)


def put(db: Db, flow: int, kind: Kind, topic: str, body: str) -> None:
    """Have a message sent, in a transaction of the caller's."""
    db.run("flows_put", flow=flow, kind=kind, topic=topic, body=body)


def unsent(db: Db, kinds: Sequence[Kind], now: float, *, after: int, most: int) -> list[Word]:
    """Read messages of some kinds that are to be sent now."""
    wanted = text.dump(list(kinds))
    rows = db.rows("flows_unsent", kinds=wanted, now=now, after=after, most=most)
    return [Word(*row) for row in rows]


def sent(db: Db, words: Sequence[Word]) -> None:
    """Forget messages that were sent."""
    if words:
        db.run("flows_sent", ids=text.dump([one.id for one in words]))


def later(db: Db, word: Word, now: float) -> float:
    """Have a message tried again, each time a little later; return when."""
    after = now + min(_LATE_S, _SOON_S * 2.0 ** min(word.tries, 10))
    db.run("flows_later", id=word.id, after=after)
    return after
