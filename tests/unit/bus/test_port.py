"""Patterns of topics, and the limits of the bus in memory."""

from __future__ import annotations

import pytest

from pilotage.base import errors
from pilotage.bus.port import matches
from pilotage.testing import bus as memory


@pytest.mark.parametrize(
    "pattern, topic, expected",
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.*", "a.b", True),
        ("a.*", "a.b.c", False),
        ("a.*", "a.", False),
        ("a.**", "a", True),
        ("a.**", "a.b.c", True),
        ("**", "a.b", True),
        ("**.end", "end", True),
        ("**.end", "a.b.end", True),
        ("scan-*.done", "scan-7.done", True),
        ("scan-*.done", "scan.7.done", False),
        ("a+b", "aab", False),
    ],
)
def test_patterns(pattern: str, topic: str, expected: bool):  # noqa: FBT001 - a table
    assert matches(pattern, topic) is expected


async def test_too_many_waiting_messages_are_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(memory, "MOST_WAITING", 2)
    bus = memory.MemoryBus()
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"1")
        await bus.publish("t", b"2")
        with pytest.raises(errors.Unavailable):
            await bus.publish("t", b"3")
        await anext(messages)
        await bus.publish("t", b"3")


async def test_a_subscription_ends_with_its_block():
    bus = memory.MemoryBus()
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"1")
    with pytest.raises(StopAsyncIteration):
        await anext(messages)
    async with bus.subscribe("t") as messages:
        assert (await anext(messages)).body == b"1"
