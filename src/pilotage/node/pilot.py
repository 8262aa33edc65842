"""The pilot: it enrols, checks its node, takes work, reports, and leaves."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Callable, NamedTuple

from . import checks, exits, policy
from .checks import Boot
from .data.stage import Done, Stager
from .exits import TOLD, Exit
from .jobs import PilotJobs, Results
from .launcher import StarterSupervisor, over
from .policy import StayLimits
from .session import HubError, RefusedError, Session

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Gauge:
    """Measures now and then; one look is one pass over the processes of the node."""

    def __init__(self) -> None:
        #: Seconds between two measurements; nothing if they are not wanted.
        self.interval: float | None = None
        self._cores: dict[str, int] = {}
        self._since = 0.0
        self._had = 0.0
        #: The starter that was looked at last, what it has used, and what those before it had.
        self._root = 0
        self._used = 0.0
        self._before = 0.0
        self._looked = 0.0
        #: Whether payloads have run since, and what was measured and not told.
        self._stale = False
        self._news = ""

    def begin(self, key: str, cores: int, now: float) -> None:
        """Note that a payload has cores from now on."""
        self._count(now)
        self._cores[key] = max(1, cores)

    def end(self, key: str, now: float) -> None:
        """Note that it has them no more."""
        self._count(now)
        self._cores.pop(key, None)

    def _count(self, now: float) -> None:
        cores = sum(self._cores.values())
        self._had += cores * max(0.0, now - self._since)
        self._stale = self._stale or cores > 0
        self._since = now

    def measure(self, root: int | None, now: float) -> None:
        """Look at all that the process `root` has started, if it is time and worth while."""
        if self.interval is None or root is None or now - self._looked < self.interval:
            return
        self._count(now)
        if not self._stale:
            return
        used, resident = tree(root)
        if root != self._root:
            self._root, self._before = root, self._before + self._used
            self._used = 0.0
        # Processes that were not waited for are not in the sum any more.
        self._used = max(self._used, used)
        self._looked, self._stale = now, bool(self._cores)
        self._news = f"[{self._before + self._used:.2f},{self._had:.2f},{resident}]"

    def tell(self) -> str:
        """Write a field of a message with what is new; empty if nothing is."""
        news, self._news = self._news, ""
        return f',"used":{news}' if news else ""


def tree(root: int, proc: str = "/proc") -> tuple[float, int]:
    """Sum up the processor seconds and the resident bytes of all that a process has started."""
    children: dict[int, list[int]] = {}
    facts: dict[int, tuple[int, int, int]] = {}
    for name in os.listdir(proc):
        if not name.isdigit():
            continue
        try:
            with open(f"{proc}/{name}/stat", "rb", buffering=0) as file:
                words = file.read(1024).rpartition(b")")[2].split()
        except OSError:
            continue
        own, waited = int(words[11]) + int(words[12]), int(words[13]) + int(words[14])
        facts[int(name)] = own, waited, int(words[21])
        children.setdefault(int(words[1]), []).append(int(name))
    # The starter itself is ours; what it waited for were payloads.
    ticks, pages = facts.get(root, (0, 0, 0))[1], 0
    found = list(children.get(root, ()))
    for pid in found:
        own, waited, resident = facts[pid]
        ticks += own + waited
        pages += resident
        found += children.get(pid, ())
    return ticks / _TICKS, pages * _PAGE


_log = logging.getLogger("pilot")
_TICK_S = 1.0
#: How long a start may wait to be told together with other news.
_START_S = 0.05
#: How long the end of a tiny job may wait for the next one.
_BLINK_S = 0.002
#: Ends that are older than this are written down.
_KEEP_S = 0.5
_CROWDED = 1 << 20
#: How long payloads have to end by themselves when the pilot must end them.
_GRACE_S = 10.0


class Hooks(NamedTuple):
    """Actions of a pilot that are implemented elsewhere."""

    #: Prepare and check the node on the hub's terms.
    boot: Callable[[Mapping[str, Any]], Boot]
    #: Remove a folder that is not needed any more.
    forget: Callable[[str], None]
    #: Remove the secret, once it has been used.
    forget_secret: Callable[[], None]


class PilotLoop:
    """The pilot: all that happens on the node, one step at a time."""

    def __init__(
        self, session: Session, jobs: PilotJobs, starter: StarterSupervisor, results: Results,
        stager: Stager, limits: StayLimits, hooks: Hooks, recheck: float | None,
    ) -> None:  # fmt: skip
        self.session = session
        self.jobs = jobs
        self.starter = starter
        self.stager = stager
        self.exit = Exit(limits)
        #: What payloads use.
        self.gauge = Gauge()
        #: The environment of payloads, once it is known.
        self.env: dict[str, str] = {}
        self._results = results
        self._hooks = hooks
        self._boot: Boot | None = None
        self._recheck = recheck
        self._next_check: float | None = None
        self._found: list[dict[str, Any]] | None = None
        #: What is seen of the project's folder; empty if the hub does not ask.
        self._sight: dict[str, Any] = {}
        self._ready = False
        self._fenced = False
        self._mean_wall = 1.0
        self._busy_until: float | None = None
        self._ticked = 0.0
        self._news_since: float | None = None

    # -- one step --------------------------------------------------------------------------------

    def step(self, now: float) -> int | None:
        """Do all that can be done now; return a status when it is time to go."""
        self._listen(now)
        self._attend_boot(now)
        for report in self.starter.receive(self._started()):
            self._hear(report, now)
        for done in self.stager.done():
            self._staged(done, now)
        self._mind(now)
        if now - self._ticked >= _TICK_S:
            self._ticked = now
            self._tick(now)
        self._speak(now)
        self.starter.flush()
        if self.session.link.channel is not None:
            self.session.link.channel.flush()
        return self.exit.status(now)

    def patience(self, now: float) -> float:
        """Return the seconds until something is due."""
        waits = [max(0.0, self._ticked + _TICK_S - now)]
        if self._news_since is not None and self._may_speak():
            waits.append(max(0.0, self._news_since + _START_S - now))
        if self.jobs.ended and self._may_speak():
            waits.append(_BLINK_S)
        if (wait := self.session.link.wait(now)) is not None:
            waits.append(wait)
        return min(waits)

    def _started(self) -> Iterable[str]:
        """Name the attempts that the starter has, as far as is known."""
        held = self.jobs.held
        return [one for one in held if one not in self.stager] if self.stager else held

    # -- the hub ---------------------------------------------------------------------------------

    def _listen(self, now: float) -> None:
        link = self.session.link
        if link.attend(now):
            self.session.greet(self._present(), now)
        channel = link.channel
        if channel is None:
            return
        for reply in channel.receive():
            try:
                op, n = self.session.understand(reply)
            except RefusedError as error:
                self._refused(str(error), now)
                return
            except HubError as error:
                self._cut(str(error), now)
                return
            if op:
                self._answered(op, n, reply, now)
        if channel.gone:
            self._cut(channel.gone, now)
        elif self.session.overdue(now):
            self._cut("the hub does not answer", now)

    def _cut(self, why: str, now: float) -> None:
        _log.warning("no connection: %s", why)
        self.session.cut(why, now)
        self.jobs.cut()

    def _refused(self, why: str, now: float) -> None:
        _log.error("%s", why)
        self.session.cut(why, now)
        self.jobs.cut()
        self.stop("the hub does not know this pilot any more", 2.0, now)
        unfit = checks.failure(self._found or [])
        self.exit.leave(why, exits.UNFIT if unfit else exits.REFUSED, now, quick=True)
        self.session.link.give_up()

    def _present(self) -> list[str]:
        return [*self.jobs.held, *self.jobs.ended]

    def _answered(self, op: str, n: int, reply: dict[str, Any], now: float) -> None:
        if op == "hello":
            self._enrolled(reply, now)
        elif op == "resume":
            _log.info("connected again")
        elif op == "ready":
            self._ready = True
            self._busy_until = now
            if why := checks.failure(self._found or []):
                self.exit.leave(why, exits.UNFIT, now, quick=True)
        elif op == "sync":
            done = self.jobs.answered(n)
            self._settle([one.held.key for one in done], [one.held.folder for one in done])
            self.exit.heard(n)
        elif op == "leave":
            self.exit.left = True
        if op in {"sync", "resume"}:
            self._fenced = False
            self._obey(reply, now)

    def _enrolled(self, terms: dict[str, Any], now: float) -> None:
        _log.info("enrolled as pilot %s", terms.get("pilot"))
        self._hooks.forget_secret()
        if terms.get("idle") is not None and self.exit.limits.idle is None:
            self.exit.limits = replace(self.exit.limits, idle=float(terms["idle"]))
        if terms.get("measure"):
            self.gauge.interval = float(terms["measure"])
        self._busy_until = now
        self._check()

    def _settle(self, keys: list[str], folders: list[str]) -> None:
        """Forget attempts whose ends the hub has acknowledged."""
        self.starter.acknowledge(keys)
        for key in keys:
            self._results.drop(key)
            if folder := self.stager.forget(key):
                self._hooks.forget(folder)
        for folder in folders:
            self._hooks.forget(folder)

    def _obey(self, reply: dict[str, Any], now: float) -> None:
        """Do what an answer asks for."""
        for launch in reply.get("jobs") or []:
            if not self.jobs.take(launch):
                continue
            if self.exit.stopping or self.starter.broken:
                self.jobs.end(over(launch["key"], "stopped", "the pilot is about to leave"), now)
                continue
            if launch.get("data"):
                self.stager.bring(launch)
            else:
                self._start(launch, now)
        for one in reply.get("stop") or []:
            self._stop(one["key"], one.get("message", ""), one.get("grace"), now)
        if reply.get("drain"):
            self.exit.leave(str(reply["drain"]), exits.LEFT, now)
        if reply.get("bye"):
            self.stop("the hub dismissed the pilot", 5.0, now)
            self.exit.leave("the hub said so", exits.LEFT, now, quick=True)

    def _start(self, launch: Mapping[str, Any], now: float) -> None:
        try:
            self.starter.start(launch)
        except OSError as error:
            self.jobs.end(over(launch["key"], "lost", f"no starter starts: {error}"), now)

    def _staged(self, done: Done, now: float) -> None:
        """Go on with an attempt whose inputs are there, or whose outputs are home."""
        if done.launch is not None:
            self._start(done.launch, now)
        elif done.report is not None:
            self.jobs.end(done.report, now)

    def _stop(self, key: str, message: str, grace: float | None, now: float) -> None:
        """Have an attempt ended, wherever it is."""
        if self.stager.stop(key):
            self.jobs.end(over(key, "stopped", message), now)
        elif key in self.jobs.held:
            self.starter.stop(key, message, grace)

    # -- the node --------------------------------------------------------------------------------

    def _check(self) -> None:
        self._boot = self._hooks.boot(self.session.terms)
        self._boot.start()

    def _attend_boot(self, now: float) -> None:
        """Take what the checks have found, the first time and later."""
        boot = self._boot
        if boot is None or boot.is_alive():
            return
        self._boot = None
        why = checks.failure(boot.found)
        if self._recheck:
            self._next_check = now + self._recheck
        if self._found is None:
            self._found, self.env, self._sight = boot.found, boot.env, boot.sight
            if why:
                _log.error("this node is not fit: %s", why)
        elif why:
            _log.error("this node is not fit any more: %s", why)
            self.exit.leave(why, exits.UNFIT, now)

    def _hear(self, report: dict[str, Any], now: float) -> None:
        """Take a report of the starter."""
        if report["op"] == "started":
            self.jobs.start(report["key"], report["pid"])
            if held := self.jobs.held.get(report["key"]):
                self.gauge.begin(held.key, held.cpus, now)
            self._news_since = self._news_since or now
            return
        if usage := report.get("usage"):
            self._mean_wall = policy.mean(self._mean_wall, usage["wall"])
        self.gauge.end(report["key"], now)
        if not self.stager.home(report):
            self.jobs.end(report, now)

    def terminate(self, now: float) -> None:
        """Leave because somebody wants us to, and at once if they say it again."""
        again = self.exit.stopping
        self.stop("its pilot was told to end", 0.0 if again else _GRACE_S, now)
        self.exit.leave(TOLD, exits.LEFT, now, quick=True)
        if again:
            self.exit.hurry(now)

    def stop(self, message: str, grace: float | None, now: float) -> None:
        """Have all payloads ended; what those have left that ended before still goes home."""
        for key in [*self._started(), *self.stager.waiting()]:
            self._stop(key, message, grace, now)

    # -- limits ----------------------------------------------------------------------------------

    def _mind(self, now: float) -> None:
        """Keep to the limits of time, of the lease and of idleness."""
        jobs, session = self.jobs, self.session
        booting = self._boot is not None and self._found is None
        if jobs.held or booting or self._busy_until is None:
            self._busy_until = now
        if jobs.held and not self._fenced and policy.fenced(now, session.answered, session.lease):
            self._fenced = True
            _log.error("the hub is silent; stopping %d payloads", len(jobs.held))
            self.stop(
                "stopped by its pilot, which had no contact with the hub for too long", None, now
            )
        limits = self.exit.limits
        busy = bool(jobs.held or jobs.ended)
        if why := limits.drain(now, self._busy_until, busy=busy):
            self.exit.leave(why, exits.LEFT if session.terms else exits.UNREACHED, now)
        if limits.stop(now) and not self.exit.stopping:
            self.stop("its pilot's lifetime ends", 0.5 * limits.grace, now)
            self.exit.leave("its lifetime ends", exits.LEFT, now, quick=True)
        if self.starter.broken:
            self.exit.leave("its starters die", exits.BROKEN, now)
        hopeless = bool(session.terms) and limits.hopeless(now, session.answered)
        self.exit.known = bool(session.terms) and not session.link.given_up
        busy = busy and not hopeless
        self.exit.consider(now, busy=busy, unsent=len(jobs.ended), up=session.greeted)

    def _tick(self, now: float) -> None:
        """Do what is done once a second."""
        launcher = self.starter.launcher
        self.gauge.measure(launcher.pid if launcher else None, now)
        self._write_down(now)
        if self._next_check is not None and now > self._next_check and self._boot is None:
            self._check()
        channel = self.session.link.channel
        if channel is not None and self.session.greeted:
            while channel.waiting < _CROWDED and (body := self.jobs.logs(running=True)):
                channel.send(body)

    def _write_down(self, now: float) -> None:
        """Put ends on disk that the hub is slow to acknowledge."""
        old = {key: one for key, one in self.jobs.ended.items() if now - one.since > _KEEP_S}
        if old:
            try:
                self._results.keep({key: one.text() for key, one in old.items()})
            except OSError as error:
                # A full disk must not end the pilot: the starter keeps them, and so do we.
                _log.warning("cannot write ends down: %s", error)
                return
            self.starter.acknowledge(list(old))

    # -- speaking --------------------------------------------------------------------------------

    def _may_speak(self) -> bool:
        """Return whether news may go out, rather than wait for the answer to the last."""
        busy = any(flight.keys or flight.started for flight in self.jobs.unanswered)
        return self.session.greeted and self._ready and not busy

    def _speak(self, now: float) -> None:
        session, channel = self.session, self.session.link.channel
        if channel is None or not session.greeted:
            return
        if not self._ready:
            self._announce(now)
        elif self.exit.done and not session.waits_for("leave"):
            session.ask("leave", now, self.exit.words())
        elif self._may_speak() and not self.exit.done:
            while channel.waiting < _CROWDED and (body := self.jobs.logs(running=False)):
                channel.send(body)
            if self._is_due(now):
                self._sync(now)

    def _announce(self, now: float) -> None:
        """Report the results of the checks; until then, send signs of life."""
        session = self.session
        if self._found is not None:
            if not session.waits_for("ready"):
                session.ask("ready", now, self.exit.found(self._found, self._sight))
        elif now - session.answered > session.heartbeat and not session.waits_for("resume"):
            session.resume([], now)

    def _is_due(self, now: float) -> bool:
        """Return whether there is something to say or nothing is being waited for."""
        jobs = self.jobs
        if not jobs.unanswered or self.exit.must_say:
            return True
        if jobs.news():
            last = max(one.since for one in jobs.ended.values())
            tiny = jobs.held and policy.ahead(1, self._mean_wall)
            return not tiny or now - last >= _BLINK_S
        return self._news_since is not None and now - self._news_since >= _START_S

    def _sync(self, now: float) -> None:
        session = self.session
        draining = self.exit.draining
        # A pilot that leaves waits for the acknowledgement of that, and for nothing else.
        wait = 0.0 if self.exit.must_say else policy.wait(session.heartbeat)
        ahead = 0 if draining else policy.ahead(session.facts["cpus"], self._mean_wall)
        n = session.next_number
        news = self.jobs.report(n)
        drain = "true" if draining else "false"
        used = self.gauge.tell()
        fields = f'{news},"ahead":{ahead},"wait":{wait:g},"drain":{drain}{used}'
        session.ask("sync", now, fields, wait)
        self.exit.said(n)
        self._news_since = None
