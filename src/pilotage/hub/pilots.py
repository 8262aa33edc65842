"""The desk at which pilots enrol, say what ended, and get work."""

from __future__ import annotations

import asyncio
import base64
import functools
import hmac
import logging
import os
import re
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from pilotage import errors, text, units
from pilotage.clock import Clock
from pilotage.hub import auth, judge
from pilotage.hub.config import Pilots
from pilotage.hub.roster import Held, Pilot, Roster
from pilotage.job import bulk, moves, retry
from pilotage.match.queue import Queue
from pilotage.match.turn import Granted, Ledger, Request, Stop
from pilotage.pilot import model, wire
from pilotage.pilot.model import State
from pilotage.pilot.stencil import Refused, Stencils
from pilotage.site.local import Listener
from pilotage.store import Db

_log = logging.getLogger("pilotage.pilot")
_KEY = re.compile(r"[0-9a-f]{64}")
#: The largest node that we believe in: cores, memory, disk, GPUs.
_MOST = (100_000, 1 << 50, 1 << 60, 1000)
#: So much of what a payload writes is kept.
_MOST_LOG = 1 << 30
#: The longest that a pilot's question may wait for work, in heartbeats.
_PATIENCE = 1.0
__all__ = ["Desk", "Pilot"]


class Line(Protocol):
    """The way back to a pilot."""

    def send(self, data: bytes) -> None:
        """Send an answer."""
        ...


