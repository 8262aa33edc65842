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
from pilotage.edge.message import HubIdentity
from pilotage.edge.records import OVER, RemoteAttempt, RemoteEnd
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.store import Db

_log = logging.getLogger("pilotage.edge")
#: No user of a broker has this name.
_PORTED = "\n"
#: Messages of sites about attempts.
Word = Status | Answer | Log


class ReceivedWord(msgspec.Struct, frozen=True):
    """A message on attempts, and its sender."""

    #: The sender as verified by the broker, or the site at this hub's port; empty if unknown.
    user: str
    word: Word


def read(messages: Iterable[Message]) -> list[ReceivedWord]:
    """Decode messages of sites; others are left out."""
    found: list[ReceivedWord] = []
    for one in messages:
        try:
            word = wire.decode(one.body)
        except errors.BadMessage:
            # Statuses in other formats come by the same topics.
            continue
        if isinstance(word, Word):
            found.append(ReceivedWord(one.user, word))
    return found


def proved(said: Iterable[ReceivedWord]) -> list[Word]:
    """Drop messages of agents at this hub's port about another site than that of their token."""
    found: list[Word] = []
    for one in said:
        if one.word.site == one.user:
            found.append(one.word)
        else:
            _log.warning("ignored: the agent of %s reports for %s", one.user, one.word.site)
    return found


def own(db: Db, said: Iterable[ReceivedWord]) -> Iterator[Word]:
    """Drop messages about a site by others than the sender of its heartbeats.

    The broker decides who may send those; without heartbeats any sender is accepted.
    """
    speakers: dict[str, str | None] = {}
    others: set[tuple[str, str]] = set()
    for one in said:
        site = one.word.site
        if site not in speakers:
            row = db.row("edges_one", name=site)
            # Messages by the broker do not count for a site that has enrolled at this hub's port.
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


class StepEvents(Protocol):
    """Events of steps at sites that workflows handle, in the same transaction."""

    def resent(
        self, db: Db, site: str, key: str, word: Status | Result, now: float, /
    ) -> None:  # fmt: skip
        """Handle outputs that were sent again on request, or cannot be."""

    def silent(self, db: Db, job: int, reason: str, now: float, /) -> None:
        """Handle the silence of a site about a job."""

    def offered(self, db: Db, site: str, applications: Sequence[str], now: float, /) -> None:
        """Handle the applications of a site, when it is new or they change."""

    def strand(self, db: Db, before: float, now: float, /) -> None:
        """Look at jobs that have waited since a time for sites which are silent."""


def hear(
    db: Db, said: Iterable[Status | Answer], address: HubIdentity, now: float,
    steps: StepEvents | None = None,
) -> list[RemoteAttempt]:  # fmt: skip
    """Store statuses of sites; return the attempts of jobs that ended."""
    over: list[RemoteAttempt] = []
    for one in said:
        words: Iterable[Status | Result] = [one] if isinstance(one, Status) else one.results
        for word in words:
            key = address.attempt(word.key)
            attempt = records.by_key(db, key) if key else None
            if not key or (attempt is not None and attempt.site != one.site):
                # A site may report only on its own attempts.
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
    db: Db, attempt: RemoteAttempt, said: Status | Answer, word: Status | Result,
    address: HubIdentity, now: float,
) -> bool:  # fmt: skip
    """Store one status of an attempt; return whether it was the last."""
    if isinstance(word, Result) and not word.job:
        return _unknown(db, attempt, said, address, now)
    if attempt.over and _goes_on(attempt, word):
        # Its message arrived after all, or the site comes back late.
        cancel.revived(db, attempt, address, now)
    return _word(db, attempt, word, now)


def _goes_on(attempt: RemoteAttempt, word: Status | Result) -> bool:
    """Return whether a status is new, and its attempt is not over at its site."""
    new = isinstance(word, Status) and word.seq > attempt.seq
    return new and word.state not in OVER


def _resent(said: Status | Answer, word: Status | Result, attempt: RemoteAttempt | None) -> bool:
    """Return whether a status is about outputs that were requested again."""
    if isinstance(said, Answer):
        return said.verb == "resend" and isinstance(word, Result) and not word.ok
    # The end is reported again, with news.
    again = attempt is None or (attempt.state == "done" and said.seq > attempt.seq)
    return said.state == "done" and again


def _word(db: Db, attempt: RemoteAttempt, word: Status | Result, now: float) -> bool:
    """Store one status of an attempt; return whether it was the last."""
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


def _keep_result(db: Db, attempt: RemoteAttempt, result: str) -> None:
    """Store the result of a function, if the attempt is the current one of its job."""
    try:
        found = text.dump(text.load(result))
    except (ValueError, RecursionError):
        _log.warning("job %d: %s sent a result that is not JSON", attempt.job, attempt.site)
        return
    if jobs.get(db, attempt.job).attempt == attempt.number:
        db.run("result_put", job=attempt.job, body=found)


def _waiting(site: str, state: str, reason: str) -> str:
    """Return why an attempt that is at a site does not run."""
    words = {"held": "held there", "waiting": "waits there", "queued": "waits there"}.get(state, "")
    return ": ".join(part for part in (f"at {site}" if words else "", words, reason) if part)


def _unknown(
    db: Db, attempt: RemoteAttempt, said: Status | Answer, address: HubIdentity, now: float
) -> bool:
    """Handle an attempt that its site does not know; return whether that ends it.

    Its message may still be on the way, since queries use another queue: so it is sent, or queried,
    again. A site that reported it before the query has lost it; if it has reported it since then,
    it did not know it yet when it answered.
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
    records.end(db, attempt, RemoteEnd("failed", reason, "infrastructure", records.FORGOTTEN), now)
    return True
