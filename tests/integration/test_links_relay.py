"""Links of the real pilot program to a real hub: direct, by proxy, by relay and by files.

Where a node has no network, the test is in a network namespace that has none either.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pilotage.job.model import Command, JobSpec, NewJob, State
from testbed import reserve
from testbed.ports import free_port
from tests.rigs.node import real_hub
from tests.rigs.node.real_hub import RealHub, blind, enrolled
from tests.rigs.node.scripted_hub import Program, wait_for
from tests.suite import programs
from tests.suite.system import find


@pytest.fixture(scope="module")
def hub(tmp_path_factory) -> Iterator[RealHub]:
    """One hub for all: tests that kill it start it again, and no pilot stays."""
    with real_hub.running(tmp_path_factory.mktemp("hub") / "hub", hub='tls = "on"') as one:
        assert one.url.startswith("https://")
        yield one


def _works(hub: RealHub, one: Program, count: int = 10) -> None:
    """Have jobs run there, and see what they wrote."""
    jobs = [hub.submit("sh", "-c", f"echo hello {number}") for number in range(count)]
    hub.wait(*jobs)
    assert {hub.state(job) for job in jobs} == {State.DONE}
    assert [hub.output(job) for job in jobs] == [f"hello {number}\n" for number in range(count)]
    assert one.process.poll() is None


def _leaves(one: Program) -> None:
    one.terminate()
    assert one.status() == 0


# -- directly and through a proxy ----------------------------------------------------------------


def test_a_pilot_reaches_the_hub_directly_with_the_hubs_own_certificate(hub, tmp_path):
    with enrolled(hub, tmp_path / "p") as one:
        _works(hub, one)
        _leaves(one)


class Proxy:
    """Connects callers to whatever they ask for, and remembers what that was."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(caller,), daemon=True).start()

    def _serve(self, caller: socket.socket) -> None:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += caller.recv(1)
        target = head.split()[1].decode()
        self.asked.append(target)
        host, _, port = target.rpartition(":")
        with caller, socket.create_connection((host, int(port))) as hub:
            caller.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            way = threading.Thread(target=_pour, args=(caller, hub), daemon=True)
            way.start()
            _pour(hub, caller)
            way.join()

    def close(self) -> None:
        self._server.close()


def _pour(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    one = Proxy()
    yield one
    one.close()


def test_a_pilot_reaches_the_hub_through_a_proxy(hub, proxy, tmp_path):
    with enrolled(hub, tmp_path / "p", "--proxy", proxy.url) as one:
        _works(hub, one)
        _leaves(one)
    assert set(proxy.asked) == {f"127.0.0.1:{hub.port}"}


# -- the relay -----------------------------------------------------------------------------------


@contextmanager
def _relay(hub: RealHub, log: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "pilotage", "relay", "--hub", hub.url, *words]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stderr=out, stdout=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": str(real_hub.SRC)},
        )  # fmt: skip
    programs.until_ready(process, lambda: b"relays" in log.read_bytes(), log.read_text)
    try:
        yield process
    finally:
        status = programs.end(process, signal.SIGINT)
    assert status == 0, log.read_text()


