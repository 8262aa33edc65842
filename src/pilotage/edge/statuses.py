"""Statuses of attempts that sites report: read, checked against their sender, and stored."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import msgspec

from pilotage.base import errors, text
from pilotage.bus import wire
from pilotage.bus.model import Answer, Log, Result, Status
from pilotage.bus.port import Message
from pilotage.edge import cancel, pilots, records
from pilotage.edge.message import Address
from pilotage.edge.records import OVER, Attempt, End
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.store import Db

_log = logging.getLogger("pilotage.edge")
#: No user of a broker has this name.
_PORTED = "\n"
#: What sites say of attempts.
Word = Status | Answer | Log


class Said(msgspec.Struct, frozen=True):
    """What somebody says of attempts."""

    #: Who it is, as the broker knows them, or the site at this hub's port; empty if none is known.
    user: str
    word: Word


def read(messages: Iterable[Message]) -> list[Said]:
    """Read what sites say; what is for others, or nobody understands, is left out."""
    found: list[Said] = []
    for one in messages:
        try:
            word = wire.decode(one.body)
        except errors.BadMessage:
            # Statuses in the words of others come by the same topics.
            continue
        if isinstance(word, Word):
            found.append(Said(one.user, word))
    return found


def proved(said: Iterable[Said]) -> list[Word]:
    """Leave out what agents at this hub's port say of another site than their token is for."""
    found: list[Word] = []
    for one in said:
        if one.word.site == one.user:
            found.append(one.word)
        else:
            _log.warning("ignored: the agent of %s reports for %s", one.user, one.word.site)
    return found


def own(db: Db, said: Iterable[Said]) -> Iterator[Word]:
    """Leave out what others say of a site than whom its heartbeats come from.

    Who may send those is for the broker to say; of a site that sends none, anybody is heard.
    """
    speakers: dict[str, str | None] = {}
    others: set[tuple[str, str]] = set()
    for one in said:
        site = one.word.site
        if site not in speakers:
            row = db.row("edges_one", name=site)
            # An agent at this hub's port is not heard by the broker.
            ported = db.value("agent_site", site=site) is not None
            speakers[site] = _PORTED if ported else row[1] if row else None
        if speakers[site] in (None, one.user):
            yield one.word
        elif (one.user, site) not in others:
            others.add((one.user, site))
            _log.warning("ignored: %r reports for the site %s", one.user, site)


#: How far an attempt has come here when a site says so; what waits there is on its way.
_PROGRESS = {
    "ready": State.READY,
    "submitted": State.SUBMITTED,
    "running": State.RUNNING,
    "staging_out": State.STAGING_OUT,
}
_BEGUN = frozenset({"running", "staging_out", "done"})


class Steps(Protocol):
    """What workflows want to know of their steps at sites; all of it in our transaction."""

    def resent(
        self, db: Db, site: str, key: str, word: Status | Result, now: float, /
    ) -> None:  # fmt: skip
        """Hear that outputs which were asked for again were sent, or cannot be."""

    def silent(self, db: Db, job: int, reason: str, now: float, /) -> None:
        """Hear that a site says nothing of a job."""

    def offered(self, db: Db, site: str, applications: Sequence[str], now: float, /) -> None:
        """Hear which applications a site has, when it is first heard of or they change."""

    def strand(self, db: Db, before: float, now: float, /) -> None:
        """Look at jobs that have waited since a time for sites which are silent."""


def hear(
    db: Db, said: Iterable[Status | Answer], address: Address, now: float,
    steps: Steps | None = None,
) -> list[Attempt]:  # fmt: skip
    """Take in what sites say; return the attempts of jobs that are over by it."""
    over: list[Attempt] = []
    for one in said:
        words: Iterable[Status | Result] = [one] if isinstance(one, Status) else one.results
        for word in words:
            key = address.attempt(word.key)
            attempt = records.by_key(db, key) if key else None
            if not key or (attempt is not None and attempt.site != one.site):
                # A site speaks for itself alone.
                continue
            if steps is not None and _resent(one, word, attempt):
                steps.resent(db, one.site, key, word, now)
            if attempt is not None and _ends(db, attempt, one, word, address, now):
                found = records.get(db, attempt.job, attempt.number)
                if found is not None and found.pilot:
                    log = word.stderr if isinstance(word, Status) else ""
                    pilots.over(db, found, now, log)
                elif found is not None:
                    over.append(found)
    return over


