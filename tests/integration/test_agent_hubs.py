"""An agent that starts pilots for hubs on one machine, whichever process is killed on the way."""

from __future__ import annotations

import contextlib
import os
import signal
import socketserver
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pilotage.batch.pilot_request import PilotRequest
from pilotage.hub.project import Project
from pilotage.pilot import view
from testbed.ports import free_port
from testbed.ssh import Sshd
from tests.rigs.broker.shared_agent import POOL, Frontend, Shared
from tests.suite import suites

LOCAL = {"batch": "local"}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Frontend]:
    made = Frontend(tmp_path / "lab", maximum=2)
    yield made
    made.kill()


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Shared]:
    made = Shared(tmp_path / "agent", LOCAL)
    yield made
    made.kill()


class Hostile(socketserver.StreamRequestHandler):
    """Answers without an end, wrongly, or not at all, as its port says."""

    def handle(self) -> None:
        way: str = self.server.way  # type: ignore[attr-defined]
        self.rfile.readline()
        if way == "hangs":
            time.sleep(120)
        head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: pilotage\r\nConnection: Upgrade\r\n"
        with contextlib.suppress(OSError):
            self.wfile.write(head + b"\r\n")
            while way == "endless":
                self.wfile.write(b"[" * 65536)
            self.wfile.write(b'{"n": 1, "deliver": [{"job": "../../etc"}]}\n')


class Server(socketserver.ThreadingTCPServer):
    """Serves in threads that end with the test."""

    daemon_threads = True
    block_on_close = False


@pytest.fixture
def hostile() -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        found = []
        for way in ("hangs", "endless", "lies"):
            server = stack.enter_context(Server(("127.0.0.1", 0), Hostile))
            server.way = way  # type: ignore[attr-defined]
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
            found.append(f"http://127.0.0.1:{server.server_address[1]}")
        yield [*found, f"http://127.0.0.1:{free_port()}"]


def over(hub: Frontend, agent: Shared, jobs: list[int]) -> bool:
    """Say whether all is done, all pilots have left, and the hub has heard of every end."""
    unheard = "SELECT 1 FROM edge_attempt WHERE job = 0 AND state NOT IN ('done', 'cancelled')"
    return hub.done(jobs) and not hub.live() and not agent.live() and not hub.query(unheard)


def once(hub: Frontend, agent: Shared, jobs: list[int]) -> None:
    """Require that each job ran once, and each pilot was submitted once."""
    hub.exactly_once(jobs)
    agent.once()


#: In the order in which they are passed: each start gets a little further.
LATER = (
    "link.proposed", "link.settled", "edge.delivered", "edge.judged", "edge.committed",
    "site.intent", "site.submitted", "edge.published", "edge.sent", "site.finished",
)  # fmt: skip
#: Not among them: what was committed may be reported before it is delivered again, and the hub then
#: forgets it without an acknowledgement.
ACKED = "edge.acked"
POINTS = (*LATER, ACKED)


def agent_dies(hub: Frontend, agent: Shared, points: Sequence[str]) -> None:
    """Kill the agent at points, then see that nothing is doubled or forgotten."""
    jobs = hub.queue(6, 0.2)
    hub.start()
    agent.dial(hub, maximum=2)
    for point in points:
        agent.dies(point)
    agent.start()
    agent.wait(lambda: over(hub, agent, jobs))
    once(hub, agent, jobs)


@pytest.mark.quick
def test_nothing_is_doubled_or_forgotten_where_the_agent_dies_once(hub: Frontend, agent: Shared):
    agent_dies(hub, agent, [suites.one_of(POINTS)])


@pytest.mark.slow
@pytest.mark.parametrize("points", [LATER, (ACKED,)], ids=["later", "acked"])
def test_nothing_is_doubled_or_forgotten_wherever_the_agent_dies(
    hub: Frontend, agent: Shared, points: tuple[str, ...]
):
    agent_dies(hub, agent, points)


#: Where the hub dies, in the order in which that is passed.
HUB_POINTS = (
    "link.admitted", "pool.acted:2", "pilot.ordered", "remote.published", "remote.sent",
    "remote.heard",
)  # fmt: skip


