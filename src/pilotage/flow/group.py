"""Flows with many steps, made small enough to look at: steps that are alike become one box.

Two steps are alike if they run the same, follow on alike steps and are followed by alike steps; so
the lanes of a wide flow fall together, whatever their names are. If that leaves too many, chains
become one box too; and if that still does, so does all that may run at the same time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

#: Steps up to which each has a box of its own, and boxes that are drawn at most.
FEW, MOST = 40, 300

#: What leads to each step.
Needs = Mapping[str, Sequence[str]]


def groups(names: Sequence[str], needs: Needs, runs: Mapping[str, str]) -> list[list[str]]:
    """Put steps together that are shown as one; each group in the order of the steps."""
    if len(names) <= FEW:
        return [[name] for name in names]
    order, after = _order(names, needs)
    known = set(names)
    before = {name: [each for each in needs.get(name, ()) if each in known] for name in names}
    past = _colours(order, before, runs)
    future = _colours(list(reversed(order)), after, runs)
    found = _by(names, {name: (past[name], future[name]) for name in names})
    if len(found) > FEW:
        found = _chains(found, needs)
    if len(found) > MOST:
        depth = _depths(order, before)
        found = _chains(_by(names, {name: (depth[name],) for name in names}), needs)
    return found


def _by(names: Sequence[str], keys: Mapping[str, tuple[int, ...]]) -> list[list[str]]:
    found: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        found.setdefault(keys[name], []).append(name)
    return list(found.values())


def _order(names: Sequence[str], needs: Needs) -> tuple[list[str], dict[str, list[str]]]:
    """Sort steps so that each comes after what it needs; and say what follows on each."""
    after: dict[str, list[str]] = {name: [] for name in names}
    missing = dict.fromkeys(names, 0)
    for name in names:
        for each in needs.get(name, ()):
            if each in after:
                after[each].append(name)
                missing[name] += 1
    order = [name for name in names if not missing[name]]
    for name in order:
        for following in after[name]:
            missing[following] -= 1
            if not missing[following]:
                order.append(following)
    return order, after


def _colours(
    order: Sequence[str], near: Mapping[str, Sequence[str]], runs: Mapping[str, str]
) -> dict[str, int]:
    """Give steps one number that run the same and have neighbours with the same numbers."""
    seen: dict[tuple[str, frozenset[int]], int] = {}
    colours: dict[str, int] = {}
    for name in order:
        key = (runs.get(name, ""), frozenset(colours[each] for each in near[name]))
        colours[name] = seen.setdefault(key, len(seen))
    return colours


def _depths(order: Sequence[str], before: Mapping[str, Sequence[str]]) -> dict[str, int]:
    depths: dict[str, int] = {}
    for name in order:
        depths[name] = 1 + max((depths[each] for each in before[name]), default=-1)
    return depths


def _chains(found: Sequence[Sequence[str]], needs: Needs) -> list[list[str]]:
    """Join groups that follow on each other and on nothing else, but for the ends of a chain."""
    group_of = {name: number for number, group in enumerate(found) for name in group}
    into: list[set[int]] = [set() for _ in found]
    out: list[set[int]] = [set() for _ in found]
    for name, number in group_of.items():
        for each in needs.get(name, ()):
            if each in group_of and group_of[each] != number:
                into[number].add(group_of[each])
                out[group_of[each]].add(number)
    single = [len(into[at]) == 1 and len(out[at]) == 1 for at in range(len(found))]
    joined: list[list[str]] = []
    taken: set[int] = set()
    for number, group in enumerate(found):
        if number in taken:
            continue
        taken.add(number)
        chain = list(group)
        at = number
        while single[at] and single[at := next(iter(out[at]))] and at not in taken:
            taken.add(at)
            chain += found[at]
        joined.append(chain)
    return joined