def _ends(
    db: Db, attempt: Attempt, said: Status | Answer, word: Status | Result, address: Address,
    now: float,
) -> bool:  # fmt: skip
    """Take in one word on an attempt; say whether it was the last."""
    if isinstance(word, Result) and not word.job:
        return _unknown(db, attempt, said, address, now)
    if attempt.over and _goes_on(attempt, word):
        # Its message arrived after all, or the site comes back late.
        cancel.revived(db, attempt, address, now)
    return _word(db, attempt, word, now)


def _goes_on(attempt: Attempt, word: Status | Result) -> bool:
    """Say whether a word is a new one of an attempt that is not over at its site."""
    new = isinstance(word, Status) and word.seq > attempt.seq
    return new and word.state not in OVER


def _resent(said: Status | Answer, word: Status | Result, attempt: Attempt | None) -> bool:
    """Say whether a word is on outputs that were asked for again."""
    if isinstance(said, Answer):
        return said.verb == "resend" and isinstance(word, Result) and not word.ok
    # An end that is told once more: there was something else to say of it.
    again = attempt is None or (attempt.state == "done" and said.seq > attempt.seq)
    return said.state == "done" and again


def _word(db: Db, attempt: Attempt, word: Status | Result, now: float) -> bool:
    """Take in one word on an attempt; say whether it was the last."""
    job, number = attempt.job, attempt.number
    if attempt.heard is None:
        # The site has it: it need not be sent again.
        records.drop_job(db, job, number)
    old = isinstance(word, Status) and word.seq <= attempt.seq
    if attempt.over or old or not word.state:
        seq = word.seq if isinstance(word, Status) else 0
        db.run("edge_attempt_heard", job=job, number=number, seq=seq, now=now)
        return False
    status = word if isinstance(word, Status) else None
    left = status.left if status else ()
    reason = status.reason.text if status else word.text  # type: ignore[union-attr]
    began = (status.time if status else now) if word.state in _BEGUN else None
    db.run(
        "edge_attempt_hear", job=job, number=number, state=word.state, reason=reason,
        kind=status.reason.kind if status else "", code=status.reason.code if status else "",
        seq=status.seq if status else 0, now=now, began=began,
        stopped=(status.time if status else now) if word.state in OVER else None,
        digest=left[0].digest if left else attempt.digest, files=sum(one.files for one in left),
        bytes=sum(one.bytes for one in left), read=status.read if status else 0,
    )  # fmt: skip
    if word.state in OVER:
        if status and status.result and attempt.job:
            _keep_result(db, attempt, status.result)
        return True
    if attempt.pilot:
        pilots.hear(db, attempt, word.state, reason)
        return False
    if state := _PROGRESS.get(word.state):
        moves.progress(db, [(job, number)], state, reason, now)
    if state is None or reason:
        records.say(db, job, number, _waiting(attempt.site, word.state, reason))
    return False


def _keep_result(db: Db, attempt: Attempt, result: str) -> None:
    """Keep what a function returned, if the attempt is the one that its job is in."""
    try:
        found = text.dump(text.load(result))
    except (ValueError, RecursionError):
        _log.warning("job %d: %s says a result that is no JSON", attempt.job, attempt.site)
        return
    if jobs.get(db, attempt.job).attempt == attempt.number:
        db.run("result_put", job=attempt.job, body=found)


def _waiting(site: str, state: str, reason: str) -> str:
    """Say why an attempt that is at a site does not run."""
    words = {"held": "held there", "waiting": "waits there", "queued": "waits there"}.get(state, "")
    return ": ".join(part for part in (f"at {site}" if words else "", words, reason) if part)


def _unknown(db: Db, attempt: Attempt, said: Status | Answer, address: Address, now: float) -> bool:
    """Take in that a site knows nothing of an attempt; say whether that ends it.

    Its message may still be on the way, since what is asked comes by another queue: so it is sent,
    or asked, again. A site that knew it before it was asked has lost it; if it was heard on it
    since then, it did not know it yet when it answered.
    """
    if attempt.over or not isinstance(said, Answer):
        return False
    if said.verb == "cancel":
        return cancel.unknown(db, attempt, address, now)
    if attempt.cancel:
        # What it says of the call counts.
        return False
    if said.draining:
        # A site that accepts no more jobs has not looked at those that wait.
        return False
    if attempt.heard is None:
        records.again(db, attempt.job, attempt.number)
        return False
    if attempt.heard > (attempt.asked or 0.0):
        return False
    reason = f"{attempt.site} no longer knows it"
    records.end(db, attempt, End("failed", reason, "infrastructure", records.FORGOTTEN), now)
    return True
