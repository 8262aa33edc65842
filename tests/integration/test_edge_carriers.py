"""One hub that serves a site by a broker and another by its own port, which is encrypted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.bus import wire
from pilotage.bus.model import Heartbeat
from pilotage.job import records
from pilotage.job.model import App, JobSpec, NewJob, State
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent
from tests.rigs.broker.dialing_agent import OVER, DialingAgent, serving
from tests.rigs.broker.edge_agent import USER, Edge
from tests.rigs.project.flow_hub import Hub, served


class Both:
    """The hub, and its two sites."""

    def __init__(self, hub: Hub, amqp: Edge, port: DialingAgent) -> None:
        self.hub, self.amqp, self.port = hub, amqp, port

    def submit(self, site: str, application: str = "count") -> int:
        new = NewJob(JobSpec(recipe=App(application), name="job", site=site))
        with self.hub.change() as project, project.db.transaction() as db:
            job = records.add(db, new, project.clock.now())
        assert job is not None
        return job


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, rabbit: Rabbit) -> Iterator[Both]:
    root = tmp_path_factory.mktemp("carriers")
    port = free_port()
    told = {"hub": {"host": "127.0.0.1", "port": port, "tls": "on"}}
    with served(root, rabbit, _equip) as amqp:
        hub = Hub(root / "hub", amqp, settings=told)
        hub.start()
        try:
            with DialingAgent(root / "port", hub, port) as site:
                _equip(site)
                secure = {"url": f"https://127.0.0.1:{site.proxy.port}", "ca": _certificate(hub)}
                site.change({"hub": secure})
                site.enrol()
                site.start()
                yield Both(hub, amqp, site)
        finally:
            hub.kill()


def _equip(site: Edge) -> None:
    """Offer a program that writes, waits, and writes again."""
    waits = 'n=0; while [ ! -e {place}/"$1" ] && [ $n -lt 900 ]; do sleep 0.1; n=$((n+1)); done'
    does = (
        f"echo begun; set -- more; {waits}; echo more; echo oh >&2; set -- gate; {waits}; echo end"
    )
    site.programs.add("writes", does)


def _certificate(hub: Hub) -> str:
    hub.wait((hub.root / ".pilotage" / "hub.json").exists)
    return str(json.loads((hub.root / ".pilotage" / "hub.json").read_text())["ca"])


def test_jobs_reach_both(both: Both):
    numbers = [both.submit(site.site) for site in (both.amqp, both.port) for _ in range(3)]
    assert both.port.wait_over(*numbers) == [State.DONE] * 6
    assert len(both.amqp.programs.starts()) == len(both.port.programs.starts()) == 3


def test_who_is_at_the_broker_cannot_speak_for_a_site_at_the_port(both: Both):
    site = both.port.site
    lie = Heartbeat(site=site, time=9e9, version="0", epoch=99, draining=True)
    body = json.loads(wire.encode(lie))
    both.amqp.known_as(USER).post(f"heartbeat.{site}", body)
    # What comes after it by the same way has been heard: so has the lie, and it counts for nothing.
    both.port.wait_over(both.submit(both.amqp.site), both.submit(site))
    # A busy site may be in trouble for a moment; it is not the lie that says so.
    query = (
        "SELECT body ->> 'epoch', coalesce(body ->> 'draining', 0) FROM edge_site WHERE name = ?"
    )
    assert both.hub.query(query, site) == [(1, 0)]


def test_an_agent_that_hangs_keeps_nothing_from_others(both: Both):
    os.kill(both.port.process.pid, signal.SIGSTOP)
    try:
        hung = both.submit(both.port.site)
        assert both.port.wait_over(both.submit(both.amqp.site)) == [State.DONE]
        assert both.port.look(hung).state not in OVER
    finally:
        os.kill(both.port.process.pid, signal.SIGCONT)
    assert both.port.wait_over(hung) == [State.DONE]


def test_a_hub_whose_certificate_nobody_vouches_for_is_told_nothing(both: Both, tmp_path: Path):
    with DialingAgent(tmp_path / "naive", both.hub, both.port.hub_port) as naive:
        naive.change({"hub": {"url": f"https://127.0.0.1:{naive.proxy.port}"}})
        naive.enrol()
        naive.start()
        naive.wait(lambda: "certificate verify failed" in naive.command("agent", "status"))
        assert both.hub.query("SELECT uses FROM token WHERE site = ?", naive.site) == [(1,)]


def test_one_agent_takes_jobs_from_a_broker_and_from_a_hub_each_its_own(
    tmp_path: Path, rabbit: Rabbit
):
    hub, port = serving(tmp_path / "hub")
    named = {"url": f"http://127.0.0.1:{port}", "heartbeat": 1.0, "retry": 0.5, "site": "theirs"}
    with edge_agent.at_local(tmp_path / "site", rabbit, settings={"hubs": {"lab": named}}) as site:
        with hub._rig.project() as project, project.db.transaction() as db:
            now = project.clock.now()
            secret, _ = tokens.mint(
                db, TokenScope.AGENT, "", now=now, lifetime=3600.0, site="theirs"
            )
        token = site.root / "lab-token"
        token.touch(0o600)
        token.write_text(secret)
        hub.start()
        try:
            with site.up():
                new = NewJob(JobSpec(recipe=App("count"), name="job", site="theirs"))
                with hub.change() as project, project.db.transaction() as db:
                    job = records.add(db, new, project.clock.now())
                key = site.post("count")
                site.wait_ended(key)

                def done() -> bool:
                    with hub._rig.project() as project:
                        return project.job(job or 0).state is State.DONE

                hub.wait(done)
                # The hub goes, and the broker is served as before.
                hub.kill()
                site.wait_ended(site.post("count"))
            # What is said of the job of the hub is not heard at the broker.
            assert {one["job"] for one in site.heard()} == {
                number for number, owner in site.query("SELECT id, owner FROM job") if owner == USER
            }
            assert site.query("SELECT owner FROM job ORDER BY owner") == [
                (USER,), (USER,), ("lab",)
            ]  # fmt: skip
        finally:
            hub.kill()


# -- logs ------------------------------------------------------------------------------------------


@contextmanager
def _followed(hub: Hub, job: int, file: Path) -> Iterator[Callable[[], str]]:
    """Have `logs -f` run until its job is over; what it printed is given."""
    with file.open("wb") as out:
        argv = [sys.executable, "-m", "pilotage", "logs", "-f", str(job)]
        process = subprocess.Popen(argv, cwd=hub.root, stdout=out, stderr=subprocess.DEVNULL)
    try:
        yield file.read_text
        hub.wait(lambda: process.poll() is not None)
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("carrier", ["amqp", "port"])
def test_a_log_is_followed_while_its_job_runs_whatever_dies(
    both: Both, tmp_path: Path, carrier: str
):
    site: Edge = getattr(both, carrier)
    job = both.submit(site.site, "writes")
    with _followed(both.hub, job, tmp_path / "followed") as said:
        both.hub.wait(lambda: said() == "begun\n")
        both.hub.kill()
        both.hub.start()
        site.kill()
        site.start()
        (site.programs.place / "more").touch()
        both.hub.wait(lambda: said() == "begun\nmore\n")
        site.programs.gate.touch()
    assert said() == "begun\nmore\nend\n"
    assert both.port.wait_over(job) == [State.DONE]
    with both.hub._rig.project() as project:
        (attempt,) = records.attempts(project.db, job)
    assert Path(attempt.dir, "stdout").read_text() == "begun\nmore\nend\n"
    assert Path(attempt.dir, "stderr").read_text() == "oh\n"
