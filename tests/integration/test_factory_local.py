"""A factory that starts pilots for hubs on one machine, whoever is killed on the way."""

from __future__ import annotations

import contextlib
import signal
import socketserver
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.batch.wish import Wish
from pilotage.edge.factory import desk, feeder
from pilotage.hub.project import Project
from pilotage.pilot import view
from testbed.ports import free_port
from tests import programs, suites
from tests.factories import POOL, Frontend, Plant
from tests.sites import SITE

LOCAL = 'batch = "local"\n'


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Frontend]:
    made = Frontend(tmp_path / "lab", maximum=2)
    yield made
    made.kill()


class Hostile(socketserver.StreamRequestHandler):
    """Answers without an end, slowly, wrongly, or not at all, as its port says."""

    def handle(self) -> None:
        way: str = self.server.way  # type: ignore[attr-defined]
        self.rfile.readline()
        if way == "hangs":
            time.sleep(120)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        with contextlib.suppress(OSError):
            if way == "endless":
                self.wfile.write(head + b"\r\n")
                while True:
                    self.wfile.write(b"[" * 65536)
            body = b'{"sites": [{"site": "cluster", "wanted": [{"pilot": 0, "wish": {}}]}]}'
            self.wfile.write(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)


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


@pytest.fixture
def plant(tmp_path: Path) -> Iterator[Plant]:
    made = Plant(tmp_path / "plant", LOCAL)
    yield made
    made.kill()


def over(hub: Frontend, plant: Plant, jobs: list[int]) -> bool:
    """Say whether all is done, everybody has left, and the hub has heard of every end."""
    return hub.done(jobs) and not hub.live() and not plant.guests()


def once(hub: Frontend, plant: Plant, jobs: list[int]) -> None:
    """Require that each job ran once, and each pilot was submitted once."""
    hub.exactly_once(jobs)
    assert len(plant.submitted()) == len(set(plant.submitted()))


#: In the order in which they are passed: each start gets a little further.
POINTS = (
    *feeder.POINTS, "site.intent", "site.submitted", "site.closed",
)  # fmt: skip


def factory_dies(hub: Frontend, plant: Plant, points: Sequence[str]) -> None:
    """Kill the factory at points, then see that nothing is doubled or forgotten."""
    jobs = hub.queue(6, 0.2)
    hub.start()
    plant.feed(hub, maximum=2)
    for point in points:
        plant.dies(point)
    plant.start()
    plant.wait(lambda: over(hub, plant, jobs))
    once(hub, plant, jobs)


@pytest.mark.quick
def test_nothing_is_doubled_or_forgotten_where_the_factory_dies_once(hub: Frontend, plant: Plant):
    factory_dies(hub, plant, [suites.one_of(POINTS)])


@pytest.mark.slow
def test_nothing_is_doubled_or_forgotten_wherever_the_factory_dies(hub: Frontend, plant: Plant):
    factory_dies(hub, plant, POINTS)


#: Where the hub dies before its factory hears of the pilots that it wants.
ORDERED = "pool.acted:2"
#: Where the hub of a factory dies, in the order in which that is passed.
HUB_POINTS = (ORDERED, *desk.POINTS, "desk.heard:4")


@pytest.mark.quick
def test_nothing_is_doubled_or_forgotten_where_the_hub_dies_once(hub: Frontend, plant: Plant):
    hub_dies(hub, plant, [suites.one_of(HUB_POINTS)])


@pytest.mark.slow
def test_nothing_is_doubled_or_forgotten_wherever_the_hub_dies(hub: Frontend, plant: Plant):
    hub_dies(hub, plant, HUB_POINTS)


def hub_dies(hub: Frontend, plant: Plant, points: Sequence[str]) -> None:
    """Kill the hub at points, then see that nothing is doubled or forgotten."""
    jobs = hub.queue(6, 0.5)
    plant.feed(hub, maximum=2)
    # The factory asks less and less often while the hub is away.
    plant.driven = True
    for point in points:
        process = hub.start(crash=point)
        # A factory that is there before has its secrets by then, and asks for none later on.
        if point != ORDERED:
            plant.stay()
        plant.wait(lambda process=process: process.poll() is not None, passing=2.0)  # type: ignore[misc]
        assert process.returncode == -signal.SIGKILL, hub.said
    hub.start()
    plant.stay()
    plant.wait(lambda: over(hub, plant, jobs), passing=2.0)
    once(hub, plant, jobs)


