"""Pilots at a site whose worker nodes reach nothing but its login node."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from testbed.network import Sites
from testbed.slurm import Slurm
from tests.rigs.project.command_line import CommandLine

pytestmark = pytest.mark.slow

PILOTS = '[pilots]\nheartbeat = "1s"\nlease = "20s"\nsandbox = "none"\n'


@pytest.fixture(scope="module")
def cluster(sites: Sites) -> Slurm:
    assert sites.two.slurm is not None
    return sites.two.slurm


@pytest.fixture(scope="module")
def desk(tmp_path_factory, sites: Sites) -> Iterator[CommandLine]:
    root = tmp_path_factory.mktemp("pilots") / "project"
    desk = CommandLine(root, settings=PILOTS, hub='tls = "on"')
    desk.site(
        "two",
        f'batch = "slurm"\nhost = "two"\nssh_config = "{sites.config}"\n'
        f'python = "/usr/bin/python3"\nlogin = "{sites.two.inner_address}"\n',
    )
    with desk.up("hub"):
        yield desk


def pilots(desk: CommandLine) -> dict[int, dict[str, Any]]:
    return {one["id"]: one for one in desk.json("pilot", "ls", "--all")["pilots"]}


def start(desk: CommandLine, *words: str) -> list[int]:
    return [int(one) for one in desk.run("pilot", "start", "two", "-q", *words).split()]


def come(desk: CommandLine, *numbers: int) -> None:
    """Wait until pilots are there."""
    desk.wait(lambda: all(pilots(desk)[one]["state"] == "available" for one in numbers))


def batch_job(desk: CommandLine, pilot: int) -> str:
    """Wait until the batch system has a pilot; return its number there."""

    def words() -> str:
        return str(pilots(desk)[pilot]["reason"])

    desk.wait(lambda: "slurm job " in words())
    return words().split("slurm job ")[1].split(":")[0].split()[0]


def test_pilots_come_through_the_login_node_and_survive_the_hub(
    desk: CommandLine, sites: Sites, cluster: Slurm
):
    first, second = start(desk, "--count", "2", "--cpus", "2")
    come(desk, first, second)
    shown = pilots(desk)
    assert {shown[one]["site"] for one in (first, second)} == {"two"}
    jobs = [
        desk.submit("--site", "two", "--cwd", "/tmp", "--", "sh", "-c", "ip -br addr; echo ran")
        for _ in range(3)
    ]
    desk.done(*jobs)
    said = desk.run("logs", str(jobs[0]))
    assert "ran" in said
    assert sites.two.compute_address in said
    [row] = desk.json("site", "ls")["sites"]
    assert row["pilots"] == 2
    # The way must be the same one afterwards: they were told it once.
    desk.kill()
    desk.start("hub")
    job = desk.submit("--site", "two", "--cwd", "/tmp", "--", "echo", "after")
    desk.done(job)
    come(desk, first, second)
    assert sites.two.server is not None
    sites.two.server.kill_connections()
    again = desk.submit("--site", "two", "--cwd", "/tmp", "--", "echo", "cut")
    desk.done(again)
    desk.run("pilot", "stop", str(first))
    desk.wait(lambda: pilots(desk)[first]["state"] == "down")


def test_pilots_in_the_queue_are_called_off(desk: CommandLine, cluster: Slurm):
    cluster.run("scontrol", "update", "partitionname=debug", "state=down")
    try:
        waiting = start(desk, "--count", "3")
        number = batch_job(desk, waiting[-1])
        desk.wait(lambda: "PartitionDown" in pilots(desk)[waiting[0]]["reason"])
        desk.run("pilot", "stop", *(str(one) for one in waiting))
        desk.wait(lambda: all(pilots(desk)[one]["state"] == "down" for one in waiting))
        desk.wait(lambda: not cluster.run("squeue", "--noheader", f"--jobs={number}").strip())
    finally:
        cluster.run("scontrol", "update", "partitionname=debug", "state=up")


def test_a_pilot_that_is_killed_is_lost(desk: CommandLine, cluster: Slurm):
    [pilot] = start(desk)
    come(desk, pilot)
    assert kill(f"two-{pilot}") == 1
    desk.wait(lambda: pilots(desk)[pilot]["state"] == "lost")
    assert "SIGKILL" in pilots(desk)[pilot]["reason"]


def kill(name: str) -> int:
    """Kill the program of a pilot as a kernel without memory does; count what was killed."""
    count = 0
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if folder.name.isdigit():
                words = (folder / "cmdline").read_bytes().split(b"\0")
                if name.encode() in words and b"--name" in words:
                    os.kill(int(folder.name), signal.SIGKILL)
                    count += 1
    return count


def test_why_no_pilot_comes_is_told(desk: CommandLine):
    [pilot] = start(desk, "--queue", "no-such-queue")
    desk.wait(lambda: pilots(desk)[pilot]["state"] == "failed")
    assert "partition" in pilots(desk)[pilot]["reason"]
