"""Why a job matches no offer: both values, how many fail, and the least change that would do."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import units
from pilotage.job.model import Resources
from pilotage.match.clause import figure
from pilotage.match.expr import parse
from pilotage.match.why import PlaceClass, RequirementChange, why

G = 10**9


def slot(
    count: int, cpus: int = 8, memory: int = 16 * G, *, free: int | None = None, **more: object
) -> PlaceClass:
    total: dict[str, float] = {"cpus": cpus, "memory": memory, "gpus": 0}
    attributes = {"os": "linux", "site": "kit", **total, **more}
    return PlaceClass(attributes, count, total, {**total, "cpus": cpus if free is None else free})


OFFERS = [slot(12), slot(28, cpus=4, memory=8 * G), slot(3, cpus=64, memory=256 * G, site="cern")]


def test_a_job_that_fits_has_offers_and_no_changes():
    found = why(Resources(cpus=4), "site == 'kit'", {}, OFFERS)
    assert (found.offers, found.ever, found.now, found.changes) == (43, 40, 40, ())
    assert [clause.failing for clause in found.clauses] == [3]


def test_what_is_busy_would_do_but_not_now():
    found = why(Resources(cpus=4), "", {}, [slot(5, free=3), slot(2, free=4)])
    assert (found.ever, found.now) == (7, 2)


def test_a_need_tells_both_values_how_many_fail_and_what_would_do():
    found = why(Resources(cpus=4, memory=64 * G), "site == 'kit'", {}, OFFERS)
    memory, site = found.clauses
    assert (memory.text, memory.want, memory.failing) == ("memory >= 64G", "64G", 40)
    assert memory.words == "`memory >= 64G`: 40 of 43 offers fail; they have at most 16G"
    assert site.words == "`site == 'kit'`: 3 of 43 offers fail; they have 'cern'"
    assert found.changes == (
        RequirementChange("ask for memory ≤ 16G", 12),
        RequirementChange("ask for memory ≤ 8G", 40),
    )


def test_the_least_change_comes_first_however_far_it_is():
    found = why(Resources(cpus=1000), "", {}, [slot(1, cpus=2), slot(1, cpus=3)])
    assert found.changes == (
        RequirementChange("ask for cpus ≤ 3", 1),
        RequirementChange("ask for cpus ≤ 2", 2),
    )


def test_a_clause_may_be_written_otherwise_or_dropped():
    found = why(Resources(), "memory / cpus >= 3G and site == 'kit'", {}, OFFERS)
    assert found.changes[0] == RequirementChange(
        "write `memory / cpus >= 2G` instead of `memory / cpus >= 3G`", 40
    )
    found = why(Resources(), "site == 'desy'", {}, OFFERS)
    assert found.changes == (RequirementChange("drop the clause `site == 'desy'`", 43),)


def test_the_bound_of_a_strict_comparison_includes_what_is_there():
    found = why(Resources(), "64 < cpus", {}, OFFERS)
    assert found.changes[0] == RequirementChange("write `cpus >= 64` instead of `64 < cpus`", 3)
    found = why(Resources(), "cpus < 4", {}, OFFERS)
    assert found.changes[0] == RequirementChange("write `cpus <= 4` instead of `cpus < 4`", 28)
    assert found.clauses[0].have == "they have at least 4"


def test_a_slip_of_the_pen_is_seen():
    found = why(Resources(), "os == 'Linux'", {}, OFFERS)
    assert found.changes == (
        RequirementChange("write `os == 'linux'` instead of `os == 'Linux'`", 43),
    )


def test_an_attribute_that_no_offer_has_is_named():
    found = why(Resources(), "gpu_model == 'H100' and sit == 'kit'", {}, OFFERS)
    assert [clause.have for clause in found.clauses] == [
        "no offer has an attribute `gpu_model`",
        "no offer has an attribute `sit`; did you mean `site`?",
    ]
    assert found.changes[0].words == (
        "drop the clause `gpu_model == 'H100'` and drop the clause `sit == 'kit'`"
    )


def test_what_some_do_not_say_is_said():
    offers = [slot(2), slot(3, cuda=11), slot(1, cuda=10)]
    found = why(Resources(), "cuda >= 12", {}, offers)
    assert found.clauses[0].have == "they have at most 11, and 2 do not say"
    assert found.changes[0] == RequirementChange("write `cuda >= 11` instead of `cuda >= 12`", 3)


def test_other_clauses_tell_the_values_of_their_names():
    found = why(Resources(), "gpus > 0 or site == 'x'", {}, OFFERS)
    assert found.clauses[0].have == "most have gpus = 0, site = 'kit'"
    assert found.clauses[0].want == "true"


def test_what_the_job_has_is_part_of_what_is_wanted():
    found = why(Resources(), "memory >= job.memory * 2", {"memory": 500 * G}, OFFERS)
    assert found.clauses[0].want == "1T"


def test_several_things_change_together_when_one_is_not_enough():
    found = why(Resources(cpus=128, gpus=1), "", {}, OFFERS)
    assert found.changes[0] == RequirementChange("ask for cpus ≤ 64 and ask for no gpus", 3)
    assert found.changes[-1].offers == 43


def test_time_left_is_a_need_like_others_and_no_entry_is_no_bound():
    short = PlaceClass({}, 4, {"cpus": 8, "time": 7200})
    found = why(Resources(time=86400), "", {}, [short])
    assert found.clauses[0].words == "`time >= 1d`: every offer fails; they have 2h"
    assert found.changes == (RequirementChange("ask for time ≤ 2h", 4),)
    assert why(Resources(time=86400, disk=G), "", {}, [PlaceClass({}, 4, {"cpus": 8})]).ever == 4


def test_without_offers_there_is_nothing_to_compare():
    found = why(Resources(), "cpus > 1", {}, [])
    assert (found.offers, found.ever, found.clauses, found.changes) == (0, 0, (), ())


def test_what_an_offer_says_of_itself_does_no_harm():
    odd = [10**400, float("nan"), float("inf"), "x" * 3000, "\\' \x00", {}, [[1]], None, -1]
    offers = [slot(1, load=value, site=value) for value in odd]
    found = why(Resources(cpus=100), "load > 2 and site == 'kit' and load < 9", {}, offers)
    assert found.ever == 0
    assert all(clause.words for clause in found.clauses)


SLOTS = st.lists(
    st.builds(
        slot,
        st.integers(1, 5),
        cpus=st.integers(1, 64),
        memory=st.integers(1, 2**38),
        site=st.sampled_from(["kit", "desy"]),
    ),
    min_size=1,
    max_size=6,
)


@given(SLOTS, st.integers(1, 128), st.integers(1, 2**40))
def test_who_does_what_is_proposed_gets_as_many_offers(slots, cpus, memory):
    found = why(Resources(cpus=cpus, memory=memory), "", {}, slots)
    assert bool(found.ever) != bool(found.changes)
    for change in found.changes:
        asked = {"cpus": str(cpus), "memory": str(memory)}
        asked.update(re.findall(r"ask for (\w+) ≤ (\S+)", change.words))
        needs = Resources(int(asked["cpus"]), units.size(asked["memory"]))
        assert why(needs, "", {}, slots).ever == change.offers > 0


@given(st.integers(0, 2**50) | st.floats(0, 1e15), st.sampled_from(["memory", "time", "cpus"]))
def test_a_figure_reads_as_no_more_than_it_was_or_as_no_less(value, name):
    down, up = (parse(figure(value, {name}, up=up)).evaluate({}, {}) for up in (False, True))
    assert isinstance(down, (int, float))
    assert isinstance(up, (int, float))
    assert down <= value <= up
    assert up - down <= max(1.0, 0.1 * value)


@pytest.mark.parametrize(
    "value, name, shown",
    [
        (16 * 2**30, "memory", "16GiB"),
        (16.66 * G, "memory", "16.6G"),
        (16.6 * G, "memory", "16.6G"),
        (999, "memory", "999"),
        (5400, "time", "90min"),
        (True, "", "true"),
        ("it's", "", "'it\\'s'"),
        (["a", 1], "", "['a', 1]"),
        (None, "", "undefined"),
        (0.5, "", "0.5"),
    ],
)
def test_figures_are_as_people_write_them(value, name, shown):
    assert figure(value, {name}) == shown
