"""The session with the hub: requests are numbered, answers come in any order."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any, NoReturn

from . import frame, policy
from .link import HubLink

PROTOCOL = 1

#: Codes of errors after which the same question may have a better answer.
_PASSING = ("E6", "E8")


class HubError(Exception):
    """The hub answered with an error; a new connection may help."""


class RefusedError(Exception):
    """The hub does not want this pilot."""


@dataclass(frozen=True)
class Question:
    """Something that the hub was asked."""

    op: str
    sent: float
    #: When the connection counts as broken if there is no answer.
    due: float


class Session:
    """The pilot's identity at the hub, and its open requests."""

    def __init__(self, link: HubLink, secret: str, facts: dict[str, Any], name: str) -> None:
        self.link = link
        self.facts = facts
        #: What the hub said when it first answered; empty before that.
        self.terms: dict[str, Any] = {}
        #: Whether the hub knows who speaks on this connection.
        self.greeted = False
        #: When the last question was sent that has been answered, on the pilot's clock.
        self.answered = 0.0
        self._secret = secret
        self._name = name
        self._key = secrets.token_hex(32)
        self._number = 0
        self._asked: dict[int, Question] = {}

    @property
    def heartbeat(self) -> float:
        """Return how often the hub wants to hear of us, in seconds."""
        return float(self.terms.get("heartbeat", 30.0))

    @property
    def lease(self) -> float:
        """Return after how many seconds of silence the hub gives our work away."""
        return float(self.terms.get("lease", 150.0))

    def ask(self, op: str, now: float, fields: str = "", wait: float = 0.0) -> int:
        """Send a question; `fields` is the inside of a JSON object."""
        if self.link.channel is None:
            raise RuntimeError("there is no connection")
        self._number += 1
        due = now + wait + policy.patience(self.heartbeat)
        self._asked[self._number] = Question(op, now, due)
        inside = f",{fields}" if fields else ""
        self.link.channel.send(f'{{"op":"{op}","n":{self._number}{inside}}}')
        return self._number

    @property
    def next_number(self) -> int:
        """Return the number that the next question will have."""
        return self._number + 1

    def waits_for(self, op: str) -> bool:
        """Return whether such a question has not been answered."""
        return any(one.op == op for one in self._asked.values())

    def greet(self, running: list[str], now: float) -> None:
        """Authenticate on a new connection."""
        if self.terms:
            self.resume(running, now)
            return
        words = {"protocol": PROTOCOL, "token": self._secret, "key": self._key}
        fields = {**words, "facts": self.facts, **({"name": self._name} if self._name else {})}
        self.ask("hello", now, frame.text(fields)[1:-1])

    def resume(self, running: list[str], now: float) -> None:
        """Write the message that resumes this pilot."""
        words = {**self.credentials(), "running": running}
        self.ask("resume", now, frame.text(words)[1:-1])

    def credentials(self) -> dict[str, Any]:
        """Write the message that opens a connection for data."""
        return {"protocol": PROTOCOL, "pilot": self.terms["pilot"], "key": self._key}

    def understand(self, reply: dict[str, Any]) -> tuple[str, int]:
        """Find the question to an answer; errors are raised."""
        question = self._asked.pop(reply.get("n", 0), None)
        if "error" in reply:
            self._complain(reply["error"], question.op if question else "")
        if question is None:
            return "", 0
        self.answered = max(self.answered, question.sent)
        if question.op in {"hello", "resume"}:
            if not self.terms:
                self.terms = reply
                self._secret = ""
            self.greeted = True
            self.link.longest = min(30.0, self.lease / 5)
        else:
            self.link.succeed()
        return question.op, int(reply["n"])

    def _complain(self, error: dict[str, Any], op: str) -> NoReturn:
        words = f"the hub answers {op or 'nothing we asked'} with: {error.get('message', error)}"
        passing = str(error.get("code", "")).startswith(_PASSING)
        if op in {"hello", "resume", "ready"} and not passing:
            raise RefusedError(words)
        raise HubError(words)

    def overdue(self, now: float) -> bool:
        """Return whether an answer takes too long."""
        return any(now > one.due for one in self._asked.values())

    def cut(self, why: str, now: float) -> None:
        """Give the connection up, with all questions on it."""
        self.link.cut(why, now)
        self._asked.clear()
        self.greeted = False
