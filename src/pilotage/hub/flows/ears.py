"""What is heard of attempts, as rows: from sites by the bus, and from jobs of this hub.

The last word on an attempt ends it, unless its data is to be looked at first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pilotage.bus.model import Answer, Result, Status
from pilotage.flow import moves, records
from pilotage.flow.ends import OVER
from pilotage.flow.model import End
from pilotage.flow.records import AttemptRow
from pilotage.hub.flows import outbox, recall, results
from pilotage.hub.flows.edge import Address
from pilotage.hub.flows.said import Said, own
from pilotage.store import Db

#: News of our own jobs that are taken in at once.
MOST = 1000


class Heard(msgspec.Struct, frozen=True):
    """What came of words on attempts."""

    #: Attempts whose data is to be looked at, as (task, number).
    check: tuple[tuple[int, int], ...] = ()
    #: Attempts that ended.
    ended: int = 0
    #: Whether there may be more.
    more: bool = False


def hear(db: Db, said: Iterable[Said], address: Address, now: float) -> Heard:
    """Take in what sites say."""
    check: dict[tuple[int, int], None] = {}
    ended = 0
    for one in own(db, said):
        words = [one] if isinstance(one, Status) else _results(db, one, address, now)
        for word in words:
            attempt = _spoken(db, word, one.site, address)
            if attempt is None:
                continue
            _resent(db, attempt, one, word, now)
            if _word(db, attempt, word, now):
                ended += 1
            elif _to_check(db, attempt):
                check[attempt.task, attempt.number] = None
    return Heard(tuple(check), ended)


def _results(db: Db, answer: Answer, address: Address, now: float) -> list[Result]:
    """Return what an answer says of single jobs; of those that a site does not know, nothing."""
    found = []
    for one in answer.results:
        if one.job:
            found.append(one)
        elif attempt := _spoken(db, one, answer.site, address):
            _resent(db, attempt, answer, one, now)
            _unknown(db, attempt, answer, address, now)
    return found


def _resent(
    db: Db, attempt: AttemptRow, said: Status | Answer, word: Status | Result, now: float
) -> None:
    """Take in that data was sent again, or cannot be."""
    if isinstance(said, Answer):
        over = said.verb == "resend" and isinstance(word, Result) and not word.ok
    else:
        # An end that is told once more: there was something else to say of it.
        over = attempt.state == "done" and said.state == "done" and said.seq > attempt.seq
    if over:
        results.told(db, attempt, now)


def _spoken(db: Db, word: Status | Result, site: str, address: Address) -> AttemptRow | None:
    """Return the attempt that a site speaks of; a site speaks for itself alone."""
    key = address.attempt(word.key)
    found = records.by_key(db, key) if key else None
    return found if found and found.site == site and found.way == "bus" else None


def _word(db: Db, attempt: AttemptRow, word: Status | Result, now: float) -> bool:
    """Take in one word on an attempt; say whether that ended it."""
    if attempt.heard is None:
        # The site has it: it need not be sent again.
        outbox.drop(db, attempt.task, attempt.number)
    if isinstance(word, Result):
        if not word.state:
            return False
        seq, text, kind, code = None, word.text, "", ""
    else:
        seq, text = word.seq, word.reason.text
        kind, code = word.reason.kind, word.reason.code
        if (word.left or word.read) and attempt.ended is None:
            # What was found there once stays what others rely on.
            _left(db, attempt, word)
    counts = moves.hear(
        db, attempt.key, seq, str(word.state), text, kind, code, word.job or None, now
    )
    if not counts:
        return False
    if word.state not in OVER:
        return False
    return finish(db, records.by_key(db, attempt.key), now)


def _left(db: Db, attempt: AttemptRow, word: Status) -> None:
    mine = [one for one in word.left if one.url == attempt.place] or list(word.left[:1])
    db.run(
        "flows_left", key=attempt.key, digest=mine[0].digest if mine else "",
        files=sum(one.files for one in word.left), bytes=sum(one.bytes for one in word.left),
        read=word.read,
    )  # fmt: skip


def _unknown(db: Db, attempt: AttemptRow, answer: Answer, address: Address, now: float) -> None:
    """Take in that a site knows nothing of an attempt.

    Its message may still be on the way, since what is asked comes by another queue: so it is sent
    or asked again. A site that knew it before it was asked has lost it; if it was heard on it since
    then, it did not know it yet when it answered.
    """
    if answer.verb == "cancel":
        if attempt.ended is None:
            recall.unknown(db, attempt, address, now)
    elif attempt.ended is not None or answer.draining:
        # A site that takes no more jobs has not looked at those that wait.
        return
    elif attempt.heard is not None and attempt.heard > (attempt.asked or 0.0):
        return
    elif attempt.heard is not None:
        reason = f"{attempt.site} does not know it any more"
        end = End(state="lost", reason=reason, kind="infrastructure", code="forgotten")
        moves.end(db, attempt.task, attempt.number, end, now)
    else:
        outbox.again(db, attempt.task, attempt.number)


def _to_check(db: Db, attempt: AttemptRow) -> bool:
    """Say whether the data of an attempt that is over waits for somebody to look at it."""
    now = records.attempt(db, attempt.task, attempt.number)
    return now is not None and now.ended is None and now.state in OVER and wants_check(now)


def wants_check(attempt: AttemptRow) -> bool:
    """Say whether the data of an attempt is to be looked at before its end counts."""
    if attempt.state == "done":
        return bool(attempt.place)
    # What it could not read may be gone where it was left.
    return attempt.state == "failed" and attempt.kind == "staging"


def finish(db: Db, attempt: AttemptRow | None, now: float) -> bool:
    """End an attempt that is over, unless its data is to be looked at first."""
    if attempt is None or attempt.ended is not None or wants_check(attempt):
        return False
    return moves.end(db, attempt.task, attempt.number, end_of(attempt), now)


def end_of(attempt: AttemptRow) -> End:
    """Say how an attempt ended by what was heard of it."""
    state: Any = attempt.state
    return End(state=state, reason=attempt.reason, kind=attempt.kind, code=attempt.code)


def news(db: Db, now: float) -> Heard:
    """Take in what became of jobs of this hub."""
    rows = db.rows("flows_news", most=MOST)
    check: list[tuple[int, int]] = []
    ended = 0
    for seq, state, reason, key in rows:
        kind = "application" if state == "failed" else "policy" if state == "rejected" else ""
        counts = key and moves.hear(db, key, seq, state, reason, kind, "", None, now)
        attempt = records.by_key(db, key) if counts else None
        if attempt and state in OVER:
            if wants_check(attempt):
                check.append((attempt.task, attempt.number))
            else:
                ended += finish(db, attempt, now)
    if rows:
        db.run("flows_news_taken", last=rows[-1][0])
    return Heard(tuple(check), ended, len(rows) == MOST)