def test_the_relay_takes_pilots_to_the_hub_and_nowhere_else(hub, tmp_path):
    place = f"127.0.0.1:{free_port()}"
    log = tmp_path / "relay.log"
    with (
        _relay(hub, log, "--listen", place),
        enrolled(hub, tmp_path / "p", "--link", f"relay:{place}") as one,
    ):
        _works(hub, one)
        # Whatever a caller asks for, it speaks with the hub, and must do so as the hub wants.
        host, _, port = place.rpartition(":")
        with socket.create_connection((host, int(port))) as link:
            link.sendall(b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org\r\n\r\n")
            link.settimeout(60)
            with suppress(ConnectionResetError):
                assert b"200" not in link.recv(4096)
        _leaves(one)
    assert "connection" in log.read_text()


@pytest.mark.needs("bwrap")
@pytest.mark.parametrize("kind", ["relay", "spool"])
def test_the_data_of_jobs_goes_through_a_relay(hub, kind, tmp_path):
    place = f"127.0.0.1:{free_port()}" if kind == "relay" else str(tmp_path / "shared")
    option = "--listen" if kind == "relay" else "--spool"
    (hub.root / f"in-{kind}").write_bytes(os.urandom(3_000_000))
    spec = JobSpec(
        Command(("cp", f"{{base}}/in-{kind}", f"{{base}}/out-{kind}")), "copy",
        inputs=(f"in-{kind}",), outputs={"out": f"out-{kind}"},
    )  # fmt: skip
    with (
        _relay(hub, tmp_path / "relay.log", option, place),
        blind(hub, tmp_path / "p", "--link", f"{kind}:{place}"),
    ):
        job = hub.project.submit(NewJob(spec))
        hub.wait(job)
    assert hub.project.job(job).reason == ""
    found = (hub.root / f"out-{kind}").read_bytes()
    assert found == (hub.root / f"in-{kind}").read_bytes()


def test_the_relay_itself_may_have_to_go_through_a_proxy(hub, proxy, tmp_path):
    place = f"127.0.0.1:{free_port()}"
    with (
        _relay(hub, tmp_path / "relay.log", "--listen", place, "--proxy", proxy.url),
        enrolled(hub, tmp_path / "p", "--link", f"relay:{place}") as one,
    ):
        _works(hub, one)
        _leaves(one)
    assert set(proxy.asked) == {f"127.0.0.1:{hub.port}"}


def test_a_pilot_behind_a_relay_goes_on_when_the_hub_or_the_relay_was_away(hub, tmp_path):
    place = f"127.0.0.1:{free_port()}"
    marks = tmp_path / "marks"
    marks.mkdir()
    with enrolled(hub, tmp_path / "p", "--link", f"relay:{place}") as one:
        with _relay(hub, tmp_path / "one.log", "--listen", place):
            jobs = [
                hub.submit("sh", "-c", f"echo x >> {marks}/{number}; sleep 0.3")
                for number in range(40)
            ]
            wait_for(lambda: any(marks.iterdir()))
            hub.kill()
            hub.start()
        with _relay(hub, tmp_path / "two.log", "--listen", place):
            hub.wait(*jobs)
            assert {hub.state(job) for job in jobs} == {State.DONE}
            _leaves(one)
    assert [file.read_text() for file in marks.iterdir()] == ["x\n"] * 40


# -- nodes with no network -----------------------------------------------------------------------


class Island:
    """A network namespace that nothing leads out of."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.inside = (find("ip") or "ip", "netns", "exec", name)

    def run(self, *argv: str) -> str:
        return subprocess.run(
            [*self.inside, *argv], check=True, capture_output=True, text=True
        ).stdout

    def reaches(self, host: str, port: int) -> bool:
        code = f"import socket; socket.create_connection(({host!r}, {port}), 2)"
        command = [*self.inside, sys.executable, "-c", code]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _ip(*words: str) -> None:
    subprocess.run([find("ip") or "ip", *words], check=True)


@pytest.fixture
def island() -> Iterator[Island]:
    name = f"pilotage-{os.getpid()}"
    _ip("netns", "add", name)
    try:
        yield Island(name)
    finally:
        _ip("netns", "del", name)


@pytest.fixture
def cable(island) -> Iterator[str]:
    """A cable between the island and this machine; where this end is."""
    near, far = f"pn{os.getpid()}", f"pf{os.getpid()}"
    net, *_ = reserve.networks()
    _ip("link", "add", near, "type", "veth", "peer", "name", far)
    try:
        _ip("link", "set", far, "netns", island.name)
        _ip("addr", "add", f"{net}.1/30", "dev", near)
        _ip("link", "set", near, "up")
        for words in (("addr", "add", f"{net}.2/30", "dev", far), ("link", "set", far, "up")):
            island.run("ip", *words)
        yield f"{net}.1"
    finally:
        _ip("link", "del", near)


@pytest.mark.needs("root", "ip")
def test_a_node_with_no_way_out_works_through_the_relay_of_its_cluster(
    hub, island, cable, tmp_path
):
    place = f"{cable}:{free_port()}"
    routes = island.run("ip", "route").splitlines()
    assert len(routes) == 1
    assert routes[0].startswith(f"{cable.removesuffix('1')}0/30 dev ")
    assert not island.reaches("127.0.0.1", hub.port)
    assert not island.reaches(cable, hub.port)
    with (
        _relay(hub, tmp_path / "relay.log", "--listen", place),
        enrolled(hub, tmp_path / "p", "--link", f"relay:{place}", inside=island.inside) as one,
    ):
        _works(hub, one)
        job = hub.submit("cat", "/proc/net/route")
        hub.wait(job)
        assert "\t00000000\t00000000\t" not in hub.output(job)
        _leaves(one)


@pytest.mark.needs("root", "ip")
def test_a_node_with_no_network_at_all_works_through_a_shared_folder(hub, island, tmp_path):
    assert island.run("ip", "route") == ""
    assert "UP" not in island.run("ip", "-o", "link")
    assert not island.reaches("127.0.0.1", hub.port)
    folder = tmp_path / "shared"
    with (
        _relay(hub, tmp_path / "relay.log", "--spool", str(folder)),
        enrolled(hub, tmp_path / "p", "--link", f"spool:{folder}", inside=island.inside) as one,
    ):
        _works(hub, one)
        job = hub.submit("cat", "/proc/net/dev")
        hub.wait(job)
        assert "eth" not in hub.output(job)
        _leaves(one)
        wait_for(lambda: [each.name for each in folder.iterdir()] == ["relay.lock"])


@pytest.mark.needs("root", "ip")
def test_a_stream_of_files_outlives_the_hub_and_the_relay(hub, island, tmp_path):
    folder, marks = tmp_path / "shared", tmp_path / "marks"
    marks.mkdir()
    with enrolled(hub, tmp_path / "p", "--link", f"spool:{folder}", inside=island.inside) as one:
        with _relay(hub, tmp_path / "one.log", "--spool", str(folder)) as relay:
            jobs = [
                hub.submit("sh", "-c", f"echo x >> {marks}/{number}; sleep 0.3")
                for number in range(30)
            ]
            wait_for(lambda: any(marks.iterdir()))
            hub.kill()
            hub.start()
            wait_for(lambda: State.DONE in {hub.state(job) for job in jobs})
            relay.kill()
            relay.wait()
            relay.returncode = 0
        with _relay(hub, tmp_path / "two.log", "--spool", str(folder)):
            hub.wait(*jobs, seconds=90)
            assert {hub.state(job) for job in jobs} == {State.DONE}
            _leaves(one)
    assert [file.read_text() for file in marks.iterdir()] == ["x\n"] * 30