@pytest.mark.quick
def test_nothing_is_doubled_or_forgotten_where_the_hub_dies_once(hub: Frontend, agent: Shared):
    hub_dies(hub, agent, [suites.one_of(HUB_POINTS)])


@pytest.mark.slow
def test_nothing_is_doubled_or_forgotten_wherever_the_hub_dies(hub: Frontend, agent: Shared):
    hub_dies(hub, agent, HUB_POINTS)


def hub_dies(hub: Frontend, agent: Shared, points: Sequence[str]) -> None:
    """Kill the hub at points, then see that nothing is doubled or forgotten."""
    jobs = hub.queue(6, 0.5)
    agent.dial(hub, maximum=2)
    agent.start()
    for point in points:
        process = hub.start(crash=point)
        agent.wait(lambda process=process: process.poll() is not None)  # type: ignore[misc]
        assert process.returncode == -signal.SIGKILL, hub.said
    hub.start()
    agent.wait(lambda: over(hub, agent, jobs))
    once(hub, agent, jobs)


@pytest.mark.slow
def test_a_hub_that_is_away_or_hostile_does_not_disturb_the_others(
    hub: Frontend, agent: Shared, hostile: list[str]
):
    jobs = hub.queue(4, 0.2)
    hub.start()
    agent.dial(hub, maximum=2)
    for nth, url in enumerate(hostile):
        agent.give_token(f"bad{nth}", "pil_g_" + "x" * 43)
        quick = {"url": url, "heartbeat": 1.0, "patience": 2.0, "retry": 0.5}
        agent.change({"hubs": {f"bad{nth}": quick}})
    # One that was never given a token, and one that cannot be reached at all.
    agent.change({"hubs": {"unknown": {"url": f"https://127.0.0.1:{hub.port}", "ca": "lab.pem"}}})
    agent.change({"hubs": {"strange": {"url": "https://é..x"}}})
    agent.start()
    agent.wait(lambda: over(hub, agent, jobs))
    once(hub, agent, jobs)
    assert set(hub.states()) == {"down"}
    agent.wait(lambda: agent.connected("lab"))
    for name in (*(f"bad{nth}" for nth in range(len(hostile))), "unknown", "strange"):
        agent.wait(lambda name=name: agent.trouble(name))  # type: ignore[misc]
    assert {user for (user,) in agent.query("SELECT user FROM edge_job")} == {"lab"}


@pytest.mark.slow
def test_a_token_that_is_repaired_counts_within_seconds(hub: Frontend, agent: Shared):
    hub.start()
    agent.dial(hub, maximum=2)
    token = agent.root / "lab-token"
    token.chmod(0o644)
    agent.start()
    agent.wait(lambda: "others may read the token" in agent.trouble("lab"))
    token.chmod(0o600)
    agent.wait(lambda: agent.connected("lab"))


@pytest.mark.slow
def test_a_hub_that_goes_silent_keeps_nothing_from_another(tmp_path: Path, agent: Shared):
    hubs = [Frontend(tmp_path / name, maximum=2) for name in ("first", "second")]
    agent.change({"batch": {"jobs": 0}})
    try:
        for hub in hubs:
            hub.start()
            agent.dial(hub, maximum=2)
        agent.start()
        agent.wait(lambda: all(agent.connected(hub.name) for hub in hubs))
        # The first wants all that there is, and is gone before it gets any.
        quiet, other = hubs
        quiet.queue(8, 0.2)
        agent.wait(lambda: agent.held("first").ordered == 2)
        quiet.kill()
        agent.wait(lambda: agent.trouble("first"))
        agent.change({"batch": {"jobs": 2}})
        jobs = other.queue(4, 0.2)
        agent.wait(lambda: other.done(jobs) and not other.live())
        assert agent.held("first").why == "its hub is not connected"
        quiet.start()
        agent.wait(lambda: not quiet.live() and not agent.live())
        agent.once()
    finally:
        for hub in hubs:
            hub.kill()


