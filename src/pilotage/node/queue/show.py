"""What has become of submissions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from . import alive
from .place import Place

Item = dict[str, Any]


def items(place: Place) -> Iterator[Item]:
    """Describe each item of a submission."""
    order = place.order()
    keeper = _keeper(place, order)
    for index in range(order["count"]):
        found: Item = {"id": f"{place.id}.{index}", "key": order["key"], "index": index}
        yield {**found, **_state(place, index, keeper)}


def finished(found: list[Item]) -> float:
    """Return when the last item ended; never if one has not."""
    if any(item["phase"] != "over" for item in found):
        return float("inf")
    return max((item.get("ended") or 0.0 for item in found), default=0.0)


def _keeper(place: Place, order: dict[str, Any]) -> str:
    """Say whether the supervisor `lives`, is `gone`, or is on a machine that we do not see."""
    who = place.read("keeper.json")
    if who is None:
        # It is about to begin, unless whoever submitted has died before.
        if alive.elsewhere(order["by"]) or alive.lives(order["by"]):
            return "lives"
        # From now on none can begin.
        place.claim("keeper.json", {**order["by"], "start": "never"})
        who = place.read("keeper.json") or order["by"]
    if alive.elsewhere(who):
        return "elsewhere"
    return "lives" if alive.lives(who) else "gone"


def _state(place: Place, index: int, keeper: str) -> Item:
    begun = place.read(f"{index}.begun")
    runs = place.read(f"{index}.runs")
    over = place.read(f"{index}.over")
    if over is not None:
        return _over(over, runs)
    if begun is not None and begun["cancelled"]:
        return {"phase": "over", "cause": "cancelled", "ended": begun["time"]}
    if keeper == "elsewhere":
        return {"phase": "unknown", "words": "its supervisor is on another machine"}
    if runs is not None and (keeper == "lives" or alive.lives(runs)):
        return {"phase": "running", "node": runs["host"], "started": runs["time"]}
    if keeper == "lives":
        # Its script waits at a gate until the file that says where it runs is on disk.
        return {"phase": "queued"}
    return _lost(place, index, runs)


def _lost(place: Place, index: int, runs: Item | None) -> Item:
    """Write down that nobody knows how an item ended, or that it never began."""
    end = {"cause": "unknown", "words": "its supervisor is gone", "time": time.time()}
    if runs is None:
        end = {**end, "cause": "node", "words": "its supervisor ended before it began"}
    place.claim(f"{index}.over", end)
    return _over(place.read(f"{index}.over") or end, runs)


def _over(over: Item, runs: Item | None) -> Item:
    found: Item = {
        name: over[name] for name in ("cause", "exit", "signal", "words") if name in over
    }
    found.update(phase="over", ended=over.get("time"))
    if runs is not None:
        found.update(node=runs["host"], started=runs["time"])
    return found
