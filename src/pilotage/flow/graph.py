"""The graph of steps: order, cycles and what is downstream.

Nothing here is recursive: a flow may have ten thousand steps in a row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

#: For each step those that must be over before it.
Needs = Mapping[str, Sequence[str]]


def followers(needs: Needs) -> dict[str, list[str]]:
    """Return, for each step, those that wait for it."""
    found: dict[str, list[str]] = {name: [] for name in needs}
    for name, before in needs.items():
        for one in before:
            found[one].append(name)
    return found


def order(needs: Needs) -> list[str]:
    """Return the steps such that each comes after those it needs; those in a circle are left out.

    Where there is a choice the order of the definition holds.
    """
    after = followers(needs)
    unmet = {name: len(before) for name, before in needs.items()}
    ready = deque(name for name, count in unmet.items() if not count)
    found: list[str] = []
    while ready:
        name = ready.popleft()
        found.append(name)
        for one in after[name]:
            unmet[one] -= 1
            if not unmet[one]:
                ready.append(one)
    return found


def cycle(needs: Needs) -> list[str]:
    """Return the path of a circle, its first step again at the end; empty if there is none."""
    left = needs.keys() - set(order(needs))
    if not left:
        return []
    # Each step that is left waits for another that is left: going back must come to one twice.
    name = next(one for one in needs if one in left)
    seen: dict[str, int] = {}
    path: list[str] = []
    while name not in seen:
        seen[name] = len(path)
        path.append(name)
        name = next(one for one in needs[name] if one in left)
    # It was found backwards; it is returned forwards, from the step that is written first.
    circle = path[seen[name] :][::-1]
    places = {one: place for place, one in enumerate(needs)}
    first = min(range(len(circle)), key=lambda at: places[circle[at]])
    return [*circle[first:], *circle[:first], circle[first]]


def downstream(after: Mapping[str, Iterable[str]], steps: Iterable[str]) -> set[str]:
    """Return steps and all that come after them, however far."""
    found = set(steps)
    left = deque(found)
    while left:
        for one in after.get(left.popleft(), ()):
            if one not in found:
                found.add(one)
                left.append(one)
    return found
