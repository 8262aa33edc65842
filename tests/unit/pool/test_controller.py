"""Controllers: what they decide, and what they say of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.base import errors
from pilotage.pool.controller import Linear, RelativeSupply, Stepwise, Switch, stepwise
from pilotage.pool.model import Controller, Decision, Reading

FULL = Reading(10, 10, 0.9, 0.9)
IDLE = Reading(10, 10, 0.1, 0.9)
RIGHT = Reading(10, 10, 0.6, 0.6)
BAND = Linear(0.5, 0.8, rate=2)


def rule(pool, elapsed):
    return 1.0


def test_linear_says_what_it_saw_and_why():
    assert BAND.decide(FULL, 3) == Decision(16, "allocation 0.90 is above 0.80: from 10 to 16")
    assert BAND.decide(IDLE, 3) == Decision(4, "utilisation 0.10 is below 0.50: from 10 to 4")
    stay = "utilisation 0.60 and allocation 0.60 are as wanted: stay at 10"
    assert BAND.decide(RIGHT, 3) == Decision(10, stay, hold=True)


def test_linear_never_asks_for_less_than_nothing():
    assert BAND.decide(IDLE, 3600).demand == 0


def test_what_is_not_known_is_taken_as_good():
    found = BAND.decide(Reading(0, 4), 1)
    assert found == Decision(6, "nothing is known of its use, which is taken as good: from 4 to 6")
    assert Linear(1.0, 1.0).decide(Reading(0, 4), 1).hold
    assert BAND.decide(Reading(5, 4, None, 0.2), 1).hold


def test_relative_supply_scales_what_there_is():
    law = RelativeSupply(0.5, 0.8, 0.5, 2.0)
    full = "allocation 0.90 is above 0.80: 2 times the supply of 10 is 20"
    assert law.decide(FULL, 1) == Decision(20, full)
    assert law.decide(IDLE, 1).demand == 5
    assert law.decide(RIGHT, 1).demand == 10


def test_relative_supply_says_that_it_cannot_begin_or_begins():
    assert RelativeSupply().decide(Reading(0, 7), 1).demand == 0
    assert "set a minimum or `first`" in RelativeSupply().decide(Reading(0, 7), 1).words
    found = RelativeSupply(first=8).decide(Reading(0, 7), 1)
    assert found.demand == 8
    assert found.words.endswith("there is no supply, begin with 8")


def test_stepwise_asks_the_rule_of_the_range():
    steps = stepwise(lambda _, __: 1)

    @steps.add(supply=10)
    def more(pool, elapsed):
        return pool.demand + elapsed

    @steps.add(supply=5)
    def nothing(pool, elapsed):
        return None

    law = steps.stage(interval=7)
    assert law.interval == 7
    assert law.decide(Reading(4.9, 3), 1).demand == 1
    assert law.decide(Reading(5, 3), 1).hold
    found = law.decide(Reading(10, 3), 2)
    assert found == Decision(5, "supply 10 is in the range from 10: `more` asks for 5")


def test_a_rule_sees_no_gaps():
    law = Stepwise(lambda pool, _: pool.utilisation + pool.allocation)
    assert law.decide(Reading(0, 0), 1).demand == 2


def test_switch_lets_one_of_several_decide():
    law = Switch(BAND, ((20.0, RelativeSupply(0.5, 0.8)), (50.0, Linear(rate=9))))
    assert law.decide(Reading(10, 19, 0.9, 0.9), 1).demand == 21
    assert law.decide(Reading(10, 20, 0.9, 0.9), 1).demand == pytest.approx(11)
    found = law.decide(Reading(10, 50, 0.9, 0.9), 1)
    assert found.demand == 59
    assert found.words.startswith("demand 50 is in the range from 50: Linear: allocation")


class Counting:
    interval = 1.0

    def decide(self, reading, elapsed, state=None):
        return Decision(reading.demand, "", state=(state or 0) + 1)


def test_each_controller_of_a_switch_keeps_its_own_state():
    law, state = Switch(Counting(), ((10.0, Counting()),)), None
    for demand in (0, 20, 20):
        state = law.decide(Reading(1, demand), 1, state).state
    assert state == (1, 2)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Linear(0.9, 0.5), "low_utilisation 0.9 is above high_allocation 0.5"),
        (lambda: Linear(rate=0), "rate is 0; it must be above 0"),
        (lambda: Linear(interval=0), "interval is 0; it must be above 0"),
        (lambda: Linear(low_utilisation=float("nan")), "low_utilisation nan is above"),
        (lambda: RelativeSupply(low_scale=1), "low_scale is 1; it must be below 1"),
        (lambda: RelativeSupply(high_scale=1), "high_scale is 1; it must be above 1"),
        (lambda: RelativeSupply(first=-1), "first is -1; it must not be below 0"),
        (lambda: Stepwise(rule, ((0.0, rule),)), "a threshold must be above 0"),
        (lambda: Stepwise(rule, ((1.0, rule), (1.0, rule))), "two rules have the same threshold"),
        (lambda: Switch(3), "int is no controller"),
    ],
)
def test_what_makes_no_sense_is_refused(make, message):
    with pytest.raises(errors.ConfigError, match=message):
        make()


def test_two_rules_for_one_supply_are_refused():
    steps = stepwise(rule)
    steps.add(rule, supply=3)
    with pytest.raises(errors.UsageError, match="there is a rule from 3 on already"):
        steps.add(rule, supply=3)


FRACTION = st.none() | st.floats(0, 1)


@given(st.floats(0, 1e9), st.floats(0, 1e9), FRACTION, FRACTION, st.floats(0, 1e5))
def test_a_decision_is_a_number_with_a_reason_and_the_same_again(supply, demand, used, taken, time):
    reading = Reading.of(supply, demand, used, taken)
    for law in (BAND, RelativeSupply(), Switch(BAND, ((9.0, RelativeSupply()),))):
        assert isinstance(law, Controller)
        found = law.decide(reading, time)
        assert found.demand >= 0
        assert found.words
        assert found == law.decide(reading, time)
