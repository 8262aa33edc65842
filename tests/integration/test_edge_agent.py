"""The process of an agent in trouble: one part of it, its store, its site, and others like it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.agent import status as look
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.amqp_client import AmqpClient
from tests.rigs.broker.edge_agent import ADMIN, FINAL, PATIENCE, SRC, USER, Edge
from tests.rigs.broker.whole_jobs import WholeJobs
from tests.rigs.cluster.web import serving
from tests.suite import programs, system

pytestmark = pytest.mark.slow


@pytest.fixture
def edge(tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "e", rabbit) as one:
        yield one


def command(edge: Edge, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a person at the site does."""
    program = [sys.executable, "-m", "pilotage", *words]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    return subprocess.run(
        program, env=env, cwd=edge.root, capture_output=True, text=True, check=False
    )


def status(edge: Edge) -> dict[str, Any]:
    """Return what `pilotage agent status` says, as JSON."""
    found = command(edge, "agent", "status", "--json")
    assert found.stdout, found.stderr
    return dict(json.loads(found.stdout)["agent"])


def seen(edge: Edge) -> look.AgentStatus:
    """Return how the agent says it is, without a command."""
    state = edge.root / ".pilotage"
    edge.wait((state / look.FILE).exists)
    return look.read(state)


def says(edge: Edge, *words: str) -> bool:
    """Say whether all of some words are in what `pilotage agent status` tells people."""
    told = " ".join(command(edge, "agent", "status").stdout.split())
    return all(one in told for one in words)


def runs_well(edge: Edge, count: int = 1) -> list[str]:
    """See that jobs come through now."""
    keys = edge.post_many("count", count)
    edge.wait_ended(*keys)
    return keys


def beat(edge: Edge) -> dict[str, Any]:
    """Return the last heartbeat."""
    found = edge.heard("heartbeat")
    return found[-1] if found else {}


# -- one part of it --------------------------------------------------------------------------------


