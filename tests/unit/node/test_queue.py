"""The queue of one machine: what is said of an item between being chosen and being started."""

from __future__ import annotations

from pathlib import Path

from pilotage.node.queue import program, submission


def test_an_item_runs_once_it_is_known_where(tmp_path: Path):
    order = {"key": "k1", "count": 1, "by": submission.me()}
    one = submission.new(str(tmp_path), order, "#!/bin/sh\ntrue\n")
    one.claim("keeper.json", submission.me())
    one.claim("0.begun", {"cancelled": False})
    (item,) = program.listed(one)
    assert item["phase"] == "queued"
    one.write("0.runs", {**submission.me(), "time": 5.0})
    (item,) = program.listed(one)
    assert (item["phase"], item["node"], item["started"]) == (
        "running",
        submission.me()["host"],
        5.0,
    )
