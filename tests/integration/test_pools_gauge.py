"""What a real pilot measures of real payloads, and tells who asks for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.pilot.table import PilotUsage
from tests.rigs.node.scripted_hub import Hub, pilot, wait_for
from tests.suite import system

#: Both halves of a process tree compute, the second after the first has ended.
_BUSY = """
import subprocess, sys, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
if len(sys.argv) > 1:
    work(0.7)
else:
    subprocess.run([sys.executable, "-I", "-S", __file__, "child"])
    work(0.7)
"""


@pytest.fixture
def hub() -> Iterator[Hub]:
    one = Hub(measure=0.5)
    yield one
    one.close()


def told(hub: Hub) -> list[list[float]]:
    """Read what was measured, in the order in which it was told."""
    return [one["used"] for one in hub.ops("sync") if "used" in one]


def _busy(tmp_path: Path) -> str:
    file = tmp_path / "busy.py"
    file.write_text(_BUSY)
    return str(file)


def test_time_and_memory_of_payloads_are_told(hub: Hub, tmp_path: Path):
    with pilot(hub.url, tmp_path / "a"):
        wait_for(lambda: hub.checks is not None)
        hub.grant("1.1", sys.executable, "-I", "-S", _busy(tmp_path), cpus=1)
        hub.grant("2.1", "sleep", "3", cpus=3)
        wait_for(lambda: len(hub.ends) == 2, 60)
        # Sums only grow, and what has ended is in them.
        wait_for(lambda: told(hub) and told(hub)[-1][0] >= 1.4, 60)
        used = told(hub)
    assert used == sorted(used, key=lambda one: (one[0], one[1]))
    walls = [end["usage"]["wall"] for end in hub.ends.values()]
    had = hub.ends["1.1"]["usage"]["wall"] + 3 * hub.ends["2.1"]["usage"]["wall"]
    assert used[-1][1] == pytest.approx(had, rel=0.3, abs=1.5)
    assert max(one[2] for one in used) > 1 << 20
    one = PilotUsage(0.0)
    for number, each in enumerate(used):
        one.hear((each[0], each[1], int(each[2])), 4, 1 << 34, max(walls) + number)
    assert one.used == pytest.approx(1.4, abs=0.6)


def test_a_hub_that_does_not_ask_for_it_hears_nothing(tmp_path: Path):
    hub = Hub()
    try:
        with pilot(hub.url, tmp_path / "a"):
            wait_for(lambda: hub.checks is not None)
            hub.grant("1.1", "sleep", "1.5")
            wait_for(lambda: hub.ends, 60)
        assert told(hub) == []
    finally:
        hub.close()


def test_what_runs_in_a_sandbox_is_seen_too(hub: Hub, tmp_path: Path):
    system.needs("bwrap")
    with pilot(hub.url, tmp_path / "a"):
        wait_for(lambda: hub.checks is not None)
        if "bubblewrap" not in hub.facts["sandboxes"]:
            pytest.skip("bubblewrap does not work here")
        program = "import time\nwhile time.process_time() < 1: pass\ntime.sleep(1)"
        python = os.path.realpath("/usr/bin/python3")
        sandbox = {"kind": "bubblewrap"}
        hub.grant("1.1", python, "-I", "-S", "-c", program, sandbox=sandbox, cpus=1)
        wait_for(lambda: told(hub) and told(hub)[-1][0] >= 1.0, 60)
        wait_for(lambda: hub.ends, 60)
    assert hub.ends["1.1"]["exit"] == 0
