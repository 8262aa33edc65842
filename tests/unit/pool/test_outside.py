"""Pools that are steered from outside: who is heard, what fails alone, and when things are done."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.base import errors
from pilotage.batch.pilot_request import PilotRequest
from pilotage.hub.project import Project
from pilotage.pool import decide, drive, files, outside, state, view
from pilotage.pool.composite import weighted
from pilotage.pool.controller import Linear
from pilotage.pool.decorator import Buffer, Standardiser
from pilotage.pool.drive import Driver
from pilotage.pool.files import Outside, Pool
from pilotage.pool.guarded import RETRY, Guarded
from pilotage.pool.model import Reading
from pilotage.pool.outside import Told
from pilotage.pool.pipeline import Leaf
from pilotage.pool.policy.model import Sight
from pilotage.pool.remote import Voice
from pilotage.pool.state import PoolObservation, PoolOverrides, PoolRow, PoolStep

NOW = 1_000_000.0
MINUTE = 60.0


class Plain:
    """A pool as COBalD's are, which may be made to fail."""

    def __init__(self, name: str = "plain", demand: float = 10.0, supply: float = 10.0) -> None:
        self.name, self._demand, self._supply = name, demand, supply
        self.utilisation = self.allocation = 1.0
        self.asked: list[float] = []
        self.broken = ""

    @property
    def supply(self) -> float:
        if self.broken:
            raise OSError(self.broken)
        return self._supply

    @property
    def demand(self) -> float:
        return self._demand

    @demand.setter
    def demand(self, value: float) -> None:
        self.asked.append(value)
        self._demand = value


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# -- who is heard ----------------------------------------------------------------------------------


def test_what_one_asks_for_replaces_what_it_asked_for_before():
    told = Told(4.0, "why", "anna", NOW).then(5.0, "more", "anna", NOW + 1)
    assert told == Told(5.0, "more", "anna", NOW + 1)
    assert told.rival(10 * MINUTE, NOW + 2) == ""


def test_a_clock_that_was_far_ahead_does_not_hide_a_silence():
    told = Told(8, "", "anna", NOW).then(9, "", "bert", NOW)
    assert told.silent(10 * MINUTE, NOW - 60 * MINUTE)
    assert not told.silent(10 * MINUTE, NOW - 1)
    assert told.rival(10 * MINUTE, NOW - 60 * MINUTE) == ""


def test_two_that_ask_are_told_of_each_other_until_one_is_silent():
    told = Told(4.0, "", "anna", NOW).then(9.0, "", "bert", NOW + 5)
    assert told.demand == 9.0
    assert "anna asks too, 25.0 s ago: the last one wins" in told.rival(10 * MINUTE, NOW + 25)
    back = told.then(4.0, "", "anna", NOW + 30)
    assert "bert asks too" in back.rival(10 * MINUTE, NOW + 31)
    alone = back.then(4.0, "", "anna", NOW + 11 * MINUTE)
    assert alone.rival(10 * MINUTE, NOW + 11 * MINUTE) == ""


def test_who_steers_is_said_in_words():
    told = Told(4.0, "", "anna", NOW)
    assert outside.words(None, MINUTE, NOW) == "no external controller has set a demand yet"
    assert outside.words(told, MINUTE, NOW + 5) == "anna wants 4 cores, last seen 5.0 s ago"


def pool(**facts: object) -> Pool:
    given = {
        "site": "a",
        "maximum": 64,
        "pilot": PilotRequest(cpus=4),
        "control": Outside(),
    } | facts
    return msgspec.convert(given, Pool, from_attributes=True)


def decided(one: Pool, told: Told | None, *, ready: int = 0, demand: float = 0.0) -> PoolStep:
    sight = Sight("p", "a", 4, 1e12, 0, 0, ready, 0, (ready, 0, 0, 0, 0), quota=64.0)
    look = PoolObservation(sight, Reading(4.0 * ready, demand, 1.0, 1.0), group="p")
    row = PoolRow("p", demand, looked=NOW - 30, told=told)
    steps, _ = decide.decide({"p": one}, {"p": row}, {"p": look}, {}, NOW)
    return steps["p"]


