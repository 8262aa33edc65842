"""Format times, states, counts and facts with names, for all commands."""

from __future__ import annotations

from datetime import UTC, datetime

from pilotage.base import text
from pilotage.cli.answer import Shown, Style, Styled, line
from pilotage.job.model import State

#: The width of the names of facts.
_LABEL = 11
STYLES: dict[str, Style] = {
    State.RUNNING: "cyan",
    State.HELD: "yellow",
    State.DONE: "green",
    State.FAILED: "red",
    State.REJECTED: "red",
    State.CANCELLED: "dim",
    State.WAITING: "dim",
    "lost": "yellow",
}


def stamp(time: float | None) -> str | None:
    """Write a time for programs: RFC 3339, UTC."""
    if time is None:
        return None
    return (
        datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def clock(time: float, *, day: bool = True) -> str:
    """Write a time for people, in their own zone."""
    local = datetime.fromtimestamp(time, UTC).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S}" if day else f"{local:%H:%M:%S}"


def state(word: str) -> Styled:
    """Write a state in its colour."""
    return Styled(word.replace("_", " "), STYLES.get(word, ""))


def count(number: int, noun: str) -> str:
    """Write `1 job`, `2 jobs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def pair(name: str, value: str) -> Shown:
    """Write a fact with its name before it."""
    return line(Styled(f"{name:<{_LABEL}}", "dim"), f"  {text.show(value)}")
