"""Jobs that may be of several sizes, on a real Slurm with a gap before a reservation.

One node of four is busy, and all are reserved in some minutes: what wants all of them for longer
waits, what can do with less starts in the gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.job.model import Allocation, Resources, Shape, State
from testbed.rabbit import Rabbit
from testbed.slurm import NODES, Slurm
from tests import sites
from tests.edge import law, rig
from tests.edge.rig import Edge

#: Until the reservation, in seconds.
GAP_S = 420
#: The most that jobs ask for; the partition gives ten minutes.
MOST_S = 540
LIMITS = {"nodes": 4, "tasks": 4, "cpus": 4, "time": "9m"}
#: Writes the shape by three different accounts: ours, the application's argument, and Slurm's.
TELLS = """\
echo "$PILOTAGE_NODES $PILOTAGE_TIME $1 $SLURM_JOB_NUM_NODES" \
    "$(scontrol show job "$SLURM_JOB_ID" | tr ' ' '\\n' | grep ^TimeLimit)" > '{place}/shape'
"""


FAILS = "exit 3"


class Gap:
    """What is left of a cluster."""

    def __init__(self, slurm: Slurm) -> None:
        self._slurm = slurm
        self._name = ""
        busy = ("sbatch", "--parsable", "--output=/dev/null", "--nodelist=n1", "--cpus-per-task=4")
        self._busy = slurm.run(*busy, "--time=9", "--wrap=sleep 600").strip()

    def begin(self) -> None:
        """Fill a node, and have all reserved for later."""
        self._slurm.wait(self._runs, "n1 is not busy", "log/slurmctld")
        name = f"gap{time.time_ns()}"
        self._slurm.run(
            "scontrol", "create", "reservation", f"reservationname={name}",
            f"starttime=now+{GAP_S}seconds", "duration=60", f"nodes={','.join(NODES)}",
            "users=nobody", "flags=ignore_jobs",
        )  # fmt: skip
        self._name, self.until = name, time.time() + GAP_S

    def _runs(self) -> bool:
        form = ("--noheader", "--format=%T")
        return "RUNNING" in self._slurm.run("squeue", f"--jobs={self._busy}", *form)

    def close(self) -> None:
        """Give the cluster back; it may have been done before."""
        self._slurm.run("scancel", "--quiet", self._busy)
        if self._name:
            self._slurm.run("scontrol", "delete", f"reservationname={self._name}")
            self._name = ""


@pytest.fixture
def gap(slurm: Slurm) -> Iterator[Gap]:
    one = Gap(slurm)
    try:
        one.begin()
        yield one
    finally:
        one.close()


@pytest.fixture
def edge(tmp_path: Path, rabbit: Rabbit, slurm: Slurm) -> Iterator[Edge]:
    with rig.at_slurm(tmp_path / "e", rabbit, slurm) as one:
        one.programs.add("shape", TELLS, argv=["{nodes}"], limits=LIMITS)
        yield one


def ask(edge: Edge, **shape: int) -> str:
    """Send a job for all nodes and nine minutes, or for less."""
    whole: dict[str, Any] = {"nodes": 4, "wall_time": MOST_S, "resources": {"cpus": 4}}
    return edge.post("shape", **whole, shape=shape)


def test_a_job_from_afar_fits_itself_into_a_gap(edge: Edge, gap: Gap) -> None:
    with edge.up():
        large = ask(edge)
        edge.wait_state(large, "submitted")
        small = ask(edge, nodes_least=1, time_least=60)
        edge.wait_ended(small)
        end = edge.end(small)
        assert end is not None
        assert end["state"] == "done"
        # It was over before the reservation, while the large one waits behind it.
        assert end["time"] < gap.until
        assert edge.statuses(large)[-1]["state"] == "submitted"
        nodes, seconds, argument, given, limit = (edge.programs.place / "shape").read_text().split()
        assert (nodes, argument, given) == ("3", "3", "3")
        assert 60 <= int(seconds) <= GAP_S - 60
        # The batch job is a minute longer than what runs in it.
        assert limit == f"TimeLimit=00:0{int(seconds) // 60 + 1}:00"
        told = " ".join(one["reason"]["text"] for one in edge.statuses(small))
        assert "3 nodes for" in told
        assert "the most that can start at once" in told
        edge.control("cancel", keys=[large])
        edge.wait_ended(large)
        law.holds(edge, [small])


def test_the_shape_that_was_written_down_counts_after_a_crash(edge: Edge, gap: Gap) -> None:
    """What was intended before is asked for after, whatever is free by then."""
    edge.introduce()
    edge.start(crash="site.intent", ready=False)
    key = ask(edge, nodes_least=1, time_least=60)
    edge.process.wait(rig.PATIENCE)
    (why,) = [one for (one,) in edge.query(
        "SELECT body->'fit'->>'why' FROM submission WHERE state <> 'over'"
    )]  # fmt: skip
    assert why.startswith("3 nodes for")
    gap.close()
    with edge.up():
        edge.wait_ended(key)
    nodes, _, argument, given, _ = (edge.programs.place / "shape").read_text().split()
    assert (nodes, argument, given) == ("3", "3", "3")
    law.holds(edge, [key])


def test_a_job_that_is_tried_again_gets_a_new_shape(edge: Edge, gap: Gap) -> None:
    edge.programs.add("shape", TELLS + FAILS, argv=["{nodes}"], limits=LIMITS)
    with edge.up():
        key = ask(edge, nodes_least=1, time_least=60)
        edge.wait_state(key, "failed")
        assert shape_of(edge)[0] == "3"
        gap.close()
        # What was seen while the gap was there counts for a moment.
        edge.wait(lambda: retried(edge, key) and shape_of(edge)[0] == "4")
        assert shape_of(edge)[2:4] == ["4", "4"]


def shape_of(edge: Edge) -> list[str]:
    return (edge.programs.place / "shape").read_text().split()


def retried(edge: Edge, key: str) -> bool:
    """Have a job that failed tried again, and say whether it has failed once more."""
    before = edge.statuses(key)[-1]["seq"]
    edge.control("retry", keys=[key])
    edge.wait(
        lambda: (last := edge.statuses(key)[-1])["seq"] > before and last["state"] == "failed"
    )
    return True


def test_jobs_of_a_hub_share_a_gap(tmp_path: Path, slurm: Slurm, gap: Gap) -> None:
    farm = sites.on_slurm(tmp_path / "p", slurm)
    farm.submit(
        2, more=f"echo $PILOTAGE_NODES $SLURM_JOB_NUM_NODES >> {tmp_path}/shapes", gate=True,
        via="batch", resources=Resources(cpus=4, time=float(MOST_S)),
        allocation=Allocation(nodes=2, shape=Shape(nodes_least=1, time_least=60.0)),
    )  # fmt: skip
    with farm.up():
        farm.wait_state(State.RUNNING)
        farm.gate.touch()
        farm.wait_state(State.DONE)
    assert time.time() < gap.until
    shapes = [line.split() for line in (tmp_path / "shapes").read_text().splitlines()]
    assert sorted(shapes) == [["1", "1"], ["2", "2"]]


def test_a_site_that_shows_nothing_is_asked_for_the_most(
    tmp_path: Path, slurm: Slurm, rabbit: Rabbit
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "sinfo").write_text("#!/bin/sh\nexit 1\n")
    (tools / "sinfo").chmod(0o755)
    batch = {"batch": {"path": [str(tools)]}}
    with rig.at_slurm(tmp_path / "e", rabbit, slurm, settings=batch) as edge, edge.up():
        edge.programs.add("shape", TELLS, argv=["{nodes}"], limits=LIMITS)
        key = ask(edge, nodes_least=1, time_least=60)
        edge.wait_ended(key)
        told = (edge.programs.place / "shape").read_text().split()
        assert told[:4] == ["4", str(MOST_S), "4", "4"]
        assert "does not report free nodes" in " ".join(
            one["reason"]["text"] for one in edge.statuses(key)
        )
