"""Two pools, one behind a slow link: what starves there is given back, what computes stays."""

from __future__ import annotations

import collections
import shutil
import socketserver
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.pilot import view
from pilotage.pool import view as pool_view
from testbed.lanes import Lanes
from testbed.ports import free_port
from tests.rigs.cluster.batch_site import SiteProject
from tests.suite import system

#: Quick, so that a test sees it; patient with a machine on which payloads share the cores.
POOL = """
site = "{name}"
maximum = {maximum}
interval = "1s"
utilisation = "cpu"

[pilot]
cpus = 1

[control]
patience = "1s"
haste = "1s"
rest = "1m"

[efficiency]
low = 0.08
high = 0.5
least = "6s"
smooth = "5s"
lasting = "3s"
"""
#: Reads as much as is there, over the network that it is in; then it computes for a moment.
_READ = """
import socket, time
with socket.create_connection(("{host}", {port})) as link:
    while link.recv(65536): pass
end = time.process_time() + 0.25
while time.process_time() < end: pass
"""
_COMPUTE = """
import time
end = time.process_time() + 1.0
while time.process_time() < end: pass
"""
_BYTES = 200_000
#: As in the files of pools: little, since others may compute on this machine, too.
LOW = 0.08
_OVER = {"down", "failed", "lost"}


class _Give(socketserver.BaseRequestHandler):
    """Sends some data to whoever comes."""

    def handle(self) -> None:
        self.request.sendall(bytes(_BYTES))


@contextmanager
def data(host: str) -> Iterator[int]:
    """Serve data; return the port."""
    with socketserver.ThreadingTCPServer((host, 0), _Give) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.fixture(scope="module")
def lanes() -> Iterator[Lanes]:
    system.needs("root", "ip", "nsenter", "tc")
    with Lanes() as bed:
        yield bed


class Two:
    """A project with a pool in each network."""

    def __init__(self, root: Path, lanes: Lanes) -> None:
        self.farm = SiteProject(root, 'batch = "local"\n')
        (root / "pilotage.toml").write_text(
            f'[hub]\nhost = "{lanes.address}"\nport = {free_port()}\n'
            '[pilots]\nsandbox = "none"\nheartbeat = "2s"\nlease = "1m"\n'
        )
        (root / "pools").mkdir()
        for name, node, maximum in (("slow", lanes.slow, 2), ("fast", lanes.fast, 1)):
            python = root / f"python-{name}"
            enter = " ".join(node.prefix)
            python.write_text(f'#!/bin/sh\nexec {enter} {shutil.which("python3")} "$@"\n')
            python.chmod(0o755)
            (root / f"site-{name}").mkdir()
            (root / "sites" / f"{name}.toml").write_text(
                f'batch = "local"\nfolder = "{root}/site-{name}"\npython = "{python}"\n'
                'poll = "1s"\nsettle = "1s"\n'
            )
            (root / "pools" / f"{name}.toml").write_text(POOL.format(name=name, maximum=maximum))

    def submit(self, count: int, program: str, asked: str) -> list[int]:
        file = self.farm.root / "work.py"
        file.write_text(program)
        more = f"exec '{sys.executable}' -I -S '{file}'"
        return self.farm.submit(count, more=more, site="", requirements=asked)

    def live(self) -> collections.Counter[str]:
        """Count the pilots of each pool that have not ended."""
        with Project(self.farm.root) as project:
            return collections.Counter(one.pool for one in view.pilots(project.db) if one.pool)

    def busy(self, pool: str) -> list[float]:
        """How busy the pilots of a pool keep their cores, as far as they have measured."""
        with Project(self.farm.root) as project:
            found = [one for one in view.pilots(project.db, ended=True) if one.pool == pool]
        return [one.busy for one in found if one.busy is not None]

    def words(self, pool: str) -> str:
        with Project(self.farm.root) as project:
            return pool_view.pool(
                project.db, project.root, pool, project.clock.now()
            ).words  # fmt: skip

    def done(self) -> int:
        return sum(job.state is State.DONE for job in self.farm.jobs().values())


@pytest.mark.slow
def test_a_pool_whose_payloads_starve_is_given_back_and_another_takes_the_work(
    tmp_path: Path, lanes: Lanes
):
    two = Two(tmp_path / "p", lanes)
    heard: list[str] = []
    with data(lanes.address) as port:
        program = _READ.format(host=lanes.address, port=port)
        two.submit(400, program, 'pool == "slow" || pool == "fast"')
        with two.farm.up():
            two.farm.wait(lambda: two.live()["slow"] == 2 and two.live()["fast"] == 1)

            def given_back() -> bool:
                heard.append(two.words("slow"))
                return not two.live()["slow"]

            two.farm.wait(given_back)
            assert max(two.busy("slow")) < LOW
            assert any("payloads starve" in words for words in heard)
            assert any("the work goes to fast" in words for words in heard)
            before = two.done()
            two.farm.wait(lambda: two.done() > before + 10)
            assert two.live() == {"fast": 1}
            assert "starve" not in two.words("fast")


@pytest.mark.slow
def test_a_pool_behind_a_slow_link_keeps_what_computes(tmp_path: Path, lanes: Lanes):
    two = Two(tmp_path / "p", lanes)
    two.submit(200, _COMPUTE, 'pool == "slow" || pool == "fast"')
    with two.farm.up():
        two.farm.wait(lambda: two.live()["slow"] == 2 and len(two.busy("slow")) == 2)
        before = two.done()
        two.farm.wait(lambda: two.done() > before + 8)
        assert two.live()["slow"] == 2
        assert "starve" not in two.words("slow")
        assert max(two.busy("slow")) > LOW
