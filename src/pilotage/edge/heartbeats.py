"""Monitoring of heartbeats of sites with an agent.

A lost broker says nothing of sites: none is reported silent before we have listened for long
enough. The hub's own port always listens.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection

import anyio
import msgspec

from pilotage.base import backoff, errors, text
from pilotage.base.supervise import Supervisor
from pilotage.batch import records
from pilotage.bus import wire
from pilotage.bus.model import Heartbeat
from pilotage.bus.port import Message
from pilotage.edge import broker, health, view
from pilotage.edge.port.sites import AgentLines
from pilotage.edge.view import SiteRecord
from pilotage.project.folder import ProjectFolder
from pilotage.store import Db, Writer

_log = logging.getLogger("pilotage.edge")
_LOOK_S = 1.0
#: Seconds between records that we listen.
_SHOW_S = 5.0
#: A part that failed is restarted after 1 s, the one that listens to the broker after 30 s.
_RESTART, _RECONNECT = backoff.fixed(1.0), backoff.fixed(30.0)
#: Seconds before a problem raises an alarm; a silence is long by itself.
_ALARM_S = 60.0
#: What begins the names of alarms.
_ALARM = "edge "
_NOT_YET = "not connected yet"
_NOT_BOUND = "connected, and not listening yet"
#: The sender of heartbeats of a site whose agent dials this hub's port, for people.
_PORT = "its token, at the hub's port"
#: Topics with invalid messages that are logged.
_MOST_ODD = 100


class HeartbeatMonitor:
    """All sites with an agent that this hub hears of."""

    def __init__(self, project: ProjectFolder, writer: Writer, lines: AgentLines) -> None:
        """Prepare; `run` starts it. Agents at this hub's port are `lines`."""
        self._writer, self._now, self._lines = writer, project.clock.now, lines
        self._root, self._settings = project.root, project.settings.bus
        self._parts = Supervisor(project.clock, _log, _RESTART)
        #: Why the broker does not answer, and since when; none is no trouble.
        self._trouble, self._since = _NOT_YET if self._settings.url else "", self._now()
        #: Since when we listen at the port.
        self._begun = self._since
        #: How it goes with the broker just now, and whether that has a queue for us.
        self._broker: Callable[[], str] = lambda: self._trouble
        self._bound = False
        self._shown = 0.0
        #: Alarms that are raised.
        self._alarms: set[str] = set()
        self._odd: set[str] = set()

    async def run(self) -> None:
        """Listen until cancelled; failures do not affect the rest of the hub."""
        await self._writer.run(self._load)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._parts.keep, "the port", self._listen_at_port)
            tasks.start_soon(self._parts.keep, "sites", self._watch)
            if self._settings.url:
                keep = functools.partial(self._parts.keep, backoff=_RECONNECT)
                tasks.start_soon(keep, "broker", self._listen)

    async def _listen(self) -> None:
        """Listen to the broker."""
        pattern, self._bound = self._settings.beats, False
        trouble = "it is restarted after an internal error"
        try:
            async with broker.connect(self._settings, self._root, pattern) as bus:
                self._broker = lambda: bus.trouble or ("" if self._bound else _NOT_BOUND)
                async with bus.subscribe(pattern) as messages:
                    self._bound = True
                    async for message in messages:
                        if beat := self._read(message, self._site_of(message)):
                            step = functools.partial(_by_broker, message.user, beat, self._now())
                            await self._writer.run(step)
                        await bus.ack(message)
        except errors.PilotageError as error:
            trouble = f"{error}: {error.hint}" if error.hint else str(error)
            raise
        finally:
            self._broker = lambda: trouble

    async def _listen_at_port(self) -> None:
        async with self._lines.subscribe("heartbeat.*") as messages:
            async for message in messages:
                # Only the token of the agent identifies the site.
                if beat := self._read(message, message.user):
                    await self._writer.run(functools.partial(_hear, _PORT, beat, self._now()))
                await self._lines.ack(message)

    async def _watch(self) -> None:
        """Check the broker and all sites periodically."""
        while True:
            trouble = self._broker()
            await self._writer.run(functools.partial(self._look, trouble=trouble, now=self._now()))
            await anyio.sleep(_LOOK_S)

    # -- heartbeats ------------------------------------------------------------------------------

    def _site_of(self, message: Message) -> str:
        """Return the site that a topic of the broker is for; empty means any."""
        own, star, _ = self._settings.beats.partition("*")
        return message.topic.removeprefix(own) if star else ""

    def _read(self, message: Message, site: str) -> Heartbeat | None:
        """Decode a heartbeat; a sender for one site must not send for another."""
        try:
            beat = wire.decode(message.body)
        except errors.BadMessage as error:
            self._wonder(message, str(error))
            return None
        if not isinstance(beat, Heartbeat):
            self._wonder(message, "it is no heartbeat")
            return None
        if site and site != beat.site:
            self._wonder(message, f"it is of the site {beat.site}")
            return None
        return beat

    def _wonder(self, message: Message, why: str) -> None:
        """Log an invalid message, once for each topic."""
        if message.topic not in self._odd and len(self._odd) < _MOST_ODD:
            self._odd.add(message.topic)
            user = message.user or "an unknown user"
            _log.warning("a message of %r by %r is ignored: %s", user, message.topic, why)

    # -- health ----------------------------------------------------------------------------------

    def _load(self, db: Db) -> None:
        """Load problems and alarms that an earlier process had recorded."""
        row = db.row("edges_broker")
        if row and row[0]:
            self._since = min(self._since, row[1])
        raised = (name for name, _, _ in db.rows("alarm_all"))
        self._alarms = {name for name in raised if name.startswith(_ALARM)}

    def _look(self, db: Db, trouble: str, now: float) -> None:
        turned = bool(trouble) != bool(self._trouble)
        if turned:
            self._since = now
        changed = trouble != self._trouble
        self._trouble = trouble
        due = changed or now >= self._shown + _SHOW_S
        if due:
            self._shown = now
            db.run("edges_listen", trouble=trouble, since=self._since, now=now)
        # Of sites by a broker that is away nothing is known now.
        known = [
            self._judged(db, one, self._begun if one.ported else self._since, now)
            for one in view.records(db)
            if one.ported or not trouble
        ]
        files = {row[1] for row in db.rows("site_all") if row[10] == "batch"}
        self._alarm(db, _alarms(known, files, trouble, self._since, now), due=due)

    def _judged(self, db: Db, one: SiteRecord, listening: float, now: float) -> SiteRecord:
        """Update the health of a site; one not heard since we listen keeps its last one."""
        word = health.judge(one.beat, now - max(one.heard, listening), one.gaps)
        if word != "silent" and one.heard < listening:
            word = one.state
        if word == one.state:
            return one
        since = one.heard if word == "silent" else now
        _log.warning("site %s is %s: %s", one.name, word,
                     health.tell(word, one.beat, now - one.heard))  # fmt: skip
        db.run("edges_became", name=one.name, state=word, since=since)
        return msgspec.structs.replace(one, state=word, since=since)

    def _alarm(self, db: Db, wanted: dict[str, tuple[float, str]], *, due: bool) -> None:
        """Raise alarms, also those that were cleared by hand, and clear those that are over."""
        for name, (since, words) in wanted.items():
            if due or name not in self._alarms:
                db.run("alarm_put", name=name, words=words, now=since)
        for name in self._alarms - wanted.keys():
            db.run("alarm_drop", name=name)
        self._alarms = set(wanted)


