"""What listings let one conclude, whatever they leave out and however late they are."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pilotage.batch import submission
from pilotage.batch.submission import (
    Accepted,
    ArrayTask,
    NotAccepted,
    ReportedOver,
    ReportedRunning,
    Submission,
    Vanished,
)
from pilotage.batch.system.model import BatchItem, BatchOrder, EndCause, Phase

SETTLE = 30.0
KEY = "plabcdefghijklm"
FACTS = {Phase.OVER: {"cause": EndCause.EXITED, "exit": 0}}


def make(count: int = 1, **facts: object) -> Submission:
    order = BatchOrder(key=KEY, script="", folder=f"/root/s/{KEY}", count=count)
    works = {place: ArrayTask(place, job=place + 1, attempt=1) for place in range(count)}
    return Submission(1, KEY, "slurm", order, works=works, **facts)  # type: ignore[arg-type]


def item(phase: Phase, index: int = 0, number: str = "7", **facts: object) -> BatchItem:
    more = {**FACTS.get(phase, {}), **facts}
    return BatchItem(key=KEY, id=f"{number}_{index}", index=index, phase=phase, **more)  # type: ignore[arg-type]


def look(
    one: Submission, *found: BatchItem, now: float, remembered: tuple[BatchItem, ...] = ()
) -> list[submission.Finding]:
    return submission.look(one, found, remembered, now, SETTLE)


def test_a_key_has_the_form_that_every_batch_system_takes() -> None:
    keys = {submission.new_key() for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) == 15 and key.isalnum() and key.islower() for key in keys)


def test_what_is_listed_is_known_by_the_name_of_the_whole() -> None:
    one = make(count=2, asked=1.0)
    assert look(one, item(Phase.QUEUED, 1), item(Phase.QUEUED), now=2.0) == [Accepted("7")]


def test_two_good_listings_apart_make_it_unknown() -> None:
    one = make(asked=1.0)
    assert look(one, now=2.0) == []
    assert look(one, now=20.0) == []
    assert look(one, now=32.0) == [NotAccepted()]


@pytest.mark.parametrize("facts", [{"asking": True, "asked": 1.0}, {"asked": 0.0}])
def test_nothing_is_missing_while_it_is_being_asked_for(facts: dict[str, Any]) -> None:
    one = make(**facts)
    assert [look(one, now=now) for now in (2.0, 50.0, 100.0)] == [[], [], []]


def test_a_listing_that_was_asked_for_before_does_not_count() -> None:
    one = make(asked=50.0)
    assert look(one, now=49.0) == look(one, now=50.0) == look(one, now=51.0) == []
    assert look(one, now=60.0) == []


def test_each_refusal_makes_the_next_try_later() -> None:
    one = make(asked=1.0, tries=4)
    assert look(one, now=2.0) == look(one, now=100.0) == []
    assert look(one, now=2.0 + 4 * SETTLE) == [NotAccepted()]


def test_what_is_refused_for_ever_needs_one_good_listing() -> None:
    one = make(asked=1.0, final=True)
    assert look(one, now=2.0) == [NotAccepted()]


def test_an_end_is_waited_for() -> None:
    one = make(known=True, asked=1.0)
    (work,) = one.works.values()
    over = item(Phase.OVER)
    assert look(one, over, now=2.0) == look(one, over, now=10.0) == []
    assert look(one, over, now=2.0 + submission.LINGER_S) == [ReportedOver(work, over)]


def test_evidence_from_outside_waits_for_the_scheduler_s_word_but_not_for_ever() -> None:
    one = make(known=True, asked=1.0)
    (work,) = one.works.values()
    work.began, work.parting, work.parting_since = True, {"end": {"reason": "stopped"}}, 2.0
    running, over = item(Phase.RUNNING), item(Phase.OVER, cause=EndCause.TIMEOUT)
    assert look(one, running, now=3.0) == []
    assert look(one, over, now=4.0) == [ReportedOver(work, over)]
    assert look(one, running, now=2.0 + submission.LINGER_S) == [Vanished(work)]


def test_a_second_copy_that_ended_says_nothing_of_the_first() -> None:
    one = make(known=True, asked=1.0)
    (work,) = one.works.values()
    first, second = item(Phase.RUNNING, number="7"), item(Phase.OVER, number="8")
    assert look(one, first, second, now=2.0) == [ReportedRunning(work, first)]
    work.began = True
    assert look(one, second, now=100.0, remembered=(first,)) == []


def test_what_is_over_is_not_looked_at() -> None:
    one = make(count=2, known=True, asked=1.0)
    one.works[0].over = True
    found = [look(one, now=2.0 + 20 * turn) for turn in range(5)][-1]
    assert found == [Vanished(one.works[1])]


def test_a_number_that_nobody_knows_concludes_nothing() -> None:
    one = make(known=True, asked=1.0)
    strange = item(Phase.UNKNOWN)
    assert [look(one, strange, now=float(now)) for now in range(2, 500, 10)] == [[]] * 50


@dataclasses.dataclass
class Scheduler:
    """A batch system that may take its time, and lists in full, or not at all, what it has."""

    #: When it takes what it was asked for, and when that starts and ends; None if it never does.
    takes: float | None
    starts: float
    ends: float
    #: How long it remembers what ended.
    remembers: float

    def has(self, now: float) -> bool:
        return self.takes is not None and self.takes <= now <= self.ends + self.remembers

    def listing(self, now: float) -> list[BatchItem]:
        if not self.has(now):
            return []
        if now >= self.ends:
            return [item(Phase.OVER)]
        return [item(Phase.RUNNING if now >= self.starts else Phase.QUEUED)]


@settings(max_examples=300)
@given(
    takes=st.none() | st.floats(0, 200),
    waits=st.floats(0, 300),
    runs=st.floats(0, 300),
    remembers=st.floats(60, 600),
    answer=st.floats(0.5, 60),
    pauses=st.lists(st.floats(0.5, 60), min_size=5, max_size=60),
    good=st.lists(st.booleans(), min_size=60, max_size=60),
)
def test_a_model(
    takes: float | None,
    waits: float,
    runs: float,
    remembers: float,
    answer: float,
    pauses: list[float],
    good: list[bool],
) -> None:
    """Nothing the batch system has is unknown or gone, and nothing begins that was fenced."""
    starts = (takes or 0) + waits
    scheduler = Scheduler(takes, starts, starts + runs, remembers)
    one = make(asking=True)
    now = 0.0
    for pause, fine in zip(pauses, good, strict=False):
        now += pause
        if now >= answer and one.asking:
            one.asked, one.asking = answer, False
        # Between the question and the answer of a listing nothing happens here.
        found = scheduler.listing(now) if fine else None
        if found is None:
            continue
        for finding in submission.look(one, found, [], now, SETTLE):
            if ends(scheduler, one, finding, now):
                return


def ends(scheduler: Scheduler, one: Submission, finding: submission.Finding, now: float) -> bool:
    """Check what was concluded; say whether nothing more can be."""
    (work,) = one.works.values()
    match finding:
        case Accepted():
            assert scheduler.has(now)
            one.known = True
        case NotAccepted():
            assert not scheduler.has(now)
            assert not one.known
            # Whoever began before has taken the claim, so that the fence fails.
            one.known = scheduler.takes is not None and now >= scheduler.starts
            return not one.known
        case ReportedRunning():
            assert scheduler.starts <= now < scheduler.ends
            work.began = True
        case ReportedOver():
            assert now >= scheduler.ends + submission.LINGER_S or work.over_since > 0
            assert now >= scheduler.ends
            return True
        case Vanished():
            assert not scheduler.has(now)
            return True
    return False