def test_what_was_asked_for_is_carried_out():
    step = decided(pool(), Told(10.0, "three are full", "anna", NOW - 1), ready=1)
    assert (step.order, step.demand, step.reason) == (2, 10.0, "")
    assert "anna: three are full" in step.words


def test_less_than_there_is_drains():
    step = decided(pool(), Told(4.0, "", "anna", NOW - 1), ready=3)
    assert (step.order, step.drain) == (0, 2)
    assert "anna wants 4 cores" in step.words


def test_all_guards_hold_for_what_is_asked_for_from_outside():
    told = Told(1000.0, "", "anna", NOW - 1)
    assert decided(pool(maximum=12, pending=50), told).order == 3
    assert decided(pool(pending=2), told).order == 2
    assert "--allow" in decided(pool(ask_above=4, pending=50), told).reason


def test_silence_holds_or_goes_to_the_minimum_and_is_told():
    old = Told(8.0, "", "anna", NOW - 11 * MINUTE)
    held = decided(pool(), old, ready=2, demand=8.0)
    assert (held.order, held.drain, held.demand) == (0, 0, 8.0)
    assert "no report from anna for 11 m" in held.reason
    low = decided(pool(minimum=4, control=Outside(after="minimum")), old, ready=2, demand=8.0)
    assert (low.drain, low.demand) == (1, 4.0)
    patient = decided(pool(control=Outside(silence="1h")), old, ready=2)
    assert patient.reason == ""


def test_before_anybody_asks_a_pool_stays_as_it_is():
    step = decided(pool(), None, ready=2, demand=8.0)
    assert (step.order, step.drain, step.demand) == (0, 0, 8.0)
    assert step.reason == "no external controller has set a demand yet"


@pytest.mark.parametrize("control", ['silence = "0s"', 'after = "never"', 'silense = "1m"'])
def test_mistakes_in_the_table_of_control_are_found(control):
    source = f'site = "a"\nmaximum = 8\n[control]\nkind = "outside"\n{control}\n'
    with pytest.raises(errors.ConfigError, match=r"p.toml:5"):
        files.parse(source, "p", Path("p.toml"))


@pytest.fixture
def project(tmp_path: Path):
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "pools").mkdir()
    head = 'site = "a"\nmaximum = 8\nminimum = 2\n'
    (tmp_path / "pools/out.toml").write_text(head + '[control]\nkind = "outside"\n')
    (tmp_path / "pools/own.toml").write_text(head)
    with Project(tmp_path) as found:
        yield found


def tell(project: Project, name: str, demand: float, by: str = "anna") -> state.Taken:
    with project.db.transaction():
        return state.tell(project.db, project.root, name, demand, "", by, NOW)


def test_a_demand_is_kept_within_bounds_those_that_a_person_has_set_too(project):
    assert tell(project, "out", 100.0).demand == 8.0
    assert tell(project, "out", 0.5).demand == 2.0
    with project.db.transaction():
        view.change(project.db, project.root, "out", PoolOverrides(maximum=4))
    assert tell(project, "out", 100.0).demand == 4.0
    look = view.pool(project.db, project.root, "out", NOW + 1)
    assert (look.asked, look.by, look.heard, look.silence) == (4.0, "anna", NOW, 600.0)
    assert look.steered == "anna wants 4 cores, last seen 1.0 s ago"
    assert "anna asks too" in tell(project, "out", 3.0, "bert").words


def test_pools_that_steer_themselves_are_not_steered_from_outside(project):
    with pytest.raises(errors.Conflict, match="`aimd` decides") as found:
        tell(project, "own", 4.0)
    assert 'kind = "outside"' in found.value.hint
    with pytest.raises(errors.NotFound):
        tell(project, "none", 4.0)
    assert view.pool(project.db, project.root, "own", NOW).steered == ""