@pytest.mark.slow
def test_a_hub_that_is_away_or_hostile_is_nothing_to_the_others(
    hub: Frontend, plant: Plant, hostile: list[str]
):
    jobs = hub.queue(4, 0.2)
    hub.start()
    plant.feed(hub, maximum=2)
    good = (plant.root / "hubs" / "lab.toml").read_text()
    address = f'"https://127.0.0.1:{hub.port}"'
    for nth, url in enumerate(hostile):
        plant.write(f"bad{nth}", good.replace(address, f'"{url}"'))
    plant.write("wrong", "maximum = 0")
    plant.write("strange", good.replace(address, '"https://é..x"'))
    plant.start()
    plant.wait(lambda: over(hub, plant, jobs))
    once(hub, plant, jobs)
    assert set(hub.states()) == {"down"}
    plant.wait(lambda: plant.hub("lab").state == "fed")
    for nth in range(len(hostile)):
        plant.wait(lambda nth=nth: plant.hub(f"bad{nth}").state == "away")  # type: ignore[misc]
    assert plant.hub("wrong").state == "bad file"
    assert "é..x" in plant.hub("strange").trouble
    assert {hub for hub, _, _ in plant.guests()} <= {"lab"}


@pytest.mark.slow
def test_a_token_that_is_repaired_counts_within_seconds(hub: Frontend, plant: Plant):
    hub.start()
    plant.feed(hub, maximum=2)
    token = plant.root / "hubs" / "lab.token"
    token.chmod(0o644)
    plant.start()
    plant.wait(lambda: "others may read the token" in plant.hub("lab").trouble)
    token.chmod(0o600)
    plant.wait(lambda: plant.hub("lab").state == "fed")


@pytest.mark.slow
def test_pilots_come_through_the_relay_of_the_login_node(tmp_path: Path, hub: Frontend):
    plant = Plant(tmp_path / "plant", LOCAL + 'login = "127.0.0.1"\n')
    jobs = hub.queue(4, 0.2)
    hub.start()
    plant.feed(hub, maximum=2)
    plant.start()
    try:
        plant.wait(lambda: any((plant.root / "there").rglob("run/secret")))
        plant.kill()
        plant.start()
        plant.wait(lambda: over(hub, plant, jobs))
        once(hub, plant, jobs)
        doors = (plant.root / ".pilotage" / "doors" / "batch.json").read_text()
        assert "hub-lab" in doors
    finally:
        plant.kill()


@pytest.mark.slow
def test_a_hub_that_is_not_wanted_any_more_gets_nothing(hub: Frontend, plant: Plant):
    hub.queue(40, 0.2)
    hub.start()
    plant.feed(hub, maximum=1)
    plant.start()
    plant.wait(lambda: hub.states()["available"] == 1)
    assert plant.hub("lab").cores == 1
    plant.wait(lambda: "1 of 1 cores for this hub" in plant.hub("lab").trouble)
    (plant.root / "hubs" / "lab.toml").unlink()
    # What waits is called off, what runs goes on, and nobody is told of it any more.
    plant.wait(lambda: [state for _, _, state in plant.guests()] == ["running"])
    plant.kill()
    assert programs.wait(plant.as_hub()) == errors.Conflict.exit_status
    (hub.root / "pools" / f"{POOL}.toml").unlink()
    plant.start()
    plant.wait(lambda: not hub.states()["available"] and not plant.guests())


@pytest.mark.slow
def test_one_hub_is_fed_by_several_factories_each_with_a_site_of_its_own(
    tmp_path: Path, hub: Frontend, plant: Plant
):
    other = Plant(tmp_path / "other", LOCAL)
    (hub.root / "sites" / "cloud.toml").write_text('batch = "factory"\n')
    hub.change(lambda project: project.want_pilots(SITE, Wish(), 1, ""))
    hub.change(lambda project: project.want_pilots("cloud", Wish(cpus=2), 1, ""))
    hub.start()
    try:
        for factory, site in ((plant, SITE), (other, "cloud")):
            factory.feed(hub, maximum=2, site=site)
            factory.start()
        plant.wait(lambda: available(hub) == {SITE: 1, "cloud": 2})
        assert (plant.hub("lab").cores, other.hub("lab").cores) == (1, 2)
        hub.change(lambda project: project.ask_pilots([1, 2], "stop"))
        plant.wait(lambda: not plant.guests() and not other.guests())
        # The site of another is not for it, whatever its file says.
        other.feed(hub, maximum=2, site=SITE)
        token = other.root / "hubs" / "lab.token"
        token.write_text(hub.token("cloud"))
        other.wait(lambda: "does not feed the site" in other.hub("lab").trouble)
    finally:
        other.kill()


def available(hub: Frontend) -> dict[str, int]:
    """Count the cores of pilots that take jobs by site."""
    with Project(hub.root) as project:
        found = view.pilots(project.db)
    return {one.site: one.facts.cpus for one in found if one.facts and one.state == "available"}
