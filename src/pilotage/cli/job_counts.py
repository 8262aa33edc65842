"""Counts of jobs by name and state, as lines of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pilotage.cli.answer import Cell, Style, Styled
from pilotage.job.machine import FINAL
from pilotage.job.model import State

Counts = Mapping[str, Mapping[str, int]]

_BAD = (State.FAILED, State.REJECTED)
_BUSY = (State.STAGING_IN, State.READY, State.SUBMITTED, State.RUNNING, State.STAGING_OUT)


def by_name(rows: Iterable[tuple[str, str, int]]) -> dict[str, dict[str, int]]:
    """Sort rows of name, state and count by name."""
    found: dict[str, dict[str, int]] = {}
    for name, state, count in rows:
        found.setdefault(name, {})[state] = count
    return found


def line(name: str, states: Mapping[str, int]) -> tuple[Cell, ...]:
    """Return one line: jobs ended of all, how they ended, and what runs."""
    total = sum(states.values())
    ended = sum(states.get(state, 0) for state in FINAL)
    pieces: list[Cell] = [f"{name}  ", f"{ended}/{total}"]
    signs: tuple[tuple[str, Style, tuple[State, ...]], ...] = (
        ("✔", "green", (State.DONE,)),
        ("✘", "red", _BAD),
        ("▶", "cyan", _BUSY),
        ("⏸", "yellow", (State.HELD,)),
        ("–", "dim", (State.CANCELLED,)),
    )
    for sign, style, members in signs:
        count = sum(states.get(state, 0) for state in members)
        if count:
            pieces += [f"  {count} ", Styled(sign, style)]
    return tuple(pieces)


def lines(counts: Counts, most: int = 20) -> list[tuple[Cell, ...]]:
    """Return a line for each name; those with running jobs come first."""
    names = list(counts)
    if len(names) > most:
        names.sort(key=lambda name: all(state in FINAL for state in counts[name]))
    found = [line(name, counts[name]) for name in names[:most]]
    wide = max((len(str(pieces[0])) for pieces in found), default=0)
    high = max((len(str(pieces[1])) for pieces in found), default=0)
    shown = [(f"{pieces[0]:<{wide}}", f"{pieces[1]:>{high}}", *pieces[2:]) for pieces in found]
    return [*shown, (f"… and {len(names) - most} more",)] if len(names) > most else shown
