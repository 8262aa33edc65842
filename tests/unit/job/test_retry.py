"""What follows the end of an attempt: each branch, and that it always ends."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pilotage.job import machine, retry
from pilotage.job.model import Command, JobSpec, Retry, State

NOW = 1000.0
FAILED = retry.AttemptEnd(ok=False, message="exit code 1")
ENDS = st.builds(
    retry.AttemptEnd,
    ok=st.booleans(),
    message=st.text(max_size=5),
    lost=st.booleans(),
    stopped=st.booleans(),
    missing=st.lists(st.text(min_size=1), max_size=2).map(tuple),
    asked=st.sampled_from(["", "cancel", "hold"]),
    call_off=st.sampled_from(["", "its input has changed"]),
)
RETRIES = st.builds(
    Retry,
    attempts=st.integers(1, 50),
    delay=st.floats(0, 1e5),
    factor=st.floats(1, 1e6),
    longest=st.floats(0, 1e6),
)


def decide(end: retry.AttemptEnd, plan: Retry | None = None, **facts: Any) -> retry.Next:
    spec = JobSpec(Command(("x",)), "x", retry=plan or Retry())
    plain: dict[str, Any] = {"failures": 0, "attempt": 1, "now": NOW, "dice": random.Random(0)}
    return retry.decide(spec, end, **plain | facts)


@pytest.mark.parametrize(
    "facts, state, attempt, reason",
    [
        ({"ok": True}, State.DONE, "done", ""),
        ({"ok": True, "asked": "cancel"}, State.DONE, "done", ""),
        ({"ok": True, "asked": "hold"}, State.DONE, "done", ""),
        ({"ok": True, "stopped": True}, State.DONE, "done", ""),
        ({}, State.FAILED, "failed", "why"),
        ({"ok": True, "missing": ("/a", "/b")}, State.FAILED, "failed",
         "declared output is missing: /a, /b"),
        ({"missing": ("/a",)}, State.FAILED, "failed", "why"),
        ({"asked": "cancel"}, State.CANCELLED, "cancelled", "why"),
        ({"asked": "cancel", "message": ""}, State.CANCELLED, "cancelled", "cancelled by a person"),
        ({"asked": "hold"}, State.HELD, "cancelled", "held by a person while it ran"),
        ({"asked": "cancel", "lost": True}, State.CANCELLED, "cancelled", "why"),
        ({"asked": "cancel", "stopped": True}, State.CANCELLED, "cancelled", "why"),
        ({"call_off": "changed"}, State.CANCELLED, "cancelled", "changed"),
        ({"call_off": "changed", "asked": "hold"}, State.CANCELLED, "cancelled", "changed"),
        ({"stopped": True}, State.QUEUED, "lost", "why"),
        ({"lost": True}, State.QUEUED, "lost", "the last attempt was lost (why)"),
    ],
)  # fmt: skip
def test_what_follows(facts, state, attempt, reason):
    found = decide(retry.AttemptEnd(**{"ok": False, "message": "why"} | facts))
    assert (found.state, found.attempt, found.reason) == (state, attempt, reason)
    assert found.failed == (attempt == "failed")


def test_a_failure_is_followed_by_a_wait_that_the_reason_tells():
    found = decide(FAILED, Retry(attempts=3, delay=10), failures=1, attempt=2)
    assert found.state is State.QUEUED
    assert found.failed
    assert NOW + 20 <= found.not_before <= NOW + 22
    assert found.reason.startswith("attempt 2 of 3 failed (exit code 1); again in 2")


def test_lost_and_stopped_attempts_do_not_count_and_start_again_at_once():
    lost = retry.AttemptEnd(ok=False, message="", lost=True)
    stopped = retry.AttemptEnd(ok=False, message="", stopped=True)
    for end in (lost, stopped):
        found = decide(end, Retry(attempts=1))
        assert (found.state, found.failed, found.not_before) == (State.QUEUED, False, NOW)


def test_a_job_that_always_vanishes_ends():
    lost = retry.AttemptEnd(ok=False, message="gone", lost=True)
    almost = decide(lost, attempt=retry.MOST_LOST - 1)
    enough = decide(lost, attempt=retry.MOST_LOST)
    assert almost.state is State.QUEUED
    assert (enough.state, enough.attempt) == (State.FAILED, "lost")
    assert f"{retry.MOST_LOST} times: gone" in enough.reason
    # Failures of its own are no losses, and neither are refusals.
    assert decide(lost, attempt=retry.MOST_LOST, failures=1).state is State.QUEUED
    assert decide(lost, attempt=retry.MOST_LOST, refused=1).state is State.QUEUED


@given(ENDS, RETRIES, st.integers(0, 60), st.integers(0, 60))
def test_whatever_follows_is_legal_and_makes_sense(end, plan, failures, others):
    found = decide(end, plan, failures=failures, attempt=failures + others + 1)
    assert found.state in machine.TRANSITIONS[State.RUNNING]
    assert found.attempt in {"done", "failed", "cancelled", "lost"}
    assert (found.state is State.DONE) == (found.attempt == "done")
    assert found.not_before == 0 or (found.state is State.QUEUED and found.not_before >= NOW)
    if found.state is State.QUEUED and found.failed:
        assert failures + 1 < plan.attempts


@given(RETRIES, st.integers(0, 2**32))
def test_a_job_that_always_fails_is_tried_exactly_as_often_as_it_may(plan, seed):
    failures, state = 0, State.QUEUED
    while state is State.QUEUED:
        found = decide(FAILED, plan, failures=failures, attempt=failures + 1)
        state = found.state
        failures += found.failed
    assert (state, failures) == (State.FAILED, plan.attempts)


@given(RETRIES, st.integers(1, 5000), st.integers(0, 2**32))
@example(Retry(5000, delay=1.0, factor=2.0, longest=5.0), 4000, 0)
@example(Retry(5000, delay=0.0, factor=2.0, longest=5.0), 4000, 0)
def test_waits_grow_to_the_longest_and_no_further(plan, failures, seed):
    wait = retry.delay(plan, failures, random.Random(seed))
    assert 0 <= wait <= plan.longest * 1.1 * (1 + 1e-9)
    if plan.delay == 0:
        assert wait == 0
    first = retry.delay(plan, 1, random.Random(seed))
    assert wait >= first * (1 - 1e-9)
    assert min(plan.delay, plan.longest) <= first


@given(st.integers(1, 20), st.integers(0, 2**32))
def test_each_wait_is_longer_by_the_factor(failures, seed):
    plan = Retry(delay=2.0, factor=3.0, longest=1e30)
    waits = [retry.delay(plan, count, random.Random(seed)) for count in (failures, failures + 1)]
    assert waits[1] == pytest.approx(3 * waits[0])
