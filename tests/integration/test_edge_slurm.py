"""What the Slurm of a site with an agent says reaches the hub: queues, and why jobs wait."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.job.model import Allocation, App, Resources, State
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.integration.test_edge_site import OVER, explained, run, sites, state, submit
from tests.rigs.broker import edge_agent
from tests.rigs.project.flow_hub import Hub

pytestmark = pytest.mark.slow


def test_queues_and_reasons_of_slurm_reach_the_hub(tmp_path: Path, rabbit: Rabbit, slurm: Slurm):
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm) as edge:
        edge.programs.add("slow", "sleep 1000", limits={"time": "2h"})
        hub = Hub(tmp_path / "hub", edge)
        with edge.up(), hub.up():
            hub.wait(lambda: any(one["agent"]["scheduler"]["queues"] for one in sites(hub)))
            (site,) = sites(hub)
            queues = {one["name"]: one for one in site["agent"]["scheduler"]["queues"]}
            assert (queues["debug"]["default"], queues["debug"]["time"]) == (True, 600.0)
            assert queues["long"]["cpus"] == 4
            wanted = '"count" in applications and "long" in queues and time_limit_debug == 10min'
            job = submit(hub, requirements=f"{wanted} and nodes >= free_nodes and cpus == 4")
            hub.wait(lambda: state(hub, job) is State.DONE)

            waits = submit(
                hub, site=edge.site, recipe=App("slow"), resources=Resources(time=3600.0),
                allocation=Allocation(queue="debug"),
            )  # fmt: skip

            def reason() -> str:
                with hub._rig.project() as project:
                    return project.job(waits).reason

            hub.wait(lambda: "PartitionTimeLimit" in reason())
            assert state(hub, waits) is State.SUBMITTED
            assert "PartitionTimeLimit" in explained(hub, waits)
            assert "PartitionTimeLimit" in run(hub.root, "job", "ls").stdout
            with hub.change() as project:
                project.cancel([waits])
            hub.wait(lambda: state(hub, waits) in OVER)
