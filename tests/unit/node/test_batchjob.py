"""A batch system that ends a job may tell its payload before it tells us."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pilotage.node.batchjob import starter
from pilotage.node.batchjob.record import Signals


@pytest.fixture
def signals() -> Iterator[Signals]:
    made = Signals()
    yield made
    made.inner.close()
    made._outer.close()


def report(reason: str, code: int | None, signal: int | None) -> dict[str, Any]:
    return {**starter.ending("1.1", reason, "as it was"), "exit": code, "signal": signal}


@pytest.mark.parametrize(
    "reason, code, signal",
    [("signalled", None, 15), ("signalled", None, 9), ("exited", 143, None), ("stopped", 0, None)],
)
def test_a_signal_that_crosses_the_end_of_the_payload_counts(
    signals: Signals,
    reason: str,
    code: int | None,
    signal: int | None,
):
    threading.Timer(0.2, signals._outer.send, [b"\x0f"]).start()
    found = starter.judged(report(reason, code, signal), signals)
    assert (found["reason"], found["message"]) == (
        "stopped", "the batch system ended it (signal 15)",
    )  # fmt: skip


@pytest.mark.parametrize(
    "reason, code, signal", [("exited", 1, None), ("exited", 0, None), ("signalled", None, 11)]
)
def test_an_end_of_its_own_is_not_waited_for(
    signals: Signals,
    reason: str,
    code: int | None,
    signal: int | None,
):
    began = time.monotonic()
    assert starter.judged(report(reason, code, signal), signals)["message"] == "as it was"
    assert time.monotonic() - began < starter._CROSSING_S