def test_a_part_that_dies_is_begun_anew_and_the_others_go_on(edge: Edge):
    """Somebody else has the port of the relay."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        edge.change({"relay": {"hub": "https://127.0.0.1:1", "listen": f"127.0.0.1:{port}"}})
        edge.driven = True
        edge.start()
        edge.wait(lambda: seen(edge).parts)
        words = ("has trouble", "the relay", f"127.0.0.1:{port}")
        edge.wait(lambda: says(edge, *words))
        keys = runs_well(edge, 3)
    edge.wait(lambda: reachable(port), passing=1.0)
    edge.wait(lambda: seen(edge).parts == {}, passing=1.0)
    assert status(edge)["parts"] == {}
    keys += runs_well(edge)
    invariants.holds(edge, keys)


def reachable(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def test_no_files_are_left_to_open(edge: Edge):
    """It lives on, and goes on once there are some; no job pays for it."""
    whole = WholeJobs(edge, edge.root / "data")
    edge.start()
    first = whole.post()
    edge.wait_ended(*first)
    pid = edge.process.pid
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    # The limit is one of numbers: above the highest that is open, one is left.
    few = max(int(one.name) for one in Path(f"/proc/{pid}/fd").iterdir()) + 2
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, hard))
    keys = whole.post(6)
    # Each says why it waits, here; a status message of that may need a file itself.
    why = "SELECT 1 FROM job WHERE state = 'staging_in' AND reason LIKE '%Too many open files%'"
    edge.wait(lambda: edge.query(why))
    assert edge.process.poll() is None, edge.told()
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
    edge.wait_ended(*keys)
    invariants.holds(edge, first + keys)
    whole.left(keys)
    assert edge.process.poll() is None


# -- its store -------------------------------------------------------------------------------------


def test_another_process_has_the_store_locked(edge: Edge):
    edge.start()
    first = runs_well(edge)
    other = sqlite3.connect(edge.root / ".pilotage" / "store.db", isolation_level=None)
    with contextlib.closing(other):
        other.execute("BEGIN IMMEDIATE")
        keys = edge.post_many("count", 5)
        edge.wait(lambda: "locked for too long" in edge.said)
        assert not any(edge.statuses(key) for key in keys)
        other.execute("ROLLBACK")
    edge.wait_ended(*keys)
    assert edge.process.poll() is None, edge.told()
    invariants.holds(edge, first + keys)


@pytest.fixture
def small_disk(edge: Edge) -> Iterator[Path]:
    """Have the store on a file system that is soon full; only root may."""
    system.needs("root")
    folder = edge.root / ".pilotage"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=24M", "none", str(folder)], check=True)
    yield folder
    edge.kill()
    subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(folder: Path) -> None:
    with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(b"x" * 4096):
            pass


@pytest.mark.parametrize("killed", [False, True])
def test_the_disk_of_the_store_is_full(edge: Edge, small_disk: Path, killed: bool):  # noqa: FBT001
    """What is not on disk is not acknowledged: a kill then loses nothing."""
    edge.start()
    first = runs_well(edge)
    fill(small_disk)
    keys = edge.post_many("count", 20, description="x" * 10_000)
    edge.wait(lambda: "disk is full" in edge.said)
    assert edge.process.poll() is None, edge.told()
    assert not any(edge.statuses(key) for key in keys)
    if killed:
        edge.kill()
    (small_disk / "filler").unlink()
    if killed:
        edge.start()
    edge.wait_ended(*keys)
    invariants.holds(edge, first + keys)


# -- stopped and started ---------------------------------------------------------------------------


def test_it_is_stopped_and_started_anew_with_jobs_everywhere(edge: Edge, tmp_path: Path):
    """As for an upgrade: jobs go on meanwhile, are found again, and nothing is done twice."""
    (tmp_path / "data").mkdir()
    with serving(tmp_path / "data") as web:
        staging = {"protocols": ["http"], "hosts": [f"127.0.0.1:{web.port}"]}
        staging["private"] = ["127.0.0.0/8"]
        whole = WholeJobs(edge, web.root, url=web.url, staging=staging)
        (web.root / "in").write_text("x" * (1 << 22) + "\n")
        web.pause = 1.0
        edge.start()
        running = edge.post("gate")
        edge.wait_state(running, "running")
        coming = whole.post(2)
        edge.wait(lambda: web.sent > 0)
        began = time.monotonic()
        assert edge.stop() == 0, edge.told()
        assert time.monotonic() - began < 60, edge.told()
        assert len(edge.programs.running()) == 1
        web.pause = 0.0
        sent = edge.post_many("count", 2)
        edge.programs.gate.touch()
        edge.wait(lambda: len(edge.programs.ends()) == 1)
        edge.start()
        keys = [running, *coming, *sent]
        edge.wait_ended(*keys)
    invariants.holds(edge, keys)
    assert [edge.heard("heartbeat")[at]["epoch"] for at in (0, -1)] == [1, 2]


# -- two of them -----------------------------------------------------------------------------------


class Second:
    """Another agent with the settings of the first, in a folder of its own."""

    def __init__(self, edge: Edge, root: Path, *, folder: str = "") -> None:
        self.root = root
        root.mkdir()
        text = (edge.root / "agent.toml").read_text()
        if folder:
            text = text.replace(str(edge.programs.place / "site"), folder)
        (root / "agent.toml").write_text(text)
        shutil.copytree(edge.root / "apps", root / "apps")

    def start(self, *words: str) -> subprocess.Popen[str]:
        program = [sys.executable, "-m", "pilotage", "agent", "run", str(self.root), *words]
        return subprocess.Popen(
            program, env={**os.environ, "PYTHONPATH": str(SRC)}, cwd=self.root, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def ready(self) -> bool:
        lock = self.root / ".pilotage" / "lock"
        return lock.exists() and lock.read_text().rstrip().endswith("ready")


def test_a_second_agent_in_the_same_folder_is_refused(edge: Edge):
    edge.start()
    found = command(edge, "agent", "run", str(edge.root))
    assert found.returncode != 0
    assert str(edge.process.pid) in found.stderr
    invariants.holds(edge, runs_well(edge))


def test_a_second_agent_of_the_site_is_refused_and_may_take_over(edge: Edge, tmp_path: Path):
    edge.start()
    before = runs_well(edge)
    invariants.holds(edge, before)
    second = Second(edge, tmp_path / "second")
    refused = second.start()
    said, _ = refused.communicate(timeout=PATIENCE)
    assert refused.returncode != 0
    assert "--take-over" in said
    assert edge.process.poll() is None
    other = second.start("--take-over")
    try:
        programs.until_ready(other, second.ready, patience=PATIENCE)
        # The first sees it by itself, and says why it ends.
        assert edge.process.wait(PATIENCE) not in (0, -signal.SIGKILL)
        assert "serves this site" in edge.said
        after = runs_well(edge, 3)
        assert set(edge.states(after).values()) == {"done"}
        assert len(edge.programs.starts()) == len(before) + len(after)
    finally:
        other.kill()
        other.communicate()


def test_of_two_agents_at_one_queue_one_gets_the_jobs(edge: Edge, tmp_path: Path):
    """They share nothing but the name of the site; when one goes the other gets its turn."""
    edge.start()
    keys = runs_well(edge)
    second = Second(edge, tmp_path / "second", folder=str(tmp_path / "elsewhere"))
    other = second.start()
    try:
        programs.until_ready(other, second.ready, patience=PATIENCE)
        edge.wait(lambda: len({one["since"] for one in edge.heard("heartbeat")}) == 2)
        keys += runs_well(edge, 10)
        invariants.holds(edge, keys)
        edge.kill()
        keys += runs_well(edge, 5)
    finally:
        other.kill()
        other.communicate()
    assert set(edge.states(keys).values()) == {"done"}
    assert len(edge.programs.starts()) == len(edge.programs.ends()) == len(keys)


# -- its settings ----------------------------------------------------------------------------------


def test_settings_count_at_once_and_mistakes_do_not(edge: Edge):
    edge.change({"limits": {"jobs": 1}})
    edge.start()
    gate, waits = edge.post("gate"), edge.post("count")
    edge.wait_state(gate, "running")
    assert "waits: " in edge.wait_state(waits, "waiting")["reason"]["text"]
    good = (edge.root / "agent.toml").read_text()
    (edge.root / "agent.toml").write_text("site = [broken")
    edge.wait(lambda: seen(edge).settings)
    assert "the previous settings stay in force" in command(edge, "agent", "status").stdout
    assert edge.states([waits]) == {waits: "waiting"}
    (edge.root / "agent.toml").write_text(good)
    edge.wait(lambda: not seen(edge).settings)
    edge.change({"limits": {"jobs": 2}})
    edge.wait_ended(waits)
    edge.programs.gate.touch()
    edge.wait_ended(gate)
    invariants.holds(edge, [gate, waits])


def test_an_application_is_disabled_while_it_is_served(edge: Edge):
    edge.start()
    first = runs_well(edge)
    program = edge.programs.folder / "count"
    edge.programs.offer("count", program, enabled=False)
    key = edge.post("count")
    edge.wait_ended(key)
    last = edge.end(key)
    assert last is not None
    assert (last["state"], last["reason"]["class"]) == ("rejected", "policy")
    edge.programs.offer("count", program)
    invariants.holds(edge, first + runs_well(edge))
    invariants.holds(edge, [key], ran=False)


def test_it_moves_to_another_exchange(edge: Edge):
    edge.start()
    first = runs_well(edge)
    new = f"{edge.exchange}-new"
    edge.change({"bus": {"exchange": new, "dead": f"{new}.dead"}})
    topic, job = f"job.{edge.site}", edge.job("count")
    with (
        AmqpClient(edge.rabbit, ADMIN, new, ["status.#"]) as ear,
        AmqpClient(edge.rabbit, USER, new) as mouth,
    ):
        mouth.post(topic, job)
        edge.wait(lambda: any(one.said.get("state") == "done" for one in ear.heard))
        ear.forget(f"{new}:{topic}", f"{new}:control.{edge.site}")
    invariants.holds(edge, first)
    assert edge.process.poll() is None


# -- drained ---------------------------------------------------------------------------------------


def test_a_drained_site_leaves_messages_at_the_broker(edge: Edge):
    edge.start()
    gate = edge.post("gate")
    edge.wait_state(gate, "running")
    edge.control("drain", user="bob")
    edge.wait(lambda: edge.raw(f"refused.{edge.site}"))
    assert not beat(edge)["draining"]
    edge.control("drain", user=ADMIN)
    edge.wait(lambda: edge.admin.listeners(edge.queues[0]) == 0)
    edge.wait(lambda: beat(edge)["draining"])
    keys = edge.post_many("count", 5)
    edge.programs.gate.touch()
    edge.wait_ended(gate)
    assert edge.admin.waiting(edge.queues[0]) == len(keys)
    edge.wait(lambda: status(edge)["state"] == "drained")
    # It stays so, whoever starts it again.
    edge.kill()
    edge.start()
    edge.wait(lambda: beat(edge)["epoch"] == 2)
    assert beat(edge)["draining"]
    assert edge.admin.waiting(edge.queues[0]) == len(keys)
    edge.control("resume", user=ADMIN)
    edge.wait_ended(*keys)
    invariants.holds(edge, [gate, *keys])
    edge.wait(lambda: not beat(edge)["draining"])


# -- limits ----------------------------------------------------------------------------------------


def test_no_limit_is_ever_passed(tmp_path: Path, rabbit: Rabbit, slurm: Slurm):
    """Also not by an agent that comes after one that was killed."""
    limits = {"jobs": 5, "user": 4, "users": {"bob": 1}, "queues": {"debug": 2}}
    with edge_agent.at_slurm(tmp_path / "e", rabbit, slurm, settings={"limits": limits}) as edge:
        keep_to_limits(edge)


def keep_to_limits(edge: Edge) -> None:
    edge.start()
    sent = {
        "debug": edge.post_many("sleep", 6, parameters={"seconds": 0.2}, queue="debug"),
        "usual": edge.post_many("sleep", 8, parameters={"seconds": 0.2}),
        "bob": edge.post_many("count", 4, user="bob"),
    }
    keys = [key for some in sent.values() for key in some]
    edge.wait(lambda: sum(one["state"] in FINAL for one in edge.heard()) >= 4)
    edge.kill()
    edge.start()
    edge.wait_ended(*keys)
    invariants.holds(edge, keys)
    numbers = {name: {invariants.numbers_of(edge, keys)[key] for key in some}
               for name, some in sent.items()}  # fmt: skip
    assert invariants.i7_most_at_once(edge) <= 5
    assert invariants.i7_most_at_once(edge, numbers["debug"] | numbers["usual"]) <= 4
    assert invariants.i7_most_at_once(edge, numbers["debug"]) <= 2
    assert invariants.i7_most_at_once(edge, numbers["bob"]) == 1
    # Some had to wait, and were told why.
    reasons = [one["reason"]["text"] for one in edge.heard() if one["state"] == "waiting"]
    assert any("waits: " in one for one in reasons)


# -- what is over ----------------------------------------------------------------------------------


def test_only_folders_of_what_is_over_are_removed(edge: Edge):
    edge.start()
    done, gate = runs_well(edge)[0], edge.post("gate")
    failed = edge.post("fail", parameters={"status": 3})
    edge.wait_ended(failed)
    edge.wait_state(gate, "running")
    numbers = invariants.numbers_of(edge, [done, failed, gate])
    places = {key: folder(edge, number) for key, number in numbers.items()}
    assert all(one.is_dir() for one in places.values())
    assert edge.stop() == 0
    edge.change({"keep": {"done": "0s"}})
    edge.start()
    edge.wait(lambda: not places[done].exists())
    assert places[failed].is_dir()
    assert places[gate].is_dir()
    assert set(edge.jobs()) == {numbers[failed], numbers[gate]}
    edge.change({"keep": {"done": "7d"}})
    edge.programs.gate.touch()
    edge.wait_ended(gate)
    invariants.i2_one_end_each(edge, [gate, failed])
    invariants.i3_said_in_order(edge, [done, gate, failed])


def folder(edge: Edge, job: int) -> Path:
    [found] = (edge.programs.place / "site").glob(f"*/edge/{job}.1")
    return found


# -- controls --------------------------------------------------------------------------------------


class Asking:
    """Somebody who sends controls, and hears the answers."""

    def __init__(self, edge: Edge, user: str) -> None:
        self._edge, self._user, self._count = edge, user, 0

    def __call__(self, verb: str, **fields: Any) -> dict[str, Any]:
        """Ask, and return the answer."""
        self._count += 1
        topic = f"status.answers.{self._user}.{self._count}"
        self._edge.control(verb, user=self._user, reply=topic, **fields)
        self._edge.wait(lambda: self._edge.raw(topic))
        return self._edge.raw(topic)[0].said


def test_controls_change_jobs_of_their_sender_and_are_answered(edge: Edge):
    edge.change({"limits": {"jobs": 1}})
    edge.start()
    alice, bob, admin = (Asking(edge, one) for one in (USER, "bob", ADMIN))
    gate, count = edge.post("gate"), edge.post("count")
    edge.wait_state(gate, "running")
    edge.wait_state(count, "waiting")
    numbers = invariants.numbers_of(edge, [gate, count])

    (told,) = alice("query", keys=[gate])["results"]
    assert (told["ok"], told["job"], told["state"]) == (True, numbers[gate], "running")
    assert alice("query")["counts"] == {"running": 1, "waiting": 1}
    assert bob("query")["counts"] == {}
    assert admin("query")["counts"] == {"running": 1, "waiting": 1}

    for verb in ("cancel", "hold", "retry", "query"):
        (told,) = bob(verb, jobs=[numbers[gate]])["results"]
        assert (told["ok"], told["job"], told.get("state", "")) == (False, 0, "")
    assert edge.states([gate]) == {gate: "running"}

    assert alice("hold", keys=[count])["results"][0]["state"] == "held"
    edge.wait_state(count, "held")
    assert alice("release", keys=[count])["results"][0]["ok"]

    unwanted = edge.post("count")
    edge.wait_state(unwanted, "waiting")
    assert alice("cancel", keys=[unwanted], reason="enough")["results"][0]["state"] == "cancelled"
    edge.wait_ended(unwanted)
    assert edge.end(unwanted)["reason"]["text"] == f"cancelled by {USER}: enough"  # type: ignore[index]

    assert alice("cancel", jobs=[numbers[gate]])["results"][0]["ok"]
    edge.wait_ended(gate, count)
    last = edge.end(gate)
    assert last is not None
    assert (last["state"], last["reason"]["class"]) == ("cancelled", "person")
    edge.wait(lambda: edge.programs.running() == [])
    invariants.holds(edge, [gate, count], ran=False)
    assert edge.states([count]) == {count: "done"}

    assert admin("retry", jobs=[numbers[gate]])["results"][0]["ok"]
    edge.programs.gate.touch()
    edge.wait(lambda: edge.states([gate]) == {gate: "done"})
    invariants.i1_started_once(edge)
    assert edge.programs.started() == {
        (numbers[gate], 1): 1, (numbers[gate], 2): 1, (numbers[count], 1): 1
    }  # fmt: skip


# -- how it is -------------------------------------------------------------------------------------


def test_heartbeats_and_the_status_say_how_it_is(edge: Edge):
    began = time.time()
    edge.start()
    gate = edge.post("gate")
    edge.wait_state(gate, "running")
    runs_well(edge)
    edge.send(b"no JSON")
    calm = {"counts": {"done": 1, "running": 1}, "outbox": 0}
    edge.wait(lambda: calm.items() <= beat(edge).items())
    told = next(one for one in edge.heard("heartbeat") if calm.items() <= one.items())
    assert (told["site"], told["epoch"]) == (edge.site, 1)
    assert began - 1 < told["since"] < told["time"] < time.time() + 1
    assert 0 < told["certificate_days"] <= 1
    assert told["disk_free"] > 0
    assert (told["scheduler"]["batch"], told["scheduler"]["well"]) == ("local", True)
    assert [one.user for one in edge.raw(f"heartbeat.{edge.site}")][-1] == edge_agent.AGENT

    edge.wait(lambda: edge.raw(f"refused.{edge.site}"))
    assert status(edge)["refused"]
    words = ("well", "connected", "local: answers", "1 done", "1 running",
             "1 day left: renew it soon", "free", USER)  # fmt: skip
    edge.wait(lambda: says(edge, edge.site, *words))
    assert command(edge, "agent", "status").returncode == 0
    edge.proxy.refuse()
    edge.wait(lambda: seen(edge).carriers[0].trouble)
    assert status(edge)["state"] == "no broker"
    edge.proxy.well()
    edge.wait(lambda: not seen(edge).carriers[0].trouble)
    edge.wait(lambda: status(edge)["state"] == "well")
    edge.kill()
    found = command(edge, "agent", "status")
    assert found.returncode == 1
    assert "not running" in found.stdout