class Desk:
    """Speaks with all pilots."""

    def __init__(
        self, queue: Queue, roster: Roster, stencils: Stencils, settings: Pilots, clock: Clock,
        folder: str, checks: Callable[[str], list[dict[str, Any]]], listener: Listener,
    ) -> None:  # fmt: skip
        """Get ready; `checks` names the scripts that the nodes of a pool must pass."""
        self._queue = queue
        self._roster = roster
        self._stencils = stencils
        self._settings = settings
        self._clock = clock
        self._folder = folder
        self._checks = checks
        self._listener = listener
        self._heartbeat = units.seconds(settings.heartbeat)
        self._lease = units.seconds(settings.lease)
        self._loop = asyncio.get_running_loop()

    # -- enrolment -------------------------------------------------------------------------------

    async def enrol(self, hello: wire.Hello, line: Line) -> Pilot:
        """Take a pilot in; its secret is spent in the same transaction."""
        _check_version(hello.protocol)
        if not _KEY.fullmatch(hello.key):
            raise errors.UsageError("the key of a pilot is 64 hexadecimal digits")
        _check_facts(hello.facts)
        digest = auth.digest(hello.key)
        found: list[tuple[int, str, str]] = []

        def add(_ledger: Ledger, db: Db, now: float) -> None:
            if known := db.row("pilot_of_key", digest=digest):
                # The answer to its first hello was lost on the way.
                if known[3] != State.BOOTING:
                    raise errors.Conflict(f"pilot {known[0]} has this key", hint="resume it")
                found.append(known[:3])
                return
            grant = auth.consume(db, hello.token, auth.Scope.ENROL, now)
            site = grant.site or hello.facts.host
            number = db.value(
                "pilot_add", name=(hello.name or hello.facts.host)[:100], site=site,
                pool=grant.pool, state=State.BOOTING, digest=digest,
                facts=text.dump(hello.facts), now=now,
            )  # fmt: skip
            found.append((int(number), site, grant.pool))

        await self._queue.do(add)
        number, site, pool = found[-1]
        pilot = self._roster.add(number, site, pool, hello.facts, State.BOOTING, digest)
        pilot.line = line
        pilot.heard(self._lease)
        return pilot

    def terms(self, pilot: Pilot) -> dict[str, Any]:
        """Say on which terms a pilot works here."""
        settings = self._settings
        return {
            "pilot": pilot.number, "site": pilot.site, "heartbeat": self._heartbeat,
            "lease": self._lease, "checks": self._checks(pilot.pool), "env": dict(settings.env),
            "setup": [], "idle": units.seconds(settings.idle) if settings.idle else None,
        }  # fmt: skip

    async def ready(self, pilot: Pilot, message: wire.Ready) -> None:
        """Give a pilot work from now on, if its node passed all checks."""
        pilot.heard(self._lease)
        failed = [one for one in message.checks if not one.ok]
        if failed:
            words = "; ".join(f"{one.name} ({one.kind}): {one.words or 'failed'}" for one in failed)
            await self._roster.move(pilot, State.FAILED, text.show(words)[:2000])
            raise errors.Denied(f"this node gets no work: {words}", hint="mend it and come again")
        await self._roster.move(pilot, State.AVAILABLE, "")

    async def resume(self, message: wire.Resume, line: Line) -> tuple[Pilot, dict[str, Any]]:
        """Go on with a pilot that lost its connection, or that we lost."""
        _check_version(message.protocol)
        pilot = await self._roster.find(message.pilot)
        if not hmac.compare_digest(pilot.digest, auth.digest(message.key)):
            raise errors.Denied("this key is not that pilot's", hint="enrol anew")
        if pilot.state in {State.DOWN, State.FAILED}:
            raise errors.Denied(f"pilot {pilot.number} is {pilot.state}", hint="enrol anew")
        pilot.line = line
        pilot.heard(self._lease)
        if pilot.state is State.LOST:
            await self._roster.move(pilot, State.AVAILABLE, "it came back")
        else:
            self._roster.open_up(pilot)
        running = set(message.running)
        held = {one.key: one for one in pilot.held.values()}
        again = [one for key, one in held.items() if key not in running and not one.stopping]
        foreign = [key for key in message.running if key not in held]
        why = "this attempt is not this pilot's any more"
        stops = [_stop(key, why) for key in foreign]
        stops += [_stop(one.key, one.stopping) for one in held.values() if one.stopping]
        launches = await self._again(pilot, again)
        found = self.terms(pilot) | {"stop": stops, "jobs": [msgspec.Raw(one) for one in launches]}
        return pilot, found

    async def leave(self, pilot: Pilot, reason: str) -> None:
        """Let a pilot go; what it still holds is queued again."""
        await self._roster.move(pilot, State.DOWN, text.show(reason)[:500])

    def cut(self, pilot: Pilot, line: Line) -> None:
        """Hear that the connection of a pilot is gone: it gets nothing until it is back."""
        if pilot.line is line:
            pilot.line = None
            self._roster.close_down(pilot)

    # -- work ------------------------------------------------------------------------------------

    def sync(self, pilot: Pilot, message: wire.Sync, line: Line) -> None:
        """Take in what ended, and answer when there is work or time is up."""
        pilot.heard(self._lease)
        pilot.unpark()
        if message.drain and pilot.state is State.AVAILABLE:
            self._roster.drain(pilot, "the pilot takes no more")
        ending: list[Held] = []
        ends = [self._ended(pilot, end, ending) for end in message.ended]
        if message.started:
            pids = {key: pid for key, pid in message.started if pilot.holds(key)}
            self._queue.change(lambda _ledger, db, _now: moves.note_pids(db, pids))
        wait = min(message.wait, _PATIENCE * self._heartbeat)
        park = wait > 0 and not (message.ended or message.started)
        answer = functools.partial(self._answer, pilot, message, line, ending)
        self._queue.ask(Request(pilot.number, answer, ends, max(0, message.ahead), park))
        if park:
            pilot.timer = self._loop.call_later(wait, self._queue.nudge, pilot.number)

    def log(self, pilot: Pilot, message: wire.Log) -> None:
        """Write down what a payload wrote, where commands look for it."""
        pilot.heard(self._lease)
        if pilot.holds(message.key):
            held = pilot.held[int(message.key.partition(".")[0])]
            self._write(held, message.stream, message.at, message.data)

    def _ended(self, pilot: Pilot, end: model.End, ending: list[Held]) -> bulk.Ended:
        """Say what an end means; what this pilot does not hold is only heard if it did well."""
        job, _, attempt = end.key.partition(".")
        if not (job.isdecimal() and attempt.isdecimal()):
            raise errors.UsageError(f"{end.key!r} is no attempt")
        held = pilot.held.get(int(job))
        if held is None or held.attempt != int(attempt):
            held = Held(int(job), int(attempt), 0, None, "")
        else:
            ending.append(held)
        for stream, data in (("stdout", end.stdout), ("stderr", end.stderr)):
            if data and held.spec:
                self._write(held, stream, -1, data)
        return bulk.Ended(held.job, held.attempt, held.number, judge.judge(held, end))

    def _write(self, held: Held, stream: str, at: int, data: str) -> None:
        """Keep what a payload wrote; a full disk must not keep us from hearing how it ended."""
        folder = moves.attempt_dir(self._folder, held.job, held.attempt)
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            os.makedirs(folder, exist_ok=True)
            with open(os.open(f"{folder}/{stream}", flags, 0o600), "wb", buffering=0) as file:
                begin = file.seek(0, os.SEEK_END) if at < 0 else at
                if begin < _MOST_LOG:
                    os.pwrite(file.fileno(), base64.b64decode(data), begin)
        except (OSError, ValueError) as error:
            _log.warning("the output of job %d is lost: %s", held.job, error)

    def _answer(
        self, pilot: Pilot, message: wire.Sync, line: Line, ending: list[Held], granted: Granted
    ) -> None:
        """Tell a pilot what is on disk now."""
        pilot.unpark()
        for held in ending:
            if pilot.held.get(held.job) is held:
                del pilot.held[held.job]
            if held.rule:
                self._listener.ended(held.rule, held.job)
        launches, outputs, refused = self._launches(pilot, granted)
        if refused:
            self._queue.ask(Request(pilot.number, lambda _: None, refused))
        for stop in granted.stops:
            if (asked := pilot.held.get(stop.job)) is not None:
                asked.stopping = stop.words
        send = functools.partial(self._send, pilot, message, line, launches, granted.stops)
        if outputs:
            self._queue.change(lambda _ledger, db, _now: moves.declare(db, outputs))
            self._queue.ask(Request(-1, lambda _: send()))
        else:
            send()

    def _send(
        self, pilot: Pilot, message: wire.Sync, line: Line, launches: list[bytes],
        stops: list[Stop],
    ) -> None:  # fmt: skip
        bye = pilot.state in {State.DOWN, State.FAILED, State.LOST} or pilot.bye
        rest = {
            "stop": [_stop(f"{one.job}.{one.attempt}", one.words) for one in stops],
            "drain": pilot.reason if pilot.state is State.DRAINING else "",
            "bye": bye,
        }
        head = b'{"n":%d,"p":%d,"jobs":[' % (message.n or 0, message.p)
        body = head + b",".join(launches) + b"]," + msgspec.json.encode(rest)[1:]
        line.send(wire.frame(body))

    def _launches(
        self, pilot: Pilot, granted: Granted
    ) -> tuple[list[bytes], dict[int, list[str]], list[bulk.Ended]]:
        launches, outputs, refused = [], {}, []
        for claim in granted.claims:
            spec = granted.specs[claim.spec]
            held = Held(claim.job, claim.attempt, claim.spec, spec, claim.rule)
            pilot.held[claim.job] = held
            try:
                body, files, binding = self._stencils.fill(claim, spec, pilot.facts, pilot.cut)
            except Exception as error:  # noqa: BLE001 - one bad definition must not stop the rest
                called_off = str(error) if isinstance(error, Refused) else ""
                end = retry.End(ok=False, message=f"cannot start: {error}", call_off=called_off)
                refused.append(bulk.Ended(claim.job, claim.attempt, claim.spec, end))
                del pilot.held[claim.job]
                continue
            launches.append(body)
            if claim.rule or files:
                self._listener.started(claim, binding, files)
            if files:
                outputs[claim.job] = [text.store_path(path) for path in files]
        return launches, outputs, refused

    async def _again(self, pilot: Pilot, missing: list[Held]) -> list[bytes]:
        """Write the launches of attempts anew whose first answer was lost on the way."""
        if not missing:
            return []
        found: list[Granted] = []

        def read(ledger: Ledger, db: Db, _now: float) -> None:
            ids = text.dump([one.job for one in missing])
            claims = [moves.Claim(*row) for row in db.rows("claim_again", ids=ids)]
            specs = {one.spec: ledger.specs.get(db, one.spec) for one in claims}
            found.append(Granted(claims, [], specs))

        await self._queue.do(read)
        launches, _, refused = self._launches(pilot, found[-1])
        if refused:
            self._queue.ask(Request(pilot.number, lambda _: None, refused))
        return launches


def _stop(key: str, message: str) -> dict[str, Any]:
    return {"key": key, "message": message, "grace": None}


def _check_facts(facts: model.Facts) -> None:
    """Refuse a node that cannot be: what a pilot says of itself is not to be trusted blindly."""
    sizes = (facts.cpus, facts.memory, facts.disk, len(facts.gpus))
    if facts.cpus < 1 or not all(0 <= one <= most for one, most in zip(sizes, _MOST, strict=True)):
        raise errors.UsageError("no node is like this", hint="mend what the pilot finds out")
    if not facts.work.startswith("/"):
        raise errors.UsageError("the folder of a pilot is an absolute path")


def _check_version(protocol: int) -> None:
    if protocol != model.PROTOCOL:
        message = f"the pilot speaks version {protocol} of the link, this hub {model.PROTOCOL}"
        raise errors.UsageError(message, hint="take the pilot that this hub serves")
