"""Sites with an agent as commands and the web page show them, read from the store."""

from __future__ import annotations

import functools
import re
from typing import Any, Literal

import msgspec

from pilotage.bus.model import Drain, Heartbeat, Scheduler
from pilotage.edge import health
from pilotage.edge.health import Word
from pilotage.edge.order import PILOT
from pilotage.match.sites import SiteView
from pilotage.match.sites import offering as offered
from pilotage.store import Db

#: Seconds for which the hub's records of sites and of the broker are valid.
FRESH_S = 20.0
#: Seconds to which the age of a report of a site is rounded.
_STEP_S = 10.0
NO_PILOTS = (
    "site {site} starts no pilots: its administrator has to register the application `pilot`, "
    'a file apps/pilot.toml with `takes = "pilot"` and `[limits]` with `maximum`'
)
_DEAF = "no hub listens to the broker now: `pilotage up` does"


class SiteRecord(msgspec.Struct, frozen=True):
    """The record of a site in the store."""

    name: str
    speaker: str
    heard: float
    state: Word
    since: float
    gaps: list[float]
    beat: Heartbeat
    #: Whether its agent comes by this hub's port, and not by a broker.
    ported: bool = False


class BrokerView(msgspec.Struct, frozen=True):
    """The state of the connection to the broker."""

    #: Why no messages are received; empty if we listen.
    trouble: str
    #: Since when; none if unknown.
    since: float | None = None


class EdgeSite(msgspec.Struct, frozen=True, kw_only=True):
    """A site, and the report of its agent."""

    name: str
    #: `unknown` if no messages of sites are received.
    state: Literal["well", "draining", "trouble", "silent", "unknown"]
    #: The health as text; often empty if all is well.
    words: str
    #: Whether a problem is to be expected soon.
    warned: bool
    #: Whether it is drained, and by whom, when and why.
    draining: bool
    drain: Drain
    #: Since when it is in this state, and when it was last seen.
    since: float
    heard: float
    #: The sender of its messages, as the broker knows it; and whether it uses this hub's port.
    speaker: str
    ported: bool
    batch: str
    #: The state of its batch system and its queues.
    scheduler: Scheduler
    #: Applications that it runs, and a digest of the rules by which it judges jobs.
    applications: tuple[str, ...]
    rules: str
    #: Those of them whose jobs may carry small inputs in their messages.
    carries: tuple[str, ...]
    #: Bytes of such inputs that one message may carry.
    carried: int
    #: Jobs there by state.
    jobs: dict[str, int]
    #: Status messages that wait to be sent.
    outbox: int
    #: Days until its certificate expires, and free bytes.
    certificate_days: float | None
    disk_free: int
    #: The version of Pilotage there, how often an agent took the site over, and how long ago the
    #: last one did, in seconds of the site's own clock.
    version: str
    epoch: int
    age: float
    #: Seconds between heartbeats.
    interval: float

    @property
    def live(self) -> int:
        """The number of jobs that have not ended."""
        return health.live(self.jobs)


def offer(one: EdgeSite, now: float) -> dict[str, Any]:
    """Return what requirements and rank may ask of a site, as its agent reported it last.

    Its age is rounded, so that a place is not described again with each check.
    """
    queues = [queue for queue in one.scheduler.queues if queue.open]
    found: dict[str, Any] = {
        "age": max(0.0, now - one.heard) // _STEP_S * _STEP_S, "jobs": one.live,
        "disk": one.disk_free,
    }  # fmt: skip
    if not queues:
        return found
    for queue in queues:
        found[f"free_nodes_{_plain(queue.name)}"] = queue.free_nodes
        if queue.time:
            found[f"time_limit_{_plain(queue.name)}"] = queue.time
        if queue.jobs:
            found[f"job_limit_{_plain(queue.name)}"] = queue.jobs
    longest = [queue.time for queue in queues if queue.time]
    if len(longest) == len(queues):
        found["time_limit"] = max(longest)
    usual = [queue for queue in queues if queue.default] or queues
    return found | {
        "queues": sorted(queue.name for queue in queues),
        "nodes": max(queue.nodes for queue in queues),
        "free_nodes": max(queue.free_nodes for queue in usual),
        "cpus": max(queue.cpus for queue in queues),
        "memory": max(queue.memory for queue in queues),
    }


def _plain(name: str) -> str:
    """Write the name of a queue so that it can be part of a name in an expression."""
    return re.sub(r"\W", "_", name, flags=re.ASCII)


class EdgeSitesView(msgspec.Struct, frozen=True):
    """All sites with an agent, and the state of the broker."""

    edges: list[EdgeSite]
    broker: BrokerView


