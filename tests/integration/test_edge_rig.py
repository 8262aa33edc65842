"""What tests of the edge service stand on: the bad line, papers that do not hold, and the rig."""

from __future__ import annotations

import os
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aio_pika
import aiormq
import pytest

from pilotage.agent import settings
from pilotage.agent.app import files
from pilotage.agent.app.files import Trust
from testbed.certificates import Authority, Papers
from testbed.fault_proxy import FaultProxy
from testbed.rabbit import Rabbit
from tests.rigs.broker import edge_agent, invariants
from tests.rigs.broker.applications import DOES
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.node.scripted_hub import wait_for
from tests.suite.programs import PATIENCE

#: Longer than the loopback takes, short enough to wait for nothing.
QUIET = 0.3


class Echo:
    """A server that says what it is told, and counts who came and who is gone."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self.came = 0
        self.ends: list[str] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # Closed alone, it would go on while the thread waits.
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._server.accept()
                self.came += 1
                threading.Thread(target=self._serve, args=(one,), daemon=True).start()

    def _serve(self, one: socket.socket) -> None:
        with one:
            try:
                while data := one.recv(1 << 16):
                    one.sendall(data)
                self.ends.append("closed")
            except OSError:
                self.ends.append("reset")


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def proxy(echo: Echo) -> Iterator[FaultProxy]:
    with FaultProxy(echo.port) as one:
        yield one


def dial(proxy: FaultProxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), PATIENCE)


def hear(one: socket.socket, size: int) -> bytes:
    told = b""
    while len(told) < size and (data := one.recv(size - len(told))):
        told += data
    return told


def is_silent(one: socket.socket) -> bool:
    one.settimeout(QUIET)
    try:
        return one.recv(1) == b"never"
    except TimeoutError:
        return True
    finally:
        one.settimeout(PATIENCE)


# -- the line ------------------------------------------------------------------------------------


def test_what_is_sent_arrives_and_is_counted(proxy: FaultProxy, echo: Echo):
    data = bytes(range(256)) * 4000
    with dial(proxy) as one:
        sender = threading.Thread(target=one.sendall, args=(data,))
        sender.start()
        assert hear(one, len(data)) == data
        sender.join()
        assert (proxy.connections, proxy.live) == (1, 1)
        assert proxy.passed("up") == len(data)
        wait_for(lambda: proxy.passed("down") == len(data))
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b""
    wait_for(lambda: proxy.live == 0)
    assert echo.ends == ["closed"]


def test_a_line_that_refuses_does_so_until_it_is_well(proxy: FaultProxy):
    with dial(proxy) as one:
        proxy.refuse(cut=False)
        with pytest.raises(ConnectionRefusedError):
            dial(proxy)
        one.sendall(b"x")
        assert hear(one, 1) == b"x"
        proxy.refuse()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    proxy.well()
    with dial(proxy) as one:
        one.sendall(b"y")
        assert hear(one, 1) == b"y"


def test_a_line_that_is_cut_is_reset_for_both(proxy: FaultProxy, echo: Echo):
    with dial(proxy) as one:
        one.sendall(b"x")
        assert hear(one, 1) == b"x"
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            one.recv(1)
    wait_for(lambda: echo.ends == ["reset"])
    with dial(proxy) as one:
        one.sendall(b"y")
        assert hear(one, 1) == b"y"


def test_in_a_black_hole_all_look_connected_and_hear_nothing(proxy: FaultProxy, echo: Echo):
    with dial(proxy) as one, dial(proxy) as other:
        one.sendall(b"x")
        other.sendall(b"x")
        assert hear(one, 1) == hear(other, 1) == b"x"
        proxy.blackhole()
        with dial(proxy) as new:
            one.sendall(b"y")
            new.sendall(b"z")
            other.close()
            assert is_silent(one)
            assert is_silent(new)
            # Nobody there heard that one came, nor that one left.
            assert (echo.came, echo.ends) == (2, [])
            proxy.well()
            assert hear(one, 1) == b"y"
            assert hear(new, 1) == b"z"
    wait_for(lambda: len(echo.ends) == 3)


def test_a_direction_can_be_lost_alone(proxy: FaultProxy):
    with dial(proxy) as one:
        proxy.blackhole("down")
        one.sendall(b"x")
        assert is_silent(one)
        assert (proxy.passed("up"), proxy.passed("down")) == (1, 0)
        proxy.well()
        assert hear(one, 1) == b"x"


def test_a_slow_line_takes_its_time_and_may_become_quick(proxy: FaultProxy):
    with dial(proxy) as one:
        proxy.slow(2000, "up")
        begun = time.monotonic()
        one.sendall(bytes(1000))
        assert len(hear(one, 1000)) == 1000
        assert 0.4 <= time.monotonic() - begun < PATIENCE
        proxy.slow(1, "up")
        one.sendall(bytes(1000))
        assert len(hear(one, 1)) == 1
        proxy.well()
        assert len(hear(one, 999)) == 999


def test_a_late_line_is_late_by_as_much_as_it_should(proxy: FaultProxy):
    with dial(proxy) as one:
        proxy.delay(0.2)
        begun = time.monotonic()
        one.sendall(b"x")
        assert hear(one, 1) == b"x"
        assert time.monotonic() - begun >= 0.4


def test_a_line_to_nobody_is_broken_at_once(echo: Echo):
    echo.close()
    with FaultProxy(echo.port) as proxy:
        with pytest.raises(ConnectionResetError), dial(proxy) as one:
            one.recv(1)
        wait_for(lambda: proxy.live == 0)


# -- papers --------------------------------------------------------------------------------------


@pytest.fixture
def broker(rabbit: Rabbit) -> Iterator[Rabbit]:
    """Lend the broker, whatever is done to its papers."""
    yield rabbit
    rabbit.trust(rabbit.authority)
    rabbit.become(rabbit.authority.issue("broker", address=rabbit.address))


def greeting(rabbit: Rabbit, authority: Authority, papers: Papers) -> bytes:
    """Come with papers, believing an authority; return how the broker begins to speak."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.load_cert_chain(*papers)
    with (
        socket.create_connection((rabbit.address, rabbit.port), PATIENCE) as plain,
        context.wrap_socket(plain, server_hostname=rabbit.address) as one,
    ):
        one.sendall(b"AMQP\x00\x00\x09\x01")
        return one.recv(1)


