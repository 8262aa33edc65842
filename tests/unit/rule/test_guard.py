"""What keeps rules from running away: paces, repeats, and who caused what."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.event.model import Event, EventKind
from pilotage.job.model import Command, JobSpec
from pilotage.rule import firing
from pilotage.rule.model import FilePattern, Rate, Rule

GAPS = st.lists(st.floats(0, 20), min_size=1, max_size=60)


def places(pacer: firing.Pacer, rate: Rate, nows: list[float]) -> list[float]:
    return [pacer.not_before("r", rate, now) or now for now in nows]


@given(GAPS, st.integers(1, 6), st.floats(0.1, 60))
def test_no_span_of_time_holds_more_jobs_than_it_may(gaps, count, per):
    nows = list(itertools.accumulate(gaps))
    starts = places(firing.Pacer(), Rate(count, per), nows)
    assert all(start >= now for start, now in zip(starts, nows, strict=True))
    assert starts == sorted(starts)
    for one, other in zip(starts, starts[count:], strict=False):
        assert other - one >= per * (1 - 1e-9)


@given(GAPS, st.integers(1, 6))
def test_nobody_is_delayed_without_need(gaps, count):
    """Each job but the first `count` starts at once, or exactly when the span is over."""
    per = 10.0
    nows = list(itertools.accumulate(gaps))
    starts = places(firing.Pacer(), Rate(count, per), nows)
    assert starts[:count] == nows[:count]
    for number in range(count, len(starts)):
        assert starts[number] == max(nows[number], starts[number - count] + per)


def test_each_rule_has_a_budget_of_its_own():
    pacer, rate = firing.Pacer(), Rate(1, 60.0)
    assert pacer.not_before("a", rate, 100.0) == 0.0
    assert pacer.not_before("b", rate, 100.0) == 0.0
    assert pacer.not_before("a", rate, 100.0) == 160.0


def test_a_new_rate_holds_at_once_and_knows_the_past():
    pacer = firing.Pacer()
    for _ in range(3):
        assert pacer.not_before("r", Rate(3, 60.0), 100.0) == 0.0
    assert pacer.not_before("r", Rate(1, 60.0), 100.0) == 160.0


def test_repeats_are_counted_by_rule_and_file_for_a_minute():
    repeats = firing.Repeats()
    assert [repeats.count("r", "/a", now) for now in (100.0, 101.0, 102.0)] == [1, 2, 3]
    assert repeats.count("r", "/b", 102.0) == 1
    assert repeats.count("s", "/a", 102.0) == 1
    assert repeats.count("r", "/a", 160.0) == 4
    assert repeats.count("r", "/a", 161.0) == 1


def test_why_a_job_is_held_names_the_setting():
    rule = Rule("clean", FilePattern(), JobSpec(Command(("x",)), "clean"), max_depth=7)
    assert "/a fired rule clean 61 times" in firing.too_often(rule, "/a", 61)
    assert "max_repeats = 60" in firing.too_often(rule, "/a", 61)
    assert "rule clean caused itself 7 times" in firing.too_deep(rule, 7)
    assert "max_depth = 7" in firing.too_deep(rule, 7)


# -- lineage -------------------------------------------------------------------------------------


def written(path: str, mtime: float) -> Event:
    return Event(EventKind.FILE_CLOSED, path, mtime, "1-2-3", mtime=mtime)


@pytest.fixture
def lineage() -> firing.Lineage:
    known = firing.Lineage()
    known.started(
        "clean", firing.RunningJob(7, 2, "/d/scan_1.csv", started=100.0), ["/out/declared"]
    )
    return known


def test_a_declared_output_has_its_job_as_cause_whatever_the_rule_and_time(lineage):
    assert lineage.cause("other", written("/out/declared", 0.0)) == (7, 3)
    lineage.ended("clean", 7, 101.0)
    assert lineage.cause("other", written("/out/declared", 999.0)) == (7, 3)


@pytest.mark.parametrize(
    "rule, path, mtime, caused",
    [
        ("clean", "/d/scan_1.csv", 105.0, True),  # its own trigger, written again
        ("clean", "/d/scan_1.clean.csv", 105.0, True),  # carries the name on
        ("clean", "/e/x_scan_1", 105.0, True),
        ("clean", "/e/scan_1.csv", 105.0, False),  # the same name elsewhere: an instrument's
        ("clean", "/d/scan_2.csv", 105.0, False),
        ("clean", "/d/scan_1.csv", 99.0, False),  # before it began
        ("clean", "/d/scan_1.csv", 0.0, False),  # no time is known
        ("other", "/d/scan_1.csv", 105.0, False),
    ],
)
def test_a_file_like_its_trigger_written_while_it_runs_is_a_job_of_its_own_making(
    lineage, rule, path, mtime, caused
):
    assert lineage.cause(rule, written(path, mtime)) == ((7, 3) if caused else (None, 0))


def test_what_was_written_after_its_end_is_not_its_own(lineage):
    lineage.ended("clean", 7, 110.0)
    assert lineage.cause("clean", written("/d/scan_1.csv", 109.0)) == (7, 3)
    assert lineage.cause("clean", written("/d/scan_1.csv", 111.0)) == (None, 0)


def test_a_job_that_ended_a_while_ago_is_forgotten(lineage):
    lineage.started("clean", firing.RunningJob(8, 0, "/d/other.csv", started=100.0), [])
    lineage.ended("clean", 7, 110.0)
    lineage.ended("clean", 8, 113.0)
    assert lineage.cause("clean", written("/d/scan_1.csv", 109.0)) == (None, 0)


def test_the_deepest_of_those_that_may_have_written_a_file_did(lineage):
    lineage.started("clean", firing.RunningJob(9, 5, "/d/scan_1.csv", started=100.0), [])
    assert lineage.cause("clean", written("/d/scan_1.csv", 105.0)) == (9, 6)


def test_the_end_of_an_unknown_job_is_no_error(lineage):
    lineage.ended("unknown", 99, 1.0)
    lineage.ended("clean", 99, 1.0)
    assert lineage.cause("clean", written("/d/scan_1.csv", 105.0)) == (7, 3)


def test_who_says_what_it_writes_did_not_change_other_folders(lineage):
    def changed(path: str) -> Event:
        return Event(EventKind.DIR_MODIFIED, path, 105.0, "1-2-3", mtime=105.0)

    lineage.started(
        "report", firing.RunningJob(8, 4, "/tables", started=100.0), ["/pages/all.html"]
    )
    assert lineage.cause("report", changed("/tables")) == (None, 0)
    lineage.started("loop", firing.RunningJob(9, 4, "/tables", started=100.0), ["/tables/next.csv"])
    assert lineage.cause("loop", changed("/tables")) == (9, 5)
    lineage.started("silent", firing.RunningJob(10, 4, "/tables", started=100.0), [])
    assert lineage.cause("silent", changed("/tables")) == (10, 5)
