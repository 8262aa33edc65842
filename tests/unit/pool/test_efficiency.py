"""Cores that are not kept busy are given back: what is measured, when it counts, what follows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import msgspec
import pytest

from pilotage.base import errors
from pilotage.batch.pilot_request import PilotRequest
from pilotage.node import pilot as node
from pilotage.pilot import messages
from pilotage.pilot.table import PilotUsage
from pilotage.pool import decide
from pilotage.pool.efficiency import Efficiency, Meter, give_back, meter
from pilotage.pool.files import Aimd, Even, Pool
from pilotage.pool.fitness import Basis
from pilotage.pool.model import Reading
from pilotage.pool.policy.model import Hint, Sight
from pilotage.pool.state import PoolObservation, PoolRow, PoolStep

NOW = 1_000_000.0
RULES = Efficiency(least="100s", smooth="1m", lasting="1m", again="10m")


def fed(before: Meter, busy: float, minutes: int, cores: float = 4.0) -> Meter:
    """Measure for some minutes that cores are so busy."""
    for _ in range(minutes * 6):
        before = meter(before, busy * cores * 10, cores * 10, 10.0, RULES)
    return before


# -- when it counts ------------------------------------------------------------------------------


def test_cores_that_wait_for_long_are_starved_and_busy_ones_are_not():
    assert fed(Meter(), 0.1, 3).starved
    assert not fed(Meter(), 0.9, 3).starved
    assert fed(Meter(), 0.1, 3).busy == pytest.approx(0.1)


def test_too_little_that_was_measured_says_nothing():
    assert not fed(Meter(), 0.0, 10, cores=0.1).starved


def test_a_short_wait_says_nothing():
    good = fed(Meter(), 1.0, 5)
    assert not fed(good, 0.0, 1).starved
    assert fed(good, 0.0, 5).starved


def test_between_low_and_high_all_stays_as_it_was():
    middle = (RULES.low + RULES.high) / 2
    assert not fed(Meter(), middle, 10).starved
    bad = fed(Meter(), 0.1, 3)
    assert fed(bad, middle, 10).starved
    assert not fed(bad, 1.0, 10).starved


def test_after_long_without_a_measurement_it_is_tried_again():
    bad = fed(Meter(), 0.1, 3)
    silent = meter(bad, 0.0, 0.0, 599.0, RULES)
    assert silent.starved
    assert meter(silent, 0.0, 0.0, 2.0, RULES) == Meter()


def test_half_is_given_back_and_then_it_is_measured_anew():
    bad = fed(Meter(), 0.1, 3)
    count, after = give_back(bad, 8, 0, RULES, others=True)
    assert count == 4
    assert (after.starved, after.had) == (True, 0.0)
    assert give_back(after, 4, 0, RULES, others=True)[0] == 0
    assert give_back(after, 4, 3, RULES, others=True)[0] == 3
    assert give_back(fed(after, 0.1, 3), 4, 0, RULES, others=True)[0] == 2


def test_the_last_goes_only_where_others_take_the_work():
    bad = fed(Meter(), 0.1, 3)
    assert give_back(bad, 1, 0, RULES, others=True)[0] == 1
    assert give_back(bad, 1, 1, RULES, others=False)[0] == 0


@pytest.mark.parametrize(
    "wrong", [{"low": 0.7}, {"high": 1.1}, {"low": -0.1}, {"least": "0s"}, {"again": "0s"}]
)
def test_rules_that_cannot_be_are_refused(wrong):
    with pytest.raises(errors.ConfigError):
        Efficiency(**wrong).check()


# -- what is believed of a pilot -----------------------------------------------------------------


def test_a_pilot_tells_sums_and_cannot_have_more_than_there_was_time():
    one = PilotUsage(NOW)
    one.hear((2.0, 8.0, 1 << 20), 2, 1 << 30, NOW + 4)
    assert one.busy == pytest.approx(0.25)
    assert (one.used, one.had, one.resident) == (2.0, 8.0, 1 << 20)
    # It says that it had a million core-seconds in a second, all of them busy.
    one.hear((1e6, 1e6, 1 << 50), 2, 1 << 30, NOW + 5)
    assert one.had <= 8.0 + 2 * 61
    assert one.used <= one.had
    assert one.resident == 1 << 30
    before = (one.used, one.had)
    # Sums that fall are none.
    one.hear((0.0, 0.0, 0), 2, 1 << 30, NOW + 6)
    assert (one.used, one.had) == before
    assert one.busy is not None
    assert 0 <= one.busy <= 1


def test_a_history_that_is_told_at_once_keeps_how_busy_it_was():
    one = PilotUsage(NOW)
    one.hear((3000.0, 10_000.0, 0), 1, 0, NOW + 1)
    assert one.busy == pytest.approx(0.3)


def test_nothing_is_known_before_anything_was_measured():
    assert PilotUsage(NOW).busy is None


@pytest.mark.parametrize("used", ["[-1,1,1]", "[1,1e300,1]", "[1,1,-5]"])
def test_measures_that_cannot_be_are_refused(used):
    message = messages.read(f'{{"op":"sync","n":1,"used":{used}}}'.encode())
    assert isinstance(message, messages.Sync)
    with pytest.raises(errors.UsageError):
        messages.check_sync(message)


@pytest.mark.parametrize("used", ["[1,1]", '"much"', "[1,1,1.5]", "[NaN,1,1]"])
def test_what_is_no_measure_is_no_message(used):
    with pytest.raises(errors.UsageError):
        messages.read(f'{{"op":"sync","n":1,"used":{used}}}'.encode())


# -- what a pilot measures -----------------------------------------------------------------------

_BUSY = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass\n"


def test_the_time_of_all_that_a_process_started_is_seen_also_of_those_that_have_ended():
    keep = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {_BUSY!r}])\n"
    inner = f"import os\n{keep}print(os.getpid(), flush=True)\ntime.sleep(100)"
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {inner!r}])"
    with subprocess.Popen([sys.executable, "-c", outer], stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        child = int(root.stdout.readline())
        try:
            used, resident = node.tree(root.pid)
            # The kernel counts in ticks, and drops the rest of one for each figure.
            assert 0.5 - 6 / os.sysconf("SC_CLK_TCK") <= used < 5
            assert resident > 1 << 20
        finally:
            os.kill(child, signal.SIGKILL)


def test_cores_are_counted_from_start_to_end_and_told_once():
    one = node.Gauge()
    one.begin("1.1", 4, 100.0)
    one.measure(os.getpid(), 110.0)
    assert one.tell() == "", "nobody asked for it"
    one.interval = 5.0
    one.measure(os.getpid(), 111.0)
    told = msgspec.json.decode(one.tell().removeprefix(',"used":'))
    assert told[1] == pytest.approx(44.0)
    assert one.tell() == ""
    one.measure(os.getpid(), 113.0)
    assert one.tell() == "", "too soon"
    one.end("1.1", 115.0)
    one.measure(os.getpid(), 117.0)
    told = msgspec.json.decode(one.tell().removeprefix(',"used":'))
    assert told[1] == pytest.approx(60.0)
    one.measure(os.getpid(), 130.0)
    assert one.tell() == "", "nothing has run since"


def test_a_look_at_all_processes_is_cheap():
    begun = time.process_time()
    for _ in range(10):
        node.tree(os.getpid())
    assert (time.process_time() - begun) / 10 < 0.25


# -- what a pool does ----------------------------------------------------------------------------

STARVED = Meter(5.0, 100.0, 1e9, 0.0, starved=True)
QUICK = Aimd(patience="1s", haste="1s", rest="10m", ski=0.0)


def pool(**facts: object) -> Pool:
    given = {
        "site": "a",
        "maximum": 64,
        "pilot": PilotRequest(cpus=4),
        "interval": "10s",
        "control": QUICK,
        "utilisation": Basis.EFFICIENCY,
    } | facts
    return msgspec.convert(given, Pool, from_attributes=True)


def seen(
    name: str, site: str, *, ready: int, queued: int = 0, meter: Meter = STARVED
) -> PoolObservation:
    sight = Sight(name, site, 4, 1e12, queued, 0, ready, free=(ready, 0, 0, 0, 0))
    reading = Reading(4.0 * ready, 4.0 * ready, 0.1, 1.0)
    hints = (Hint("1 core @p", 1, 1.0, 40.0),)
    return PoolObservation(sight, reading, 40.0, group="p", hints=hints, meter=meter)


def decided(pools: dict[str, Pool], looks: dict[str, PoolObservation]) -> dict[str, PoolStep]:
    rows = {name: PoolRow(name, looked=NOW - 10) for name in pools}
    return decide.decide(pools, rows, looks, {}, NOW)[0]


def test_a_starved_pool_gives_back_and_its_sibling_takes_the_work():
    steps = decided(
        {"p": pool(), "q": pool(site="b")},
        {"p": seen("p", "a", ready=4, queued=3), "q": seen("q", "b", ready=1, meter=Meter())},
    )
    assert (steps["p"].order, steps["p"].cancel, steps["p"].drain) == (0, 3, 2)
    assert "payloads starve: they keep 5% of their cores busy" in steps["p"].words
    assert "the work goes to q" in steps["p"].words
    assert steps["p"].meter.had == 0
    assert steps["q"].order > 0


def test_a_starved_pool_alone_keeps_one():
    step = decided({"p": pool()}, {"p": seen("p", "a", ready=4)})["p"]
    assert (step.order, step.drain) == (0, 2)
    step = decided({"p": pool()}, {"p": seen("p", "a", ready=1)})["p"]
    assert (step.order, step.drain + step.release) == (0, 0)
    step = decided({"p": pool()}, {"p": seen("p", "a", ready=0)})["p"]
    assert step.order == 1


def test_the_minimum_is_kept_also_by_a_starved_pool():
    step = decided({"p": pool(minimum=12)}, {"p": seen("p", "a", ready=4)})["p"]
    assert step.drain == 1


def test_who_does_not_ask_for_it_gives_nothing_back():
    step = decided({"p": pool(utilisation=Basis.CLAIMED)}, {"p": seen("p", "a", ready=4)})["p"]
    assert step.drain == 0
    assert step.order > 0


def test_controllers_of_cobald_see_it_as_utilisation():
    control = Even(low_utilisation=0.5, high_allocation=0.9, rate=0.4)
    step = decided({"p": pool(control=control)}, {"p": seen("p", "a", ready=4)})["p"]
    assert (step.order, step.drain, step.demand) == (0, 1, 12.0)
