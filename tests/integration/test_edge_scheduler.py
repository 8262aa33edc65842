"""A batch system that lies, hangs or is away: what an agent says of its jobs is still true."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.batch.submission import LINGER_S
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster.misbehaving.double import Misbehaving

pytestmark = pytest.mark.slow

#: A minute of the double's, in minutes.
SCALE = 0.02
#: Seconds that a submit command may take where one hangs; and so many minutes are longer than that.
SUBMIT_S = 5.0
TOO_LONG = 20 * SUBMIT_S / (60 * SCALE)
#: Faults after which nobody can know whether a job was taken, or how many times.
SUBMIT = (
    "late_accept", "error_accept", "error", "junk_accept", "silent_accept", "id_error",
    "killed_accept", "vanish", "hide", "twice",
)  # fmt: skip
LIST = (
    "error",
    "empty",
    "nothing",
    "truncated",
    "header",
    "junk",
    "bytes",
    "unknown",
    "stale",
    "slow",
)
#: What a batch system says of ends, and what is said of them: the last state, class and code.
ENDS = {
    "TIMEOUT": ("failed", "application", "timeout"),
    "DEADLINE": ("failed", "application", "timeout"),
    "OUT_OF_MEMORY": ("failed", "application", "memory"),
    "CANCELLED": ("cancelled", "person", "cancelled"),
    "NODE_FAIL": ("done", "infrastructure", "node_lost"),
    "BOOT_FAIL": ("done", "infrastructure", "node_lost"),
    "PREEMPTED": ("done", "infrastructure", "preempted"),
}


class Trial:
    """An agent beside a double."""

    def __init__(self, edge: Edge, double: Misbehaving) -> None:
        self.edge = edge
        self.double = double

    def begin(self) -> str:
        """Have a job run that waits; return its key."""
        [key] = begin(self.edge, 1)
        return key

    def finish(self, key: str) -> dict[str, Any]:
        """Let what waits go on; return the last word on a job."""
        self.edge.programs.gate.touch()
        self.edge.wait_ended(key)
        return self.last(key)

    def linger(self) -> None:
        """Let the time pass that an end may take to be understood, once the agent knows of it."""
        before = len(self.double.calls("squeue"))
        self.edge.wait(lambda: len(self.double.calls("squeue")) > before + 3)
        self.edge.later(LINGER_S)

    def last(self, key: str) -> dict[str, Any]:
        end = self.edge.end(key)
        assert end is not None
        return end

    def kill(self) -> None:
        """Kill what runs now, so that nobody is left to say how it ended."""
        site = self.edge.programs.place / "site"
        claims = [json.loads(one.read_text()) for one in site.glob("*/s/*/*.claim/by.json")]
        for pid in [*(one["pid"] for one in claims), *self.edge.programs.running()]:
            # Others may have the number of one that is gone.
            with contextlib.suppress(OSError):
                if os.fsencode(self.edge.root) in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(pid, signal.SIGKILL)


def begin(edge: Edge, count: int) -> list[str]:
    """Have jobs run that wait."""
    edge.programs.gate.unlink(missing_ok=True)
    before = len(edge.programs.starts())
    keys = edge.post_many("gate", count)
    edge.wait(lambda: len(edge.programs.starts()) == before + count)
    for key in keys:
        edge.wait_state(key, "running")
    return keys


def beside(root: Path, rabbit: Rabbit, double: Misbehaving) -> Edge:
    made = Edge(root, rabbit, {"batch": "slurm", "path": [str(double.bin)]})
    made.driven = True
    return made


@pytest.fixture(scope="module")
def hanging(
    tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit
) -> Iterator[tuple[Trial, str, str]]:
    """Begin what takes some time before everything else."""
    root = tmp_path_factory.mktemp("hanging")
    with (
        Misbehaving(root / "double", scale=SCALE) as double,
        beside(root / "e", rabbit, double) as e,
    ):
        e.submit_s = SUBMIT_S
        e.start()
        keys = []
        for fault in ("late_accept", "late_refuse"):
            double.plan("sbatch", fault, minutes=TOO_LONG)
            keys.append(e.post("count"))
            e.wait(lambda: double.left() == [])
        yield Trial(e, double), keys[0], keys[1]
        assert e.process.poll() is None, e.told()


@pytest.fixture(scope="module")
def trial(
    tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, hanging: tuple[Trial, str, str]
) -> Iterator[Trial]:
    del hanging
    root = tmp_path_factory.mktemp("double")
    with (
        Misbehaving(root / "double", scale=SCALE) as double,
        beside(root / "e", rabbit, double) as e,
        e.up(),
    ):
        yield Trial(e, double)


# -- submitting and listing ----------------------------------------------------------------------


@pytest.mark.parametrize("fault", SUBMIT)
def test_submitting(trial: Trial, fault: str):
    trial.double.plan("sbatch", fault)
    key = trial.edge.post("count")
    if fault == "vanish":
        trial.edge.wait_state(key, "submitted")
        trial.linger()
    trial.edge.wait_ended(key)
    assert trial.double.left() == []
    invariants.holds(trial.edge, [key])


def test_what_is_refused_for_ever_fails_in_the_scheduler_s_words(trial: Trial):
    trial.double.plan("sbatch", "refuse")
    key = trial.edge.post("count")
    trial.edge.wait_ended(key)
    last = trial.last(key)
    invariants.holds(trial.edge, [key], ran=False)
    assert (last["state"], last["step"]) == ("failed", "submit")
    assert (last["reason"]["class"], last["reason"]["code"]) == ("infrastructure", "submit")
    assert "Invalid partition name" in last["reason"]["text"]
    assert last["job"] not in {one.job for one in trial.edge.programs.starts()}


@pytest.mark.parametrize("fault", LIST)
def test_listing(trial: Trial, fault: str):
    """What a listing says, or does not say, ends nothing that runs."""
    key = trial.begin()
    trial.double.plan("squeue", fault, times=3)
    trial.double.plan("sacct", fault, times=3)
    trial.edge.wait(lambda: not [one for one in trial.double.left() if one.startswith("squeue")])
    assert trial.edge.end(key) is None
    trial.double.clear()
    trial.finish(key)
    invariants.holds(trial.edge, [key])


# -- ends ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended(trial: Trial) -> dict[str, str]:
    """Have jobs end in all these ways at once; return their keys by the word for the end."""
    edge = trial.edge
    keys = dict(zip(ENDS, begin(edge, len(ENDS)), strict=True))
    numbers = {edge.statuses(key)[-1]["scheduler_id"]: word for word, key in keys.items()}
    trial.double.plan("squeue", "unknown", times=1000, words=numbers)
    trial.kill()
    trial.linger()
    again = [key for word, key in keys.items() if ENDS[word][0] == "done"]
    edge.wait(lambda: all(any(lost(one) for one in edge.statuses(key)) for key in again))
    edge.programs.gate.touch()
    edge.wait_ended(*keys.values())
    trial.double.clear()
    return keys


def lost(said: dict[str, Any]) -> bool:
    """Say whether a job was said to be tried again."""
    return bool(said["state"] == "queued" and said["reason"]["text"] and said["attempt"])


@pytest.mark.parametrize("word", ENDS)
def test_an_end_is_called_what_it_is(trial: Trial, ended: dict[str, str], word: str):
    """What is nobody's fault is tried again, and that is said too."""
    state, kind, code = ENDS[word]
    key = ended[word]
    invariants.holds(trial.edge, [key], ran=state == "done")
    last = trial.last(key)
    assert (last["state"], last["attempt"]) == (state, 2 if state == "done" else 1)
    why = last
    if state == "done":
        [why] = [one for one in trial.edge.statuses(key) if lost(one)]
    assert (why["reason"]["class"], why["reason"]["code"]) == (kind, code)