def test_papers_that_are_over_open_nothing_and_renewed_ones_do(rabbit: Rabbit, tmp_path: Path):
    authority = rabbit.authority
    old = authority.issue("site", seconds=-5, into=tmp_path)
    with pytest.raises(OSError):  # noqa: PT011 - how it says so differs
        greeting(rabbit, authority, old)
    new = authority.issue("site", into=tmp_path)
    assert new == old
    assert greeting(rabbit, authority, new) == b"\x01"
    # Those of the broker's own folder are others.
    assert greeting(rabbit, authority, rabbit.papers["site"]) == b"\x01"


def test_a_broker_can_show_papers_of_another_host_and_old_ones(broker: Rabbit, tmp_path: Path):
    authority, mine = broker.authority, broker.papers["site"]
    broker.become(authority.issue("broker", address="10.9.9.9", into=tmp_path))
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        greeting(broker, authority, mine)
    broker.become(authority.issue("broker", address=broker.address, seconds=-5, into=tmp_path))
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        greeting(broker, authority, mine)


def test_an_authority_can_take_the_place_of_another(broker: Rabbit, tmp_path: Path):
    old, new = broker.authority, Authority(tmp_path, "Next authority")
    broker.trust(old, new)
    broker.become(new.issue("broker", address=broker.address))
    with pytest.raises(ssl.SSLCertVerificationError):
        greeting(broker, old, broker.papers["site"])
    assert greeting(broker, new, broker.papers["site"]) == b"\x01"
    assert greeting(broker, new, new.issue("site")) == b"\x01"
    broker.trust(new)
    with pytest.raises(OSError):  # noqa: PT011 - how it says so differs
        greeting(broker, new, broker.papers["site"])


# -- the rig -------------------------------------------------------------------------------------


@pytest.fixture
def edge(tmp_path: Path, rabbit: Rabbit) -> Iterator[Edge]:
    with edge_agent.at_local(tmp_path / "e", rabbit) as one:
        yield one


