"""The tests of tests: which of them run, where, and what a run says at its end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from testbed import processes, reserve
from testbed.errors import NotUp
from testbed.processes import Process
from tests.suite import durations, leftovers, programs, since, spread, suites

ROOT = Path(__file__).parents[3]


# -- suites ----------------------------------------------------------------------------------------


#: Tests of all kinds.
_TESTS = """
import pytest
from hypothesis import given, strategies

@pytest.fixture
def slurm(): ...

@given(strategies.integers())
def test_property(number): ...

@pytest.fixture
def rabbit(slurm): ...

def test_plain(): ...
def test_slurm(slurm): ...
def test_rabbit(rabbit): ...
@pytest.mark.quick
def test_quick(slurm): ...
@pytest.mark.slow
def test_slow(): ...
@pytest.mark.soak
def test_soak(): ...
@pytest.mark.crash_points
@pytest.mark.parametrize("point", "abc")
def test_killed(point): ...
@pytest.mark.crash_points
@pytest.mark.parametrize("point", "xy")
def test_dies(point, slurm): ...
"""


@pytest.fixture
def items(pytester: pytest.Pytester) -> list[pytest.Item]:
    pytester.makeini("[pytest]\nmarkers =\n  slow\n  soak\n  quick\n  crash_points\n")
    return pytester.getitems(_TESTS)


def names(kept: list[pytest.Item]) -> list[str]:
    return [item.name for item in kept]


def test_each_test_is_in_one_suite_and_one_point_of_a_family_also_in_quick(items):
    kept = {one: suites.select(items, one, 4)[0] for one in suites.COMMANDS}
    assert names(kept["quick"]) == [
        "test_property", "test_plain", "test_quick", "test_killed[b]", "test_dies[x]",
    ]  # fmt: skip
    assert names(kept["soak"]) == ["test_soak"]
    twice = set(kept["quick"]) & set(kept["rest"])
    assert {item.name for item in twice} == {"test_killed[b]", "test_dies[x]", "test_property"}
    assert set().union(*kept.values()) == set(items)


def test_all_points_have_their_turn(items):
    met = {item.name for number in range(7, 10) for item in suites.turn(items, number)}
    assert len(met) == 5


def test_without_a_suite_only_repetition_is_left_out(items):
    kept, left = suites.select(items, None, 0)
    assert (len(kept), left) == (len(items) - 1, {"soak": 1})


def test_a_run_ends_with_what_it_left_out(items, monkeypatch):
    monkeypatch.setenv(suites.SEED, "4")
    _, left = suites.select(items, "quick", 4)
    assert suites.farewell("quick", left) == (
        "left out: 6 tests (make test-all), 1 tests (make soak); crash points were chosen by SEED=4"
    )


# -- workers ---------------------------------------------------------------------------------------


def test_a_file_carries_the_heaviest_bed_of_its_tests(items):
    assert [*spread.beds(items).values()] == ["rabbit"]
    assert spread.beds(items[:1]) == {}


LEFT = {"a": 5.0, "b": 9.0, "c": 2.0, "d": 20.0, "e": 30.0, "f": 1.0}
BEDS = {"a": "slurm", "b": "slurm", "c": "rabbit", "d": "rabbit"}


@pytest.mark.parametrize(
    "mine, others, chosen",
    [
        ({"slurm"}, {"rabbit"}, "b"),
        (set(), set(), "d"),
        (set(), {"rabbit"}, "b"),
        (set(), {"rabbit", "slurm"}, "e"),
        ({"condor"}, {"rabbit", "slurm"}, "e"),
    ],
)
def test_a_worker_keeps_to_its_bed_and_the_longest_comes_first(mine, others, chosen):
    assert spread.choose(LEFT, BEDS, mine, others) == chosen


def test_a_bed_is_brought_up_again_only_when_nothing_else_is_left():
    left = {file: LEFT[file] for file in BEDS}
    assert spread.choose(left, BEDS, set(), {"rabbit", "slurm"}) == "d"


_CONFTEST = """
from tests.suite.spread import ByBed

def pytest_xdist_make_scheduler(config, log):
    return ByBed(config, log, lambda: {"test_a.py": "slurm", "test_b.py": "rabbit"})
