"""One simulated pilot: all of the protocol, nothing of a payload; no clock, no connection."""

from __future__ import annotations

import secrets
from enum import Enum

import msgspec

from bench.swarm.wire import Answer, Message

PROTOCOL = 1


class Phase(Enum):
    """Where it is in its conversation with the hub."""

    NEW = "new"
    GREETED = "greeted"
    READY = "ready"
    CUT = "cut"
    GONE = "gone"


class Node(msgspec.Struct, frozen=True):
    """What a simulated node has."""

    cpus: int = 1
    token: str = ""
    #: Seconds for which the hub may keep a sync that has no answer.
    wait: float = 20.0


class Pilot:
    """What it holds, what it has to say, and what it must not say twice."""

    __slots__ = (
        "_asked", "_ends", "_key", "_n", "_node", "_parked", "_started", "_told", "held", "id",
        "known", "phase", "place", "trouble",
    )  # fmt: skip

    def __init__(self, node: Node, place: int = 0) -> None:
        #: Its number on the connection, and the one that the hub knows it by.
        self.place = place
        self.id = 0
        self.phase = Phase.NEW
        #: Why the hub refused it.
        self.trouble = ""
        #: What runs here, and all that ever did.
        self.held: set[str] = set()
        self.known: set[str] = set()
        self._node = node
        self._key = secrets.token_hex(32)
        self._n = 0
        # The message whose answer is awaited, and whether the hub may keep it for long.
        self._asked = 0
        self._parked = False
        # News, and what of it is under way.
        self._ends: list[str] = []
        self._started: list[str] = []
        self._told: tuple[list[str], list[str]] = ([], [])

    def say(self, now: float) -> Message | None:
        """Return what is to be sent now, if anything."""
        if self.phase is Phase.GONE or (self._asked and not self._parked):
            return None
        if self.phase is Phase.NEW:
            return self._ask(op="hello", protocol=PROTOCOL, token=self._node.token, key=self._key,
                             facts=self._facts())  # fmt: skip
        if self.phase is Phase.GREETED:
            return self._ask(op="ready", checks=[])
        if self.phase is Phase.CUT:
            # What has ended is still ours until the hub knows.
            keys = sorted(self.held | set(self._ends))
            return self._ask(op="resume", protocol=PROTOCOL, pilot=self.id, key=self._key,
                             running=keys)  # fmt: skip
        if self._parked and not (self._ends or self._started):
            return None
        return self._sync(now)

    def take(self, answer: Answer) -> list[str]:
        """Hear an answer; return the jobs that begin now."""
        if answer.error is not None:
            self.phase, self.trouble = Phase.GONE, f"{answer.error.code}: {answer.error.message}"
            return []
        begun = self._begin(answer)
        if answer.n != self._asked:
            return begun  # a parked sync that a later one took the place of
        self._asked, self._parked, self._told = 0, False, ([], [])
        if self.phase is Phase.NEW:
            self.id, self.phase = answer.pilot, Phase.GREETED
        elif self.phase in {Phase.GREETED, Phase.CUT}:
            self.phase = Phase.READY
        if answer.bye:
            self.phase = Phase.GONE
        return begun

    def end(self, key: str) -> None:
        """Let a job end well, if it is still here."""
        if key in self.held:
            self.held.discard(key)
            self._ends.append(key)

    def cut(self) -> None:
        """Note that the connection broke: what was under way may not have arrived."""
        ends, started = self._told
        self._ends, self._started = ends + self._ends, started + self._started
        self._asked, self._parked, self._told = 0, False, ([], [])
        if self.phase is Phase.READY:
            self.phase = Phase.CUT
        elif self.phase is Phase.GREETED:
            self.phase = Phase.NEW

    def _begin(self, answer: Answer) -> list[str]:
        for one in answer.stop:
            self.held.discard(one.key)
        begun = [one.key for one in answer.jobs if one.key not in self.known]
        self.held.update(begun)
        self.known.update(begun)
        self._started += begun
        return begun

    def _sync(self, now: float) -> Message:
        ends, started = self._ends, self._started
        self._ends, self._started = [], []
        self._told = (ends, started)
        message = self._ask(
            op="sync",
            ended=[{"key": key, "time": now, "exit": 0, "reason": "exited"} for key in ends],
            started=[[key, 1] for key in started],
            ahead=0,
            wait=self._node.wait,
        )
        self._parked = not (ends or started)
        return message

    def _ask(self, **fields: object) -> Message:
        self._n += 1
        self._asked, self._parked = self._n, False
        return {**fields, "n": self._n, "p": self.place}

    def _facts(self) -> Message:
        return {
            "host": f"node-{self._key[:8]}", "work": f"/scratch/{self._key[:8]}",
            "cpus": self._node.cpus, "memory": self._node.cpus << 31, "disk": 1 << 40,
            "os": "linux", "arch": "x86_64", "release": "debian-12",
            "python": "/usr/bin/python3", "python_version": "3.11.2",
        }  # fmt: skip
