"""How a site is, judged by its heartbeats; when one came says the clock of the hub alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pilotage.base import units
from pilotage.bus.model import Drain, Heartbeat

Word = Literal["well", "draining", "trouble", "silent"]

#: Heartbeats are taken to be so far apart until it is known, in seconds.
USUAL_S = 30.0
#: So many must be missing before a site is silent, and for so long at least, in seconds.
MISSING = 3
_LEAST_S = 10.0
#: So many of the last gaps count, and only those between these, in seconds.
_GAPS = 5
_SHORT_S, _LONG_S = 0.5, 3600.0
#: A certificate that is good for fewer days is worth a word.
SOON_DAYS = 14.0
_DAY_S = 86_400.0
#: A site with less room takes no more jobs, unless its own settings say otherwise.
_LEAST_ROOM = 1_000_000_000
_OVER = frozenset(("done", "failed", "cancelled", "rejected"))


def learn(gaps: Sequence[float], before: Heartbeat, beat: Heartbeat) -> list[float]:
    """Take another gap into account.

    It is read from the times that the site wrote: a broker that was away delivers many at once.
    Between two runs of an agent there was no rhythm.
    """
    gap = beat.time - before.time
    if (beat.epoch, beat.since) != (before.epoch, before.since) or not _SHORT_S <= gap <= _LONG_S:
        return list(gaps)
    return [*gaps, round(gap, 1)][-_GAPS:]


def interval(gaps: Sequence[float]) -> float:
    """Say how far heartbeats are apart.

    One long gap does not matter, nor do some that came early, as after a reload. That they are
    faster than usual is believed when all of them were: else a site would seem silent that is not.
    """
    if not gaps:
        return USUAL_S
    found = sorted(gaps)[-min(2, len(gaps))]
    return found if len(gaps) == _GAPS else max(USUAL_S, found)


def patience(gaps: Sequence[float]) -> float:
    """Say after how many seconds without a heartbeat a site is silent."""
    return max(_LEAST_S, MISSING * interval(gaps))


def judge(beat: Heartbeat, quiet: float, gaps: Sequence[float]) -> Word:
    """Say how a site is that we have listened to in vain for some seconds."""
    if quiet > patience(gaps):
        return "silent"
    if troubles(beat, quiet):
        return "trouble"
    return "draining" if beat.draining else "well"


def stale(before: Heartbeat, beat: Heartbeat, quiet: float, gaps: Sequence[float]) -> bool:
    """Say whether a heartbeat is of an agent that another one has followed.

    If that other one has fallen silent, the site may well have begun to count anew.
    """
    return beat.epoch < before.epoch and quiet <= patience(gaps)


def tell(word: str, beat: Heartbeat, age: float) -> str:
    """Say in a sentence how a site is that was last heard of some seconds ago."""
    if word == "silent":
        return f"no heartbeat for {units.for_people(age)}"
    said = troubles(beat, age) if word == "trouble" else []
    if beat.draining:
        said.append(drained(beat.drain))
    if soon := _ends(beat, age):
        said.append(soon)
    return "; ".join(said)


def drained(drain: Drain) -> str:
    """Say that a site takes no more jobs, by whom and why."""
    by = f", drained by {drain.by}" if drain.by else ""
    return f"takes no more jobs{by}{f': {drain.why}' if drain.why else ''}"


def past(word: Word) -> str:
    """Say how a site was of which nothing is known now."""
    how = "in trouble" if word == "trouble" else word
    return f"was {how} when it was last heard of"


def troubles(beat: Heartbeat, age: float) -> list[str]:
    """Say what is wrong at a site."""
    found = []
    if not beat.scheduler.well:
        name = beat.scheduler.batch or "the batch system"
        found.append(f"{name}: {beat.scheduler.text or 'does not answer'}")
    if beat.disk_free < _LEAST_ROOM:
        found.append(f"{units.bytes_for_people(beat.disk_free)} of disk are free for jobs")
    left = days(beat, age)
    if left is not None and left < 0:
        found.append("its certificate is over")
    return found


def warned(beat: Heartbeat, age: float) -> bool:
    """Say whether something will be wrong soon."""
    return bool(_ends(beat, age))


def days(beat: Heartbeat, age: float) -> float | None:
    """Say for how many days the certificate of a site is good."""
    return None if beat.certificate_days is None else beat.certificate_days - age / _DAY_S


def live(counts: Mapping[str, int]) -> int:
    """Count jobs that are not at an end."""
    return sum(count for state, count in counts.items() if state not in _OVER)


def _ends(beat: Heartbeat, age: float) -> str:
    left = days(beat, age)
    if left is None or not 0 <= left < SOON_DAYS:
        return ""
    return f"its certificate ends in {units.for_people(left * _DAY_S)}"