# -- what fails alone ------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute():
    assert [RETRY.bound(count) for count in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert RETRY.bound(1000) == 60


def test_a_pool_that_fails_is_left_alone_and_what_it_does_not_take_goes_to_others():
    clock, bad, good = Hands(), Plain("bad"), Plain("good")
    both = weighted(Guarded(Leaf(bad), clock), Leaf(good))
    pipeline = Linear(rate=10) >> Standardiser(maximum=100) >> both
    pipeline.tick(1.0)
    assert (bad.demand, good.demand) == (15.0, 15.0)
    bad.broken = "the disk is full"
    plan = pipeline.tick(1.0)
    assert "left as it is: the disk is full" in drive.said(plan)
    assert bad.demand == 15.0
    assert good.demand == 25.0


def test_a_pool_that_failed_is_asked_again_later_and_not_sooner():
    clock, bad = Hands(), Plain()
    guarded = Guarded(Leaf(bad), clock)
    bad.broken = "away"
    assert guarded.view().reading.supply == 0
    bad.broken = ""
    assert guarded.view().reading.supply == 0
    clock.now = 1.5
    assert guarded.view().reading.supply == 10.0
    assert guarded.error is None


def test_a_pool_that_cannot_be_asked_is_asked_less_and_less_often():
    class Deaf(Plain):
        tries = 0

        @property
        def demand(self) -> float:
            return 1.0

        @demand.setter
        def demand(self, _: float) -> None:
            self.tries += 1
            raise OSError("no")

        def __init__(self) -> None:
            self.name, self._supply, self.broken = "deaf", 1.0, ""
            self.utilisation = self.allocation = 1.0

    clock, deaf = Hands(), Deaf()
    guarded = Guarded(Leaf(deaf), clock)
    for second in range(31):
        clock.now = float(second)
        guarded.act(guarded.plan(guarded.view(), 5.0, 1.0))
    # At 0, 1, 3, 7 and 15 s.
    assert deaf.tries == 5


def test_guards_stand_before_each_pool_of_a_tree():
    tree = weighted(Leaf(Plain()), Standardiser() >> weighted(Leaf(Plain())))
    drive.guard(tree)
    first, second = tree.children
    assert isinstance(first, Guarded)
    (below,) = drive.under(second)
    assert isinstance(drive.under(below)[0], Guarded)


# -- when things are done --------------------------------------------------------------------------


def test_a_driver_decides_at_once_and_then_at_each_interval():
    clock, one = Hands(), Plain(demand=0.0)
    driver = Driver(Linear(rate=1, interval=10) >> one, Voice("me"), clock)
    assert driver.wait() == 0
    assert driver.step() is not None
    assert (one.demand, driver.wait()) == (10.0, 10.0)
    clock.now = 10.0
    assert driver.step() is not None
    assert one.demand == 20.0


def test_what_was_missed_is_made_up_for_by_two_intervals_at_most():
    clock, one = Hands(), Plain(demand=0.0)
    driver = Driver(Linear(rate=1, interval=10) >> one, Voice("me"), clock)
    driver.step()
    clock.now = 1000.0
    driver.step()
    assert one.demand == 30.0


def test_time_passes_for_a_buffer_between_decisions():
    clock, one = Hands(), Plain(demand=0.0)
    buffered = Buffer(4) >> one
    driver = Driver(Linear(rate=1, interval=10) >> buffered, Voice("me"), clock)
    driver.step()
    assert one.asked == [10.0]
    assert driver.wait() == 4.0
    clock.now = 10.0
    assert driver.step() is not None
    assert one.asked == [10.0, 20.0]
    # The next demand waits for the window, not for the next decision.
    clock.now = 12.0
    buffered.demand = 33.0
    assert driver.step() is None
    assert one.asked == [10.0, 20.0]
    clock.now = 14.0
    assert driver.step() is None
    assert one.asked == [10.0, 20.0, 33.0]


def test_the_voice_says_what_was_decided():
    voice = Voice("me")
    Driver(Linear() >> Standardiser(maximum=3) >> Plain(), voice, Hands()).step()
    assert "allocation 1.00 is above 0.50" in voice.words
    assert "the maximum" in voice.words
