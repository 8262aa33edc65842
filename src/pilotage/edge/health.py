"""Health of a site, judged by its heartbeats and the clock of the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from pilotage.base import units
from pilotage.bus.model import Drain, Heartbeat

Word = Literal["well", "draining", "trouble", "silent"]

#: Seconds between heartbeats, until the real interval is known.
USUAL_S = 30.0
#: Missing heartbeats before a site is silent, and the least time in seconds.
MISSING = 3
_LEAST_S = 10.0
#: Number of the last gaps that count, and their bounds in seconds.
_GAPS = 5
_SHORT_S, _LONG_S = 0.5, 3600.0
#: Days before expiry from which a certificate raises a warning.
SOON_DAYS = 14.0
_DAY_S = 86_400.0
#: A site with less room takes no more jobs, unless its own settings say otherwise.
_LEAST_ROOM = 1_000_000_000
_OVER = frozenset(("done", "failed", "cancelled", "rejected"))


def learn(gaps: Sequence[float], before: Heartbeat, beat: Heartbeat) -> list[float]:
    """Add another gap between heartbeats.

    It is computed from the times in the heartbeats: a broker that was away delivers many at once.
    A gap between two runs of an agent does not count.
    """
    gap = beat.time - before.time
    if (beat.epoch, beat.since) != (before.epoch, before.since) or not _SHORT_S <= gap <= _LONG_S:
        return list(gaps)
    return [*gaps, round(gap, 1)][-_GAPS:]


def interval(gaps: Sequence[float]) -> float:
    """Return the interval of heartbeats.

    Single long or short gaps, as after a reload, do not matter. A shorter interval counts only
    when all gaps are shorter: otherwise a site would seem silent that is not.
    """
    if not gaps:
        return USUAL_S
    found = sorted(gaps)[-min(2, len(gaps))]
    return found if len(gaps) == _GAPS else max(USUAL_S, found)


def patience(gaps: Sequence[float]) -> float:
    """Return after how many seconds without a heartbeat a site is silent."""
    return max(_LEAST_S, MISSING * interval(gaps))


def judge(beat: Heartbeat, quiet: float, gaps: Sequence[float]) -> Word:
    """Return the health of a site that has been quiet for some seconds."""
    if quiet > patience(gaps):
        return "silent"
    if troubles(beat, quiet):
        return "trouble"
    return "draining" if beat.draining else "well"


def stale(before: Heartbeat, beat: Heartbeat, quiet: float, gaps: Sequence[float]) -> bool:
    """Return whether a heartbeat is of an agent that another one has replaced.

    If that other one has fallen silent, the site may have restarted its count.
    """
    return beat.epoch < before.epoch and quiet <= patience(gaps)


def tell(word: str, beat: Heartbeat, age: float) -> str:
    """Describe the health of a site that was last seen some seconds ago."""
    if word == "silent":
        return f"no heartbeat for {units.for_people(age)}"
    said = troubles(beat, age) if word == "trouble" else []
    if beat.draining:
        said.append(drained(beat.drain))
    if soon := _ends(beat, age):
        said.append(soon)
    return "; ".join(said)


def drained(drain: Drain) -> str:
    """Describe by whom and why a site is drained."""
    by = f", drained by {drain.by}" if drain.by else ""
    return f"takes no more jobs{by}{f': {drain.why}' if drain.why else ''}"


def past(word: Word) -> str:
    """Describe the last known health of a site whose health is unknown now."""
    how = "in trouble" if word == "trouble" else word
    return f"was {how} when last seen"


def troubles(beat: Heartbeat, age: float) -> list[str]:
    """Return the problems of a site."""
    found = []
    if not beat.scheduler.well:
        name = beat.scheduler.batch or "the batch system"
        found.append(f"{name}: {beat.scheduler.text or 'does not answer'}")
    if beat.disk_free < _LEAST_ROOM:
        found.append(f"{units.bytes_for_people(beat.disk_free)} of disk are free for jobs")
    left = days(beat, age)
    if left is not None and left < 0:
        found.append("its certificate has expired")
    return found


def warned(beat: Heartbeat, age: float) -> bool:
    """Return whether a problem is to be expected soon."""
    return bool(_ends(beat, age))


def days(beat: Heartbeat, age: float) -> float | None:
    """Return the days until the certificate of a site expires."""
    return None if beat.certificate_days is None else beat.certificate_days - age / _DAY_S


def live(counts: Mapping[str, int]) -> int:
    """Count jobs that are not at an end."""
    return sum(count for state, count in counts.items() if state not in _OVER)


def _ends(beat: Heartbeat, age: float) -> str:
    left = days(beat, age)
    if left is None or not 0 <= left < SOON_DAYS:
        return ""
    return f"its certificate expires in {units.for_people(left * _DAY_S)}"
