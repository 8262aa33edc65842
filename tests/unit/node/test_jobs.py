"""What a pilot holds, and what the hub has been told of it."""

from __future__ import annotations

import json
from typing import Any

from pilotage.node import frame
from pilotage.node.jobs import PilotJobs
from pilotage.node.launcher import over


def _launch(folder: object, key: str) -> dict[str, Any]:
    return {"key": key, "dir": f"{folder}/{key}", "cwd": str(folder), "outputs": {}}


def _told(jobs: PilotJobs, n: int) -> dict[str, Any]:
    body = "{" + jobs.report(n) + "}"
    frame.pack(body)
    return dict(json.loads(body))


def _end(key: str, result: str = "") -> dict[str, Any]:
    report = {**over(key, "exited", "exited with code 0"), "exit": 0}
    return {**report, "result": result} if result else report


def test_an_attempt_is_taken_once_also_after_it_was_acknowledged(tmp_path):
    jobs = PilotJobs(1000)
    launch = _launch(tmp_path, "1.1")
    assert jobs.take(launch)
    assert not jobs.take(launch)
    jobs.end(_end("1.1"), 0.0)
    assert not jobs.take(launch)
    _told(jobs, 1)
    assert [one.held.key for one in jobs.answered(1)] == ["1.1"]
    assert not jobs.take(launch)
    assert jobs.take(_launch(tmp_path, "1.2"))


def test_ends_are_told_until_they_are_acknowledged(tmp_path):
    jobs = PilotJobs(1000)
    jobs.take(_launch(tmp_path, "1.1"))
    jobs.start("1.1", 77)
    assert _told(jobs, 1)["started"] == [["1.1", 77]]
    jobs.end(_end("1.1"), 0.0)
    assert jobs.news()
    assert [end["key"] for end in _told(jobs, 2)["ended"]] == ["1.1"]
    assert not jobs.news()
    assert _told(jobs, 3)["ended"] == []
    jobs.cut()
    assert [end["key"] for end in _told(jobs, 4)["ended"]] == ["1.1"]
    assert jobs.answered(2) == []
    assert len(jobs.answered(4)) == 1
    assert jobs.ended == {}


def test_only_the_first_end_counts(tmp_path):
    jobs = PilotJobs(1000)
    jobs.take(_launch(tmp_path, "1.1"))
    jobs.end(_end("1.1"), 0.0)
    jobs.end(over("1.1", "lost", ""), 1.0)
    jobs.end(over("9.9", "lost", ""), 1.0)
    assert [end["reason"] for end in _told(jobs, 1)["ended"]] == ["exited"]


def test_no_message_is_longer_than_a_frame_whatever_is_returned(tmp_path):
    jobs = PilotJobs(1000)
    for number in range(6):
        jobs.take(_launch(tmp_path, f"{number}.1"))
        jobs.end(_end(f"{number}.1", json.dumps("ü" * (1 << 21), ensure_ascii=False)), 0.0)
    jobs.take(_launch(tmp_path, "9.1"))
    jobs.end(_end("9.1", json.dumps("ü" * (5 << 20), ensure_ascii=False)), 0.0)
    seen = {}
    for n in range(1, 10):
        seen.update({end["key"]: end for end in _told(jobs, n)["ended"]})
        jobs.answered(n)
    assert len(seen) == 7
    assert (seen["9.1"]["exit"], "result" in seen["9.1"]) == (1, False)
    assert "too long" in seen["9.1"]["message"]