def _by_broker(speaker: str, beat: Heartbeat, now: float, db: Db) -> None:
    """Note a heartbeat that came by the broker, unless its site is served at this hub's port."""
    if db.value("agent_site", site=beat.site) is None:
        _hear(speaker, beat, now, db)
    else:
        _log.info(
            "%r sends heartbeats of %s, whose agent is at this hub's port", speaker, beat.site
        )


def _hear(speaker: str, beat: Heartbeat, now: float, db: Db) -> None:
    """Note a heartbeat that has just come."""
    before = view.record(db, beat.site)
    gaps: list[float] = []
    if before:
        quiet = now - before.heard
        if health.stale(before.beat, beat, quiet, before.gaps):
            _log.info("site %s: a heartbeat of an agent that another has replaced", beat.site)
            return
        gaps = health.learn(before.gaps, before.beat, beat)
    if not records.stand(db, beat.site, "agent") and not before:
        _log.error("an agent serves %s, and sites/%s.toml has the same name: the file is used",
                   beat.site, beat.site)  # fmt: skip
    word = health.judge(beat, 0.0, gaps)
    since = before.since if before and before.state == word else now
    db.run(
        "edges_heard", name=beat.site, speaker=speaker, heard=now, state=word, since=since,
        gaps=text.dump(gaps), body=wire.encode(beat).decode(),
    )  # fmt: skip
    if before and before.state != word:
        _log.warning("site %s is %s again" if word == "well" else "site %s is %s", beat.site, word)


def _alarms(
    known: list[SiteRecord], files: Collection[str], trouble: str, since: float, now: float
) -> dict[str, tuple[float, str]]:
    """Return the problems that need a person, with time and text."""
    found = {}
    if trouble and now - since >= _ALARM_S:
        found[f"{_ALARM}broker"] = (since, f"the broker cannot be reached: {trouble}")
    for one in known:
        name = f"{_ALARM}site {one.name}"
        if one.name in files:
            words = f"two sites are called {one.name}: a file of the project, and one with an agent"
            found[name] = (one.since, words)
        elif one.state == "silent":
            words = f"site {one.name} is silent: no heartbeat comes from its agent"
            found[name] = (one.since, words)
        elif one.state == "trouble" and now - one.since >= _ALARM_S:
            said = "; ".join(health.troubles(one.beat, now - one.heard))
            found[name] = (one.since, f"site {one.name}: {said}")
    return found