"""


def test_workers_share_the_files_of_a_run(pytester: pytest.Pytester, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    for name in "abcd":
        pytester.makepyfile(**{f"test_{name}": "def test_one(): ...\ndef test_two(): ..."})
    pytester.makeconftest(_CONFTEST)
    done = pytester.runpytest_subprocess("-p", "xdist", "-n2")
    done.assert_outcomes(passed=8)


# -- what a change touches -------------------------------------------------------------------------


def test_a_change_runs_what_imports_it_however_far_away():
    found = since.touched(["src/pilotage/base/units.py"])
    assert found is not None
    assert {"tests/unit/base/test_units.py", "tests/unit/rule/test_book.py"} <= found
    assert "tests/unit/repository/test_programs.py" not in found


def test_a_changed_test_runs_and_no_other():
    assert since.touched(["tests/unit/base/test_units.py"]) == {"tests/unit/base/test_units.py"}


def test_what_is_not_python_belongs_to_its_package():
    found = since.touched(["src/pilotage/web/js/dom.js"])
    assert found is not None
    assert any(file.startswith("tests/acceptance/page/") for file in found)


@pytest.mark.parametrize("file", ["pyproject.toml", "tests/conftest.py", "requirements/dev.txt"])
def test_some_changes_may_touch_anything(file):
    assert since.touched([file]) is None


# -- where they are --------------------------------------------------------------------------------


def test_a_unit_test_is_in_the_folder_of_its_package():
    packages = {one.name for one in (ROOT / "src/pilotage").iterdir() if one.is_dir()}
    unit = ROOT / "tests/unit"
    folders = {str(one.parent.relative_to(unit)) for one in unit.rglob("test_*.py")}
    assert folders - packages == {"bench", "examples", "repository"}


def test_a_helper_is_in_a_rig_or_in_the_suite():
    assert [one.name for one in (ROOT / "tests").glob("*.py")] == ["conftest.py"]


# -- what they cost --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cost, complaint",
    [
        ({"own_wall": 3.0, "own_cpu": 1.0, "slow": False}, False),
        ({"own_wall": 30.0, "own_cpu": 1.0, "slow": False}, True),
        ({"own_wall": 6.0, "own_cpu": 6.0, "slow": False}, True),
        ({"own_wall": 60.0, "own_cpu": 60.0, "slow": True}, False),
    ],
)
def test_what_costs_a_lot_says_so(cost: dict[str, Any], complaint):
    assert bool(durations._unsaid("test", cost)) is complaint


_SHARES = """
import time
import pytest

@pytest.fixture(scope="module", autouse=True)
def bed():
    time.sleep(0.4)
    yield
    time.sleep(0.4)

def test_one(): ...
def test_two(): time.sleep(0.2)
"""


def test_what_a_file_shares_is_not_counted_as_a_tests_own(pytester, monkeypatch, tmp_path):
    monkeypatch.setattr(durations, "FOLDER", tmp_path)
    pytester.makepyfile(_SHARES)
    pytester.inline_run(plugins=[durations.Meter("quick")])
    costs = json.loads((tmp_path / "quick.json").read_text())
    one, two = (next(cost for name, cost in costs.items() if end in name) for end in ("one", "two"))
    assert one["wall"] >= 0.4 > one["own_wall"]
    assert two["wall"] >= 0.6 > two["own_wall"] >= 0.2


def test_seconds_are_added_up_by_file():
    costs = {"a.py::x": {"wall": 1.0}, "a.py::y[1::2]": {"wall": 2.0}, "b.py::z": {"wall": 0.5}}
    assert durations.by_file(costs) == {"a.py": 3.0, "b.py": 0.5}


# -- what is reserved, and what is left ------------------------------------------------------------

_TAKES = "from testbed import reserve; print(reserve.take('{kind}', 2), flush=True); input()"


def test_no_two_processes_have_the_same_number():
    kind = f"test{os.getpid()}"
    command = [sys.executable, "-c", _TAKES.format(kind=kind)]
    with subprocess.Popen(command, stdin=-1, stdout=-1, text=True, cwd=ROOT) as first:
        assert first.stdout is not None
        taken = int(first.stdout.readline())
        assert reserve.take(kind, 2) == 1 - taken
        with pytest.raises(NotUp, match="taken"):
            reserve.take(kind, 2)
        first.kill()
    assert reserve.take(kind, 2) == taken


def test_what_a_killed_run_left_is_cleared_and_nothing_else():
    gone = subprocess.Popen(["true"])
    over = f"{gone.pid} 1"
    gone.wait()
    alive = str(Process.of(os.getpid()))
    left, mine = (
        subprocess.Popen(["sleep", "1000"], env={**os.environ, leftovers.MARK: run})
        for run in (over, alive)
    )
    try:
        assert processes.variable(left.pid, leftovers.MARK) == over
        leftovers.clear()
        assert left.wait(10) == -signal.SIGKILL
        assert mine.poll() is None
    finally:
        for each in (left, mine):
            programs.end(each, signal.SIGKILL)


def test_costs_are_of_files_that_are_there():
    known = json.loads(spread.COSTS.read_text())
    assert [file for file in known if not (ROOT / file).exists()] == []


def test_a_run_lives_while_the_lock_of_its_folder_names_a_process(tmp_path):
    assert not leftovers._lives(tmp_path)
    for number, lives in ((str(os.getpid()), True), ("0", False), ("", False)):
        (tmp_path / ".lock").write_text(number)
        assert leftovers._lives(tmp_path) is lives
