"""The queue of one machine: what is said of an item between being chosen and being started."""

from __future__ import annotations

from pathlib import Path

from pilotage.node.queue import alive, place, show


def test_an_item_runs_once_it_is_known_where(tmp_path: Path):
    order = {"key": "k1", "count": 1, "by": alive.me()}
    one = place.new(str(tmp_path), order, "#!/bin/sh\ntrue\n")
    one.claim("keeper.json", alive.me())
    one.claim("0.begun", {"cancelled": False})
    (item,) = show.items(one)
    assert item["phase"] == "queued"
    one.write("0.runs", {**alive.me(), "time": 5.0})
    (item,) = show.items(one)
    assert (item["phase"], item["node"], item["started"]) == ("running", alive.me()["host"], 5.0)
