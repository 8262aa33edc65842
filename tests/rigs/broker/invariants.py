"""Invariants of an agent: each can be checked at any time, and all of them at the end.

1. A payload starts at most once in an attempt.
2. Every accepted job comes to one end.
3. What is said of a job is in order, and its end is said.
4. No message is gone that the broker was told to forget.
5. No job is done that has not come to its end.
6. Nothing runs that the site does not offer.
7. No more jobs go on than may.
8. No secret is in a log or a message.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Iterable
from pathlib import Path

from tests.rigs.broker.edge_agent import FINAL, Edge

#: States in which a job does not go on.
_RESTS = (*FINAL, "waiting", "held")


def holds(edge: Edge, keys: Collection[str], *, ran: bool = True) -> None:
    """Require all of it for jobs that have ended; with `ran` each was done."""
    i1_started_once(edge)
    i2_one_end_each(edge, keys)
    i3_said_in_order(edge, keys)
    i4_nothing_lost(edge, keys)
    i5_done_means_done(edge, keys)
    i8_no_secret(edge)
    if ran:
        states = collections.Counter(edge.states(keys).values())
        assert states == {"done": len(keys)}, edge.told()


def i1_started_once(edge: Edge) -> None:
    """Require that no attempt of a job started twice, and that only jobs did."""
    twice = {one: count for one, count in edge.programs.started().items() if count != 1}
    assert twice == {}, edge.told()
    known = edge.jobs()
    strangers = [one for one in edge.programs.starts() if one.job not in known]
    assert strangers == [], edge.told()


def i2_one_end_each(edge: Edge, keys: Iterable[str]) -> None:
    """Require that each job has one end, the same in the store and in what was said."""
    numbers = numbers_of(edge, keys)
    known, said = edge.jobs(), edge.said_of()
    for key, number in numbers.items():
        ends = [one["state"] for one in said[key] if one["state"] in FINAL]
        # One who asks again may be told again, but nothing else.
        assert len(set(ends)) == 1, f"{key}: {ends}\n{edge.told()}"
        if number:
            assert known[number].state == ends[0], f"{key}\n{edge.told()}"
    accepted = [number for number in numbers.values() if number]
    assert len(accepted) == len(set(accepted))


def i3_said_in_order(edge: Edge, keys: Iterable[str]) -> None:
    """Require that, less what was said twice, numbers rise and nothing follows the end."""
    by_key: dict[str, list[tuple[int, str]]] = collections.defaultdict(list)
    for one in edge.heard():
        by_key[one["key"]].append((one["seq"], one["state"]))
    for key in keys:
        said = [*dict.fromkeys(by_key[key])]
        numbers = [seq for seq, _ in said]
        assert numbers == sorted(set(numbers)), f"{key}: {said}"
        states = [state for _, state in said]
        first = next((at for at, state in enumerate(states) if state in FINAL), None)
        assert first is not None, f"{key}: {said}\n{edge.told()}"
        assert set(states[first:]) == {states[first]}, f"{key}: {said}"


def i4_nothing_lost(edge: Edge, keys: Iterable[str]) -> None:
    """Require that each job that was sent was heard of."""
    known = {one["key"] for one in edge.heard()}
    lost = [key for key in keys if key not in known]
    assert lost == [], edge.told()


def i5_done_means_done(edge: Edge, keys: Iterable[str]) -> None:
    """Require that whatever counts as done has written its last line."""
    ended = {(one.job, one.attempt) for one in edge.programs.ends()}
    said = edge.said_of()
    for key in keys:
        for last in (one for one in said.get(key, ()) if one["state"] == "done"):
            assert (last["job"], last["attempt"]) in ended, f"{key}: {last}\n{edge.told()}"


def i6_nothing_else_ran(canary: Path) -> None:
    """Require that nobody left anything where only what must not run would."""
    assert not canary.exists() or [*canary.iterdir()] == []


def i7_most_at_once(edge: Edge, jobs: Collection[int] = ()) -> int:
    """Return how many jobs, of some or of all, ever went on at the same time."""
    going: set[int] = set()
    most = 0
    for job, state in edge.query("SELECT job, state FROM journal ORDER BY seq"):
        if jobs and job not in jobs:
            continue
        (going.discard if state in _RESTS else going.add)(job)
        most = max(most, len(going))
    return most


def i8_no_secret(edge: Edge) -> None:
    """Require that neither keys nor other secrets are in the log, or in what was said."""
    said = edge.said + "".join(one.body.decode(errors="replace") for one in edge.raw())
    keys = [line for file in edge.papers.glob("*.key") for line in file.read_text().splitlines()]
    secrets = [*edge.secrets, *(line for line in keys if not line.startswith("-"))]
    assert [one for one in secrets if one in said] == []


def numbers_of(edge: Edge, keys: Iterable[str]) -> dict[str, int]:
    """Return by key the number of each job; 0 if it was refused."""
    found = {one["key"]: int(one["job"]) for one in edge.heard()}
    return {key: found[key] for key in keys}
