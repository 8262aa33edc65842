"""The loop of the starter: orders in, reports out, signals and limits."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any

from . import process, spawn
from .crash import point
from .payloads import Payload, ending, write_evidence
from .wire import StarterWire
from .workers import Workers

#: What programs of the makers of GPUs look at.
_NAMES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")


class NoDevice(Exception):
    """Not enough devices are free."""


class Devices:
    """The GPUs of this node, and who has which."""

    def __init__(self, names: Sequence[str]) -> None:
        self._all = tuple(names)
        self._free = list(names)
        self._lent: dict[str, list[str]] = {}

    def lend(self, key: str, count: int) -> dict[str, str]:
        """Give a payload its GPUs; return the variables that tell it which."""
        if not self._all:
            return {}
        if count > len(self._free):
            raise NoDevice(f"{count} GPUs are asked for and {len(self._free)} are free")
        self._lent[key], self._free = self._free[:count], self._free[count:]
        return dict.fromkeys(_NAMES, ",".join(self._lent[key]))

    def take_back(self, key: str) -> None:
        """Get back what a payload had."""
        back = self._lent.pop(key, [])
        # In the order in which they are known, so that what is lent does not depend on the past.
        self._free = [one for one in self._all if one in self._free or one in back]


#: How many payloads are started before those that ended are looked after.
_BURST = 16
#: For how long reports may wait while there is something to start.
_TALK_SECONDS = 0.005
_SAMPLE_SECONDS = 0.25
_TOGETHER = "stopped together with its starter"


class Loop:
    """The payloads that run, those that ended, and what is to happen next."""

    def __init__(
        self,
        wire: StarterWire,
        home: bytes,
        lock: bytes,
        slots: int = 0,
        devices: Sequence[str] = (),
    ) -> None:
        self.wire = wire
        #: Where names that do not begin with a slash begin.
        self.home = home
        self.lock = lock
        #: How many payloads run at once; 0 is as many as are ordered.
        self.slots = slots
        self.devices = Devices(devices)
        #: Orders to start that wait for a slot, the oldest first.
        self.waiting: dict[str, dict[str, Any]] = {}
        self.running: dict[str, Payload] = {}
        self.pids: dict[int, Payload] = {}
        self.limited: dict[int, Payload] = {}
        #: Payloads whose main process is gone, until all the others are too.
        self.sweeping: dict[str, Payload] = {}
        #: Processes that lost their parent, with the payloads they may come from.
        self.strays: dict[int, set[str]] = {}
        #: Endings that were not acknowledged, with the directory for their evidence.
        self.kept: dict[str, tuple[bytes | None, dict[str, Any]]] = {}
        self.timers: list[tuple[float, str, int]] = []
        self.poll = select.poll()
        #: Processes that take one payload after the other.
        self.workers = Workers(lock, slots, self.poll)
        self.sampled = 0.0
        self.talked = 0.0
        self.closing = False
        self.terminated = False

    def obey(self, order: dict[str, Any]) -> None:
        """Carry out one order, or let it wait for a slot."""
        key = order.get("key", "")
        if order["op"] == "start":
            point("starter.received")
            # A repeated order gets the answer of the first.
            if not any(key in known for known in (self.running, self.sweeping, self.kept)):
                self.waiting[key] = order
        elif order["op"] == "stop" and key in self.running:
            message = order["message"] or "stopped"
            self.stop(self.running[key], "stopped", message, order["grace"])
        elif order["op"] == "stop" and key in self.sweeping:
            self.sweeping[key].excuse(order["message"] or "stopped")
        elif order["op"] == "stop" and self.waiting.pop(key, None):
            self.report(None, ending(key, "stopped", order["message"] or "stopped"))
        elif order["op"] == "ack":
            for safe in order["keys"]:
                self.kept.pop(safe, None)
        elif order["op"] == "close":
            self.closing = True

    def fill(self) -> None:
        """Start payloads while there are slots for them."""
        if self.wire.gone:
            # An order whose sender has died cannot be told from one that was never sent.
            self.waiting.clear()
        for key in list(itertools.islice(self.waiting, self.free())):
            self.start(key, self.waiting.pop(key))

    def free(self) -> int:
        """Return how many payloads may be started now."""
        return min(_BURST, self.slots - len(self.running)) if self.slots else _BURST

    def start(self, key: str, order: dict[str, Any]) -> None:
        """Start a payload, or tell why it cannot be started."""
        place: bytes | None = None
        try:
            if self.terminated or self.closing:
                raise spawn.ClaimedError("the starter is about to end")
            place = os.path.join(self.home, os.fsencode(order["dir"]))
            cwd = os.path.join(self.home, os.fsencode(order["cwd"]))
            order["env"].update(self.devices.lend(key, order.get("gpus", 0)))
            payload, new = self.begin(order, place, cwd)
        except spawn.ClaimedError as error:
            self.report(None, ending(key, "not_started", f"cannot start: {error}"))
        except (spawn.RefusedError, NoDevice, OSError, ValueError) as error:
            self.report(place, ending(key, "not_started", f"cannot start: {error}"))
        else:
            self.watch(payload, order["limits"] if new else {})

    def begin(self, order: dict[str, Any], place: bytes, cwd: bytes) -> tuple[Payload, bool]:
        """Have a process run a payload; return whether the process is new."""
        if order.get("warm"):
            return self.workers.begin(order, place, cwd)
        return Payload(order, spawn.begin(order, place, cwd, self.lock), place), True

    def watch(self, payload: Payload, limits: dict[str, int]) -> None:
        """Take a process that has just begun into care."""
        point("starter.spawned")
        self.running[payload.key] = self.pids[payload.pid] = payload
        # A program with the rights of another user keeps the limits it has.
        with contextlib.suppress(PermissionError):
            spawn.restrict(payload.pid, {} if payload.kind else limits)
        if payload.memory is not None or payload.gauge:
            self.limited[payload.pid] = payload
        if payload.timeout is not None:
            due = payload.begun + payload.timeout
            heapq.heappush(self.timers, (due, payload.key, signal.SIGTERM))
        news = {"op": "started", "key": payload.key, "pid": payload.pid, "time": time.time()}
        self.wire.send(news)

    def stop(self, payload: Payload, reason: str, message: str, grace: float | None) -> None:
        """Ask a payload to end, and see to it after the grace time."""
        payload.decide(reason, message)
        payload.signal(signal.SIGTERM)
        payload.signal(signal.SIGCONT)
        due = time.monotonic() + (payload.grace if grace is None else grace)
        heapq.heappush(self.timers, (due, payload.key, signal.SIGKILL))

    def report(self, place: bytes | None, report: dict[str, Any]) -> None:
        """Report an end, and keep it until it is acknowledged or written down."""
        self.devices.take_back(report["key"])
        self.kept[report["key"]] = (place, report)
        self.wire.send(report)

    def reap(self) -> bool:
        """Collect the processes that ended, and kill the rest of their groups."""
        some = False
        while True:
            try:
                # Until it is collected, the number of the dead process can mean no other.
                seen = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return some
            if seen is None:
                return some
            some = True
            if seen.si_pid in self.workers:
                self.returned(self.workers.died(seen.si_pid))
            payload = self.pids.pop(seen.si_pid, None)
            if payload is not None:
                payload.signal(signal.SIGKILL)
            owners = set() if payload is not None else self.owners(seen.si_pid)
            _, status, used = os.wait4(seen.si_pid, 0)
            self.strays.pop(seen.si_pid, None)
            for key in owners.intersection(self.sweeping) if len(owners) == 1 else ():
                if self.sweeping[key].kind:
                    self.sweeping[key].add(used)
            if payload is not None:
                payload.end(status, used)
                del self.running[payload.key]
                self.limited.pop(payload.pid, None)
                self.sweeping[payload.key] = payload
                point("starter.reaped")

    def returned(self, payload: Payload | None) -> None:
        """Report the end of a payload whose worker has answered."""
        if payload is not None:
            del self.running[payload.key]
            del self.pids[payload.pid]
            self.limited.pop(payload.pid, None)
            self.report(payload.place, payload.ending)

    def owners(self, pid: int) -> set[str]:
        """Return which payloads a process that lost its parent may come from."""
        present = {**self.running, **self.sweeping}
        with contextlib.suppress(ProcessLookupError):
            group = os.getpgid(pid)
            if named := {key for key, payload in present.items() if payload.pid == group}:
                return named
        key = process.key_of(pid)
        return set(present) if key is None else {key}

    def sweep(self) -> None:
        """Kill what ended payloads left behind; report those that have left nothing."""
        held: set[str] = set()
        for pid in process.children():
            if pid in self.pids or pid in self.workers:
                continue
            if pid not in self.strays:
                self.strays[pid] = self.owners(pid)
            owners = self.strays[pid]
            if owners.isdisjoint(self.running):
                held |= owners.intersection(self.sweeping) or set(self.sweeping)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        now = time.monotonic()
        for payload in list(self.sweeping.values()):
            # What cannot be killed (a dead file server holds it) must not hide the end.
            if (payload.key not in held and now >= payload.doubt) or now > payload.due:
                del self.sweeping[payload.key]
                self.report(payload.place, payload.ending)

    def expire(self) -> None:
        """Send the signals whose time has come."""
        while self.timers and self.timers[0][0] <= time.monotonic():
            _, key, number = heapq.heappop(self.timers)
            payload = self.running.get(key)
            if payload is not None and number == signal.SIGKILL:
                payload.signal(number)
            elif payload is not None:
                message = f"stopped after its time limit of {payload.timeout:g} s"
                self.stop(payload, "timeout", message, None)

    def sample(self) -> None:
        """Weigh the payloads whose memory is limited."""
        if self.limited and time.monotonic() >= self.sampled + _SAMPLE_SECONDS:
            for pid, used in process.memory(set(self.limited)).items():
                self.limited[pid].weigh(used)
            self.sampled = time.monotonic()

    def terminate(self) -> None:
        """Stop all payloads, take no more, and end after them."""
        self.terminated = True
        for payload in self.running.values():
            self.stop(payload, "stopped", _TOGETHER, None)
        for payload in self.sweeping.values():
            payload.excuse(_TOGETHER)

    def settle(self) -> bool:
        """Write evidence of ends that will not be acknowledged; return whether all work is done."""
        idle = not (self.running or self.sweeping or self.waiting)
        if self.wire.gone or (self.terminated and idle):
            for place, report in self.kept.values():
                if place is not None:
                    write_evidence(place, report)
            self.kept.clear()
        leaving = self.wire.gone or self.terminated or (self.closing and not self.wire.pending)
        self.workers.tidy(ending=leaving and idle)
        return idle and leaving and not self.kept and not self.workers

    def patience(self) -> float | None:
        """Return for how many milliseconds nothing is due."""
        if self.waiting and self.free() > 0:
            return 0
        now = time.monotonic()
        waits = [self.timers[0][0] - now] if self.timers else []
        if self.wire.pending:
            waits.append(self.talked + _TALK_SECONDS - now)
        if self.limited:
            waits.append(self.sampled + _SAMPLE_SECONDS - now)
        if self.sweeping:
            waits += [1.0, *(one.doubt - now for one in self.sweeping.values() if one.doubt > now)]
        if (wait := self.workers.patience()) is not None:
            waits.append(wait)
        return max(0.0, min(waits)) * 1000 + 1 if waits else None

    def step(self) -> None:
        """Do all that can be done now."""
        if self.reap() or self.sweeping:
            self.sweep()
        self.fill()
        self.expire()
        self.sample()
        now = time.monotonic()
        if not self.waiting or now > self.talked + _TALK_SECONDS:
            self.wire.flush()
            self.talked = now

    def run(self, wake: socket.socket) -> None:
        """Work until there is nothing left to do; signals are numbers that arrive at `wake`."""
        self.poll.register(wake, select.POLLIN)
        while not self.settle():
            if not self.wire.gone:
                writable = select.POLLOUT if self.wire.full else 0
                self.poll.register(self.wire.socket, select.POLLIN | writable)
            for fd, _ in self.poll.poll(self.patience()):
                self.hear(fd, wake)
            self.step()
            if self.wire.gone:
                # A closed socket is always readable and would keep the loop spinning.
                with contextlib.suppress(KeyError):
                    self.poll.unregister(self.wire.socket)

    def hear(self, fd: int, wake: socket.socket) -> None:
        """Take what has arrived: signals, orders, or the answer of a worker."""
        if fd == wake.fileno():
            if signal.SIGTERM in wake.recv(1 << 12) and not self.terminated:
                self.terminate()
        elif fd == self.wire.socket.fileno():
            for order in self.wire.receive():
                self.obey(order)
        else:
            self.returned(self.workers.hear(fd))