def test_an_exit_code_and_a_signal(trial: Trial):
    edge = trial.edge
    failed = edge.post("fail", parameters={"status": 3})
    edge.wait_ended(failed)
    key = trial.begin()
    [payload] = edge.programs.running()
    os.kill(payload, signal.SIGSEGV)
    edge.wait_ended(key)
    invariants.holds(edge, [failed, key], ran=False)
    for which, code in ((failed, "exit"), (key, "signal")):
        last = trial.last(which)
        assert last["state"] == "failed"
        assert (last["reason"]["class"], last["reason"]["code"]) == ("application", code)


# -- a real one ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit, slurm: Slurm) -> Iterator[Edge]:
    root = tmp_path_factory.mktemp("real")
    with edge_agent.at_slurm(root / "e", rabbit, slurm) as edge:
        edge.driven = True
        greed = "exec python3 -c 'import time; hog = bytes(range(256)) * 2_000_000; time.sleep(60)'"
        edge.programs.add("greed", greed)
        with edge.up():
            yield edge


def test_the_controller_is_away_for_a_while(real: Edge, slurm: Slurm):
    running = begin(real, 2)
    slurm.stop_controller()
    try:
        later = real.post_many("count", 2)
        real.wait(lambda: any(not one["scheduler"]["well"] for one in real.heard("heartbeat")))
        real.programs.gate.touch()
        # There is evidence of these ends, whoever is away.
        real.wait_ended(*running)
        assert [real.end(key) for key in later] == [None, None]
    finally:
        slurm.start_controller()
    real.wait_ended(*later)
    invariants.holds(real, [*running, *later])
    real.wait(lambda: real.heard("heartbeat")[-1]["scheduler"]["well"])