def look(db: Db, now: float, *, running: bool = True) -> EdgeSitesView:
    """Read the health of all sites; it is unknown while no hub is `running`."""
    broker = _broker(db, now, running=running)
    return EdgeSitesView([_edge(one, broker, now) for one in records(db)], broker)


class PilotSite(msgspec.Struct, frozen=True):
    """A site with an agent, as pools that order pilots see it."""

    batch: str
    #: Why nothing may be ordered there; empty if it may.
    closed: str
    #: Its problem, although it takes orders; empty if there is none.
    trouble: str = ""


def pilot_sites(db: Db, now: float, *, running: bool = True) -> dict[str, PilotSite]:
    """Return the sites with an agent, also those whose agent has not connected yet."""
    rows = {row[1]: row for row in db.rows("site_all")}
    seen, found = look(db, now, running=running), dict[str, PilotSite]()
    for one in seen.edges:
        if one.name in rows and rows[one.name][10] == "agent":
            closed = _closed(one, seen.broker, drained=bool(rows[one.name][6]))
            trouble = f"site {one.name}: {one.words}" if one.state == "trouble" else ""
            found[one.name] = PilotSite(one.batch, closed, trouble)
    for name, scope in db.rows("site_tokens", now=now):
        if scope == "agent" and (name not in rows or rows[name][10] != "batch"):
            found.setdefault(name, PilotSite("", f"the agent of {name} has not come yet"))
    return found


def _closed(one: EdgeSite, broker: BrokerView, *, drained: bool) -> str:
    """Return why no pilot may be ordered at a site, and what to do about it."""
    if drained:
        return f"site {one.name} is drained"
    if one.state == "unknown":
        return f"no messages arrive from {one.name}: {broker.trouble}"
    if one.state == "silent":
        return f"site {one.name} is silent: no heartbeat comes from its agent"
    if one.draining:
        return f"site {one.name} is drained by its administrator"
    return "" if PILOT in one.applications else NO_PILOTS.format(site=one.name)


def records(db: Db) -> list[SiteRecord]:
    """Read the records of all sites."""
    return [one for row in db.rows("edges_all") if (one := _record(row))]


def record(db: Db, name: str) -> SiteRecord | None:
    """Read the record of a site."""
    row = db.row("edges_one", name=name)
    return _record(row) if row else None


def offering(db: Db, name: str) -> SiteView:
    """Return the view of a site by its last heartbeat alone."""
    row = db.row("edges_one", name=name)
    return offered(name, _applications(row[6]) if row else None)


@functools.lru_cache(maxsize=256)
def _applications(body: str) -> tuple[str, ...] | None:
    """Return the applications that a heartbeat names; none if it is of another version."""
    try:
        return msgspec.json.decode(body, type=Heartbeat).applications
    except msgspec.MsgspecError:
        return None


def _record(row: tuple[Any, ...]) -> SiteRecord | None:
    name, speaker, heard, state, since, gaps, body, ported = row
    try:
        beat = msgspec.json.decode(body, type=Heartbeat)
        lasting = msgspec.json.decode(gaps)
        return SiteRecord(name, speaker, heard, state, since, lasting, beat, bool(ported))
    except msgspec.MsgspecError:
        # Of another version; the next heartbeat is of this one.
        return None


def _broker(db: Db, now: float, *, running: bool) -> BrokerView:
    row = db.row("edges_broker")
    if row is None or not running or now - row[2] > FRESH_S:
        return BrokerView(_DEAF, row[2] if row else None)
    return BrokerView(row[0], row[1])


def _edge(one: SiteRecord, broker: BrokerView, now: float) -> EdgeSite:
    beat, age = one.beat, max(0.0, now - one.heard)
    # A problem of the broker matters only to sites that use it.
    known = not broker.trouble or (one.ported and broker.trouble != _DEAF)
    words = health.tell(one.state, beat, age) if known else health.past(one.state)
    left = health.days(beat, age)
    return EdgeSite(
        name=one.name, state=one.state if known else "unknown", words=words,
        warned=known and health.warned(beat, age), draining=beat.draining, drain=beat.drain,
        since=one.since, heard=one.heard, speaker=one.speaker, ported=one.ported,
        batch=beat.scheduler.batch, scheduler=beat.scheduler, applications=beat.applications,
        rules=beat.rules, carries=beat.carries, carried=beat.carried,
        jobs={str(word): count for word, count in beat.counts.items()}, outbox=beat.outbox,
        certificate_days=None if left is None else round(left, 2),
        disk_free=beat.disk_free, version=beat.version, epoch=beat.epoch,
        age=max(0.0, beat.time - beat.since) + age if beat.since else age,
        interval=health.interval(one.gaps),
    )  # fmt: skip
