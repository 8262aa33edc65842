"""Sites that are heard of by the bus, as commands and the page see them: read from the store."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.bus.model import Heartbeat
from pilotage.hub import edge_health
from pilotage.hub.edge_health import Word
from pilotage.hub.places import FRESH_S
from pilotage.store import Db

_DEAF = "no hub listens to the broker now: `pilotage up` does"


class Record(msgspec.Struct, frozen=True):
    """What the store knows of a site."""

    name: str
    speaker: str
    heard: float
    state: Word
    since: float
    gaps: list[float]
    beat: Heartbeat


class Broker(msgspec.Struct, frozen=True):
    """How it goes with the broker."""

    #: Why nothing is heard; empty if we listen.
    trouble: str
    #: Since when it is so; nothing if nobody knows.
    since: float | None = None


class Edge(msgspec.Struct, frozen=True, kw_only=True):
    """A site, and what its agent says of it."""

    name: str
    #: `unknown` if nothing is heard of any site.
    state: Literal["well", "draining", "trouble", "silent", "unknown"]
    #: A sentence on it; often empty if all is well.
    words: str
    #: Whether something will be wrong soon.
    warned: bool
    #: Since when it is as it is, and when it was heard of last.
    since: float
    heard: float
    #: Who speaks for it, as the broker knows them.
    speaker: str
    batch: str
    #: Jobs there by state.
    jobs: dict[str, int]
    #: Status messages that wait to be sent.
    outbox: int
    #: Days that its certificate is good for, and free bytes.
    certificate_days: float | None
    disk_free: int
    #: The version of Pilotage there, how often an agent took the site over, and how long ago the
    #: last one did, in seconds of the site's own clock.
    version: str
    epoch: int
    age: float
    #: How far heartbeats are apart, in seconds.
    interval: float

    @property
    def live(self) -> int:
        """How many jobs are not at an end."""
        return edge_health.live(self.jobs)


class Seen(msgspec.Struct, frozen=True):
    """All such sites, and whether what is said of them is of today."""

    edges: list[Edge]
    broker: Broker


def look(db: Db, now: float, *, running: bool = True) -> Seen:
    """Read how all sites are; while no hub is `running`, nobody knows."""
    broker = _broker(db, now, running=running)
    return Seen([_edge(one, broker, now) for one in records(db)], broker)


def records(db: Db) -> list[Record]:
    """Read what the store knows of all sites."""
    return [one for row in db.rows("edges_all") if (one := _record(row))]


def record(db: Db, name: str) -> Record | None:
    """Read what the store knows of a site."""
    row = db.row("edges_one", name=name)
    return _record(row) if row else None


def _record(row: tuple[Any, ...]) -> Record | None:
    name, speaker, heard, state, since, gaps, body = row
    try:
        beat = msgspec.json.decode(body, type=Heartbeat)
        return Record(name, speaker, heard, state, since, msgspec.json.decode(gaps), beat)
    except msgspec.MsgspecError:
        # Of another version; the next heartbeat is of this one.
        return None


def _broker(db: Db, now: float, *, running: bool) -> Broker:
    row = db.row("edges_broker")
    if row is None or not running or now - row[2] > FRESH_S:
        return Broker(_DEAF, row[2] if row else None)
    return Broker(row[0], row[1])


def _edge(one: Record, broker: Broker, now: float) -> Edge:
    beat, age = one.beat, max(0.0, now - one.heard)
    known = not broker.trouble
    words = edge_health.tell(one.state, beat, age) if known else edge_health.past(one.state)
    left = edge_health.days(beat, age)
    return Edge(
        name=one.name, state=one.state if known else "unknown", words=words,
        warned=known and edge_health.warned(beat, age), since=one.since, heard=one.heard,
        speaker=one.speaker, batch=beat.scheduler.batch,
        jobs={str(word): count for word, count in beat.counts.items()}, outbox=beat.outbox,
        certificate_days=None if left is None else round(left, 2),
        disk_free=beat.disk_free, version=beat.version, epoch=beat.epoch,
        age=max(0.0, beat.time - beat.since) + age if beat.since else age,
        interval=edge_health.interval(one.gaps),
    )  # fmt: skip