def test_somebody_calls_it_off_by_hand(real: Edge, slurm: Slurm):
    [key] = begin(real, 1)
    slurm.run("scancel", real.statuses(key)[-1]["scheduler_id"])
    real.wait_ended(key)
    invariants.holds(real, [key], ran=False)
    last = real.end(key)
    assert last is not None
    assert last["state"] == "cancelled"
    assert (last["reason"]["class"], last["reason"]["code"]) == ("person", "cancelled")


def test_it_uses_more_memory_than_it_asked_for(real: Edge):
    key = real.post("greed", resources={"memory": 100 << 20})
    real.wait_ended(key)
    invariants.holds(real, [key], ran=False)
    last = real.end(key)
    assert last is not None
    assert last["state"] == "failed"
    assert (last["reason"]["class"], last["reason"]["code"]) == ("application", "memory")


def test_its_node_fails(real: Edge, slurm: Slurm):
    [key] = begin(real, 1)
    number = real.statuses(key)[-1]["scheduler_id"]
    node = slurm.run("squeue", "--noheader", f"--jobs={number}", "--format=%N").split()[0]
    slurm.fail_node(node)
    try:
        real.wait(lambda: any(lost(one) for one in real.statuses(key)), passing=1.0)
        real.programs.gate.touch()
        real.wait_ended(key)
    finally:
        slurm.restore_node(node)
    invariants.holds(real, [key])
    [why] = [one["reason"] for one in real.statuses(key) if lost(one)]
    assert (why["class"], why["code"]) == ("infrastructure", "node_lost")


# -- what was begun first ------------------------------------------------------------------------


def test_a_command_that_hangs_has_taken_the_job_all_the_same(hanging: tuple[Trial, str, str]):
    trial, key, _ = hanging
    trial.edge.wait_ended(key)
    assert f"took more than {SUBMIT_S:g} s" in trial.edge.said
    invariants.holds(trial.edge, [key])
    assert trial.last(key)["scheduler_id"] == str(trial.double.accepted()[0])


def test_a_command_that_hangs_has_taken_nothing_and_is_tried_again(
    hanging: tuple[Trial, str, str],
):
    trial, taken, key = hanging
    trial.edge.wait_ended(taken, key)
    invariants.holds(trial.edge, [taken, key])
    assert len(trial.double.accepted()) == 2
