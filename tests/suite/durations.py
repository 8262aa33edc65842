"""What each test cost: seconds on the clock, and of the processor with its children.

Every run writes a file in `build/durations`. What costs a lot without the mark `slow` is listed at
the end.
"""

from __future__ import annotations

import json
import resource
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.suite import spread

#: A test that uses more is to have the mark `slow`: of the processor, and on the clock.
CPU_S, WALL_S = 5.0, 20.0

FOLDER = Path(__file__).parents[2] / "build/durations"


def _cpu() -> float:
    """Return the seconds of the processor that this process and its ended children used."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


class Meter:
    """Measures tests where they run, and adds up where they are reported."""

    def __init__(self, suite: str | None) -> None:
        self._file = FOLDER / f"{suite or 'some'}.json"
        self._last = _cpu()
        self._first_of_file, self._last_of_file = True, False
        self._costs: dict[str, dict[str, Any]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        self._last_of_file = nextitem is None or nextitem.path != item.path
        done = yield
        self._first_of_file = self._last_of_file
        return done

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = _cpu()
        # What all tests of a file share is set up with the first, and taken down with the last.
        shared = self._first_of_file if call.when == "setup" else self._last_of_file
        report.user_properties += [
            ("cpu", now - self._last),
            ("shared", shared and call.when != "call"),
            ("slow", item.get_closest_marker("slow") is not None),
        ]
        self._last = now
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        empty = {"wall": 0.0, "cpu": 0.0, "own_wall": 0.0, "own_cpu": 0.0, "slow": False}
        one = self._costs.setdefault(report.nodeid, empty)
        told = dict(report.user_properties)
        one["slow"] = told.get("slow", False)
        for kind in ("",) if told.get("shared") else ("", "own_"):
            one[f"{kind}wall"] = round(one[f"{kind}wall"] + report.duration, 3)
            one[f"{kind}cpu"] = round(one[f"{kind}cpu"] + told.get("cpu", 0.0), 3)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._costs:
            return
        FOLDER.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._costs, indent=1, sort_keys=True))
        if unsaid := [line for name, one in self._costs.items() if (line := _unsaid(name, one))]:
            terminalreporter.section("took long, and have no mark `slow`")
            for line in sorted(unsaid):
                terminalreporter.line(line)


def _unsaid(name: str, cost: Mapping[str, Any]) -> str:
    """Complain of a test that costs a lot without the mark."""
    cpu, wall = cost["own_cpu"], cost["own_wall"]
    if cost["slow"] or (cpu <= CPU_S and wall <= WALL_S):
        return ""
    return f"{name}: {cpu:.1f} s of the processor, {wall:.1f} s on the clock"


def by_file(costs: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Add up the seconds that each file takes."""
    found: dict[str, float] = defaultdict(float)
    for name, one in costs.items():
        found[spread.file_of(name)] += one["wall"]
    return {file: round(seconds, 1) for file, seconds in sorted(found.items())}


def main() -> None:
    """Note what the files of the last runs cost, for those who spread them over workers."""
    known: dict[str, float] = {}
    for path in FOLDER.glob("*.json"):
        known |= by_file(json.loads(path.read_text()))
    spread.COSTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