def test_the_files_that_the_rig_writes_are_good(edge: Edge):
    made = settings.read(edge.root / "agent.toml")
    assert (made.site, made.batch.batch, made.bus.user) == (edge.site, "local", "site")
    edge.change({"limits": {"users": {"CN=alice, O=x": 3}}, "admins": ["hub", "bob"]})
    made = settings.read(edge.root / "agent.toml")
    assert (made.limits.users, made.admins) == ({"CN=alice, O=x": 3}, ("hub", "bob"))
    apps = {name: files.read(edge.root, name) for name in files.names(edge.root)}
    assert set(apps) == set(DOES)
    trusts = Trust()
    assert [trusts.reasons(one) for one in apps.values()] == [[]] * len(DOES)


def test_an_outsider_posts_and_hears_also_after_the_broker_was_killed(edge: Edge):
    edge.send({"kind": "status", "n": 1}, b"no JSON", topic="status.x")
    edge.wait(lambda: len(edge.raw("status.x")) == 2)
    assert [one.user for one in edge.raw()] == ["alice", "alice"]
    edge.send(b"{}", topic="status.y", named=False)
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
        edge.send(b"{}", topic="status.z", posing="bob", patience=0)
    edge.wait(lambda: len(edge.raw("status.y")) == 1)
    assert edge.raw("status.y")[0].user == ""
    edge.rabbit.kill()
    edge.rabbit.start()
    edge.send({"n": 2}, topic="status.x")
    edge.wait(lambda: edge.raw("status.x")[-1].said == {"n": 2})
    assert edge.raw("status.z") == []
    with pytest.raises(aio_pika.exceptions.DeliveryError):
        edge.send(b"nobody hears this", topic="nowhere", patience=0)


def status(edge: Edge, key: str, seq: int, state: str, **more: Any) -> None:
    said = {"kind": "status", "site": edge.site, "job": 1, "attempt": 1, "key": key, "seq": seq}
    edge.send(said | {"state": state} | more, topic="status.x")


def test_what_breaks_the_law_is_seen(edge: Edge):
    for seq, state in ((1, "queued"), (2, "running"), (2, "running"), (3, "done"), (4, "done")):
        status(edge, "good", seq, state)
    for seq, state in ((1, "queued"), (3, "done"), (2, "running")):
        status(edge, "disorder", seq, state)
    for seq, state in ((1, "done"), (2, "failed")):
        status(edge, "twofold", seq, state)
    status(edge, "endless", 1, "running")
    edge.wait(lambda: len(edge.heard()) == 11)
    invariants.i3_said_in_order(edge, ["good"])
    invariants.i4_nothing_lost(edge, ["good", "endless"])
    for bad in ("disorder", "twofold", "endless"):
        with pytest.raises(AssertionError):
            invariants.i3_said_in_order(edge, [bad])
    with pytest.raises(AssertionError):
        invariants.i4_nothing_lost(edge, ["good", "unheard"])
    with pytest.raises(AssertionError):
        invariants.i5_done_means_done(edge, ["good"])
    (edge.programs.place / "ends").write_text("1 1 77\n")
    invariants.i5_done_means_done(edge, ["good"])
    invariants.i1_started_once(edge)
    (edge.programs.place / "ledger").write_text("1 1 77\n1 1 78\n")
    with pytest.raises(AssertionError):
        invariants.i1_started_once(edge)
    invariants.i8_no_secret(edge)
    status(edge, "loose", 1, "queued", reason=(edge.papers / "site.key").read_text())
    edge.wait(lambda: edge.statuses("loose"))
    with pytest.raises(AssertionError):
        invariants.i8_no_secret(edge)


def test_programs_leave_their_lines_and_are_known_while_they_run(edge: Edge):
    env = {"PILOTAGE_JOB": "7", "PILOTAGE_ATTEMPT": "2", "PATH": os.defpath}
    run = [subprocess.Popen([edge.programs.folder / "gate"], env=env) for _ in range(2)]
    try:
        wait_for(lambda: len(edge.programs.running()) == 2)
        assert edge.programs.started() == {(7, 2): 2}
        run[0].kill()
        run[0].wait()
        assert edge.programs.running() == [run[1].pid]
        edge.programs.gate.touch()
        assert run[1].wait(PATIENCE) == 0
        assert [one.pid for one in edge.programs.ends()] == [run[1].pid]
    finally:
        for one in run:
            one.kill()
            one.wait()
