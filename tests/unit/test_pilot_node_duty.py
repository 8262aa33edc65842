"""What a pilot holds, and what the hub has been told of it."""

from __future__ import annotations

import json
from typing import Any

from pilotage.node import frame
from pilotage.node.duty import Duty
from pilotage.node.launcher import over


def _launch(folder: object, key: str) -> dict[str, Any]:
    return {"key": key, "dir": f"{folder}/{key}", "cwd": str(folder), "outputs": {}}


def _told(duty: Duty, n: int) -> dict[str, Any]:
    body = "{" + duty.report(n) + "}"
    frame.pack(body)
    return dict(json.loads(body))


def _end(key: str, result: str = "") -> dict[str, Any]:
    report = {**over(key, "exited", "exited with code 0"), "exit": 0}
    return {**report, "result": result} if result else report


def test_an_attempt_is_taken_once_also_after_it_was_acknowledged(tmp_path):
    duty = Duty(1000)
    launch = _launch(tmp_path, "1.1")
    assert duty.take(launch)
    assert not duty.take(launch)
    duty.end(_end("1.1"), 0.0)
    assert not duty.take(launch)
    _told(duty, 1)
    assert [one.held.key for one in duty.answered(1)] == ["1.1"]
    assert not duty.take(launch)
    assert duty.take(_launch(tmp_path, "1.2"))


def test_ends_are_told_until_they_are_acknowledged(tmp_path):
    duty = Duty(1000)
    duty.take(_launch(tmp_path, "1.1"))
    duty.start("1.1", 77)
    assert _told(duty, 1)["started"] == [["1.1", 77]]
    duty.end(_end("1.1"), 0.0)
    assert duty.news()
    assert [end["key"] for end in _told(duty, 2)["ended"]] == ["1.1"]
    assert not duty.news()
    assert _told(duty, 3)["ended"] == []
    duty.cut()
    assert [end["key"] for end in _told(duty, 4)["ended"]] == ["1.1"]
    assert duty.answered(2) == []
    assert len(duty.answered(4)) == 1
    assert duty.ended == {}


def test_only_the_first_end_counts(tmp_path):
    duty = Duty(1000)
    duty.take(_launch(tmp_path, "1.1"))
    duty.end(_end("1.1"), 0.0)
    duty.end(over("1.1", "lost", ""), 1.0)
    duty.end(over("9.9", "lost", ""), 1.0)
    assert [end["reason"] for end in _told(duty, 1)["ended"]] == ["exited"]


def test_no_message_is_longer_than_a_frame_whatever_is_returned(tmp_path):
    duty = Duty(1000)
    for number in range(6):
        duty.take(_launch(tmp_path, f"{number}.1"))
        duty.end(_end(f"{number}.1", json.dumps("ü" * (1 << 21), ensure_ascii=False)), 0.0)
    duty.take(_launch(tmp_path, "9.1"))
    duty.end(_end("9.1", json.dumps("ü" * (5 << 20), ensure_ascii=False)), 0.0)
    seen = {}
    for n in range(1, 10):
        seen.update({end["key"]: end for end in _told(duty, n)["ended"]})
        duty.answered(n)
    assert len(seen) == 7
    assert (seen["9.1"]["exit"], "result" in seen["9.1"]) == (1, False)
    assert "too long" in seen["9.1"]["message"]