@pytest.mark.slow
def test_pilots_at_a_batch_system_behind_ssh_come_through_its_login_node(
    tmp_path: Path, sshd: Sshd
):
    # Only root sees the folders that pytest makes.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        place, there = Path(folder, "hub"), Path(folder, "there")
        place.mkdir()
        hub = Frontend(tmp_path / "lab", maximum=2, place=place, user=sshd.user)
        batch = {
            "batch": "local", "host": "key", "ssh_config": str(sshd.config),
            "python": "/usr/bin/python3", "login": "127.0.0.1",
        }  # fmt: skip
        agent = Shared(tmp_path / "agent", batch, place=there)
        os.chown(there, sshd.user.uid, sshd.user.gid)
        jobs = hub.queue(4, 0.2)
        hub.start()
        agent.dial(hub, maximum=2)
        agent.start()
        try:
            agent.wait(lambda: hub.states()["available"])
            # The next process finds the way that pilots were told.
            agent.kill()
            agent.start()
            agent.wait(lambda: over(hub, agent, jobs))
            once(hub, agent, jobs)
            doors = (agent.root / ".pilotage" / "doors" / "cluster.json").read_text()
            assert "hub-lab" in doors
        finally:
            agent.kill()
            hub.kill()


@pytest.mark.slow
def test_a_hub_that_is_not_named_any_more_gets_nothing(hub: Frontend, agent: Shared):
    other = Frontend(hub.root.parent / "other", maximum=1)
    hub.queue(40, 0.2)
    try:
        for one in (hub, other):
            one.start()
            agent.dial(one, maximum=1)
        agent.start()
        agent.wait(lambda: hub.states()["available"] == 1)
        assert agent.held("lab").cores == 1
        agent.wait(lambda: "1 of 1 cores for this hub" in agent.held("lab").why)
        agent.forget("lab")
        # What waits is cancelled, and what runs may end.
        agent.wait(lambda: [state for _, state in agent.live()] == ["running"])
        agent.kill()
        agent.start()
        agent.wait(lambda: agent.connected("other"))
        assert [state for _, state in agent.live()] == ["running"]
        (hub.root / "pools" / f"{POOL}.toml").unlink()
        agent.wait(lambda: not hub.states()["available"] and not agent.live())
    finally:
        other.kill()


@pytest.mark.slow
def test_one_hub_has_pilots_of_several_agents_each_with_a_site_of_its_own(
    tmp_path: Path, hub: Frontend, agent: Shared
):
    other = Shared(tmp_path / "elsewhere", LOCAL, site="cloud")
    (hub.root / "pools" / f"{POOL}.toml").unlink()
    hub.start()
    try:
        for one, site in ((agent, "grid"), (other, "cloud")):
            one.dial(hub, maximum=2, theirs=site)
            one.start()
            one.wait(lambda one=one: one.connected("lab"))  # type: ignore[misc]
        hub.wait(lambda: len(hub.query("SELECT name FROM edge_site")) == 2)
        # The first is called otherwise at its own site.
        hub.change(lambda project: project.want_pilots("grid", PilotRequest(), 1, ""))
        hub.change(lambda project: project.want_pilots("cloud", PilotRequest(cpus=2), 1, ""))
        agent.wait(lambda: available(hub) == {"grid": 1, "cloud": 2})
        assert (agent.held("lab").cores, other.held("lab").cores) == (1, 2)
        hub.change(lambda project: project.ask_pilots([1, 2], "stop"))
        agent.wait(lambda: not agent.live() and not other.live())
        # The site of another is not for it, whatever its file says.
        other.give_token("lab", hub.token("other"))
        (other.root / ".pilotage" / "hubs" / "lab" / "hub-key.json").unlink()
        other.wait(lambda: "this token is for the site `other`" in other.trouble("lab"))
    finally:
        other.kill()


def available(hub: Frontend) -> dict[str, int]:
    """Count the cores of pilots that take jobs by site."""
    with Project(hub.root) as project:
        found = view.pilots(project.db)
    return {one.site: one.facts.cpus for one in found if one.facts and one.state == "available"}
