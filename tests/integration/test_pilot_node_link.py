"""A pilot whose connection breaks, and the ways to reach the hub."""

from __future__ import annotations

import base64
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pilotage.node import spool
from tests.rigs.node.scripted_hub import Hub, Program, pilot, wait_for


@pytest.fixture
def hub():
    one = Hub()
    yield one
    one.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory) -> Iterator[Hub]:
    """One hub with one pilot, for tests that leave both as they are; each has keys of its own."""
    one = Hub(lease=60.0)
    with pilot(one.url, tmp_path_factory.mktemp("shared"), "--log-limit", "200K"):
        _ready(one)
        yield one
    one.close()


def _ready(hub: Hub) -> None:
    wait_for(lambda: hub.checks is not None)


def _spooled(one: Program) -> list[str]:
    return sorted(path.name for path in (one.folder / "spool").iterdir())


def test_a_grant_whose_answer_was_lost_is_run_exactly_once(shared, tmp_path):
    before = len(shared.ops("resume"))
    shared.lose.add("sync")
    marker = tmp_path / "ran"
    shared.grant("11.1", "sh", "-c", f"echo x >> {marker}")
    wait_for(lambda: "11.1" in shared.ends)
    assert len(shared.ops("resume")) == before + 1
    assert marker.read_text() == "x\n"


def test_an_end_whose_answer_was_lost_is_told_again_and_not_run_again(shared, tmp_path):
    marker = tmp_path / "ran"
    shared.lose.add("end")
    shared.grant("12.1", "sh", "-c", f"echo x >> {marker}")
    wait_for(lambda: shared.told.get("12.1", 0) >= 1)
    shared.grant("12.2", "true")
    wait_for(lambda: "12.2" in shared.ends)
    wait_for(lambda: shared.told["12.1"] == 2)
    assert marker.read_text() == "x\n"


def test_the_same_grant_twice_runs_once(shared, tmp_path):
    marker = tmp_path / "ran"
    for _ in range(3):
        shared.grant("13.1", "sh", "-c", f"echo x >> {marker}")
        wait_for(lambda: not shared.fresh)
    wait_for(lambda: "13.1" in shared.ends)
    shared.grant("13.1", "sh", "-c", f"echo x >> {marker}")
    shared.grant("13.2", "true")
    wait_for(lambda: "13.2" in shared.ends)
    assert marker.read_text() == "x\n"


def test_payloads_go_on_while_the_hub_restarts_and_their_ends_wait_on_disk(hub, tmp_path):
    hub.terms["lease"] = 60.0
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", "sh", "-c", "sleep 0.5; echo done")
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        hub.shut = True
        hub.cut()
        wait_for(lambda: _spooled(one) == ["1.1.json"])
        assert "1.1" not in hub.ends
        hub.shut = False
        wait_for(lambda: "1.1" in hub.ends)
        assert hub.ends["1.1"]["exit"] == 0
        assert hub.logs["1.1", "stdout"] == b"done\n"
        assert hub.ops("resume")[0]["running"] == ["1.1"]
        wait_for(lambda: _spooled(one) == [])


def test_silence_stops_payloads_before_the_lease_ends_and_ends_are_told_later(hub, tmp_path):
    hub.terms.update(lease=4.0, heartbeat=0.8)
    with pilot(hub.url, tmp_path) as one:
        _ready(hub)
        hub.grant("1.1", "true")
        wait_for(lambda: "1.1" in hub.ends)
        hub.grant("2.1", "sleep", "1000")
        wait_for(lambda: any(sync["started"] for sync in hub.ops("sync")))
        begun = time.monotonic()
        hub.say(silent=True, shut=True)
        wait_for(lambda: _spooled(one) == ["2.1.json"])
        assert 1.5 < time.monotonic() - begun < 30.0
        hub.say(silent=False, shut=False)
        hub.cut()
        wait_for(lambda: "2.1" in hub.ends)
        assert hub.ends["2.1"]["reason"] == "stopped"
        assert "had no contact" in hub.ends["2.1"]["message"]
        hub.grant("3.1", "true")
        wait_for(lambda: "3.1" in hub.ends)


def test_logs_survive_a_cut_without_gap_or_repetition(shared):
    code = "for i in $(seq 40); do echo line $i; sleep 0.1; done"
    shared.grant("14.1", "sh", "-c", code)
    key = ("14.1", "stdout")
    for _ in range(3):
        known = len(shared.logs.get(key, b""))
        wait_for(lambda: len(shared.logs.get(key, b"")) > known or "14.1" in shared.ends)  # noqa: B023
        shared.cut()
    wait_for(lambda: "14.1" in shared.ends)
    lines = b"".join(b"line %d\n" % number for number in range(1, 41))
    assert shared.logs[key] == lines
    assert [one for one in shared.ops("log") if one["key"] == "14.1"]


def test_hostile_amounts_of_words_are_cut_in_the_middle(shared):
    code = "echo first; yes | head -c 5000000; echo last; ln -sf /etc/passwd stderr"
    shared.grant("15.1", "sh", "-c", code)
    wait_for(lambda: "15.1" in shared.ends)
    text = shared.logs["15.1", "stdout"]
    assert text.startswith(b"first\ny\n")
    assert text.endswith(b"y\nlast\n")
    assert b"[... 4795211 bytes are left out here ...]" in text
    assert len(text) < 210_000
    # What a payload puts in the place of its log is not followed; what is empty may not be told.
    assert shared.logs.get(("15.1", "stderr"), b"") == b""


def test_large_ends_are_cut_into_several_messages(shared):
    shared.silent = True
    code = "import json; json.dump('x' * 1000000, open('result.json', 'w'))"
    keys = [f"16.{number}" for number in range(8)]
    for key in keys:
        shared.grant(key, shared.facts["python"], "-c", code, result=True)
    shared.silent = False
    wait_for(lambda: all(key in shared.ends for key in keys))
    assert all(len(shared.ends[key]["result"]) == 1_000_000 for key in keys)


# -- ways to the hub ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> Path:
    folder: Path = tmp_path_factory.mktemp("tls")
    subject = ["-subj", "/CN=hub", "-addext", "subjectAltName=IP:127.0.0.1,DNS:hub.example"]
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-keyout", "key.pem", "-out", "cert.pem", *subject],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def private(certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    one = Hub(tls=context)
    yield one
    one.close()


def _run_one(hub: Hub, one: Program) -> None:
    _ready(hub)
    hub.grant("1.1", "sh", "-c", "head -c 3000000 /dev/zero; echo")
    wait_for(lambda: "1.1" in hub.ends, 60)
    assert len(hub.logs["1.1", "stdout"]) == 3_000_001
    one.terminate()
    assert one.status() == 0
    assert hub.left is not None


def test_directly_with_tls(private, certificate, tmp_path):
    ca = str(certificate / "cert.pem")
    with pilot(private.url, tmp_path, "--ca", ca) as one:
        _run_one(private, one)


def test_a_hub_that_cannot_prove_its_name_gets_no_secret(private, certificate, tmp_path):
    with pilot(private.url, tmp_path / "a", "--idle", "0.5s") as one:
        assert one.status() == 12
    wrong = f"https://localhost:{private.port}"
    options = ["--ca", str(certificate / "cert.pem"), "--idle", "0.5s"]
    with pilot(wrong, tmp_path / "b", *options) as one:
        assert one.status() == 12
    assert private.heard == []


def test_an_open_connection_does_not_leave_the_machine(tmp_path):
    with pilot("http://hub.example:8420", tmp_path) as one:
        assert one.status() == 2
        assert "not encrypted" in one.words
    with pilot("http://127.0.0.1:8420", tmp_path, "--link", "relay:10.0.0.1:1") as one:
        assert one.status() == 2


def _splice(one: socket.socket, two: socket.socket) -> None:
    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    back = threading.Thread(target=carry, args=(two, one), daemon=True)
    back.start()
    carry(one, two)
    back.join()
    one.close()
    two.close()


class Proxy:
    """Splices connections: all to the hub, or those that ask with CONNECT."""

    def __init__(self, port: int, login: str | None = None) -> None:
        self.asked: list[str] = []
        self._port = port
        self._login = login
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                link, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        if self._login is not None:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += link.recv(1)
            self.asked.append(head.decode().split("\r\n")[0])
            wanted = base64.b64encode(self._login.encode()).decode()
            if f"Basic {wanted}" not in head.decode():
                link.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
                link.close()
                return
            link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        _splice(link, socket.create_connection(("127.0.0.1", self._port)))

    def close(self) -> None:
        self._server.close()


def test_through_a_proxy(private, certificate, tmp_path):
    proxy = Proxy(private.port, "user:p@ss")
    hub = f"https://hub.example:{private.port}"
    named = f"http://user:p%40ss@127.0.0.1:{proxy.port}"
    with pilot(hub, tmp_path, "--ca", str(certificate / "cert.pem"), "--proxy", named) as one:
        _run_one(private, one)
    assert proxy.asked == [f"CONNECT hub.example:{private.port} HTTP/1.1"]
    proxy.close()


def test_through_the_proxy_of_the_environment_unless_it_says_otherwise(
    private, certificate, tmp_path
):
    proxy = Proxy(private.port, "u:p")
    env = {"https_proxy": f"http://u:p@127.0.0.1:{proxy.port}", "no_proxy": "127.0.0.1"}
    ca = ["--ca", str(certificate / "cert.pem")]
    with pilot(f"https://hub.example:{private.port}", tmp_path / "a", *ca, env=env) as one:
        _run_one(private, one)
    assert len(proxy.asked) == 1
    private.checks = private.left = None
    with pilot(private.url, tmp_path / "b", *ca, env=env) as one:
        _ready(private)
        one.terminate()
        assert one.status() == 0
    assert len(proxy.asked) == 1
    proxy.close()


def test_through_a_relay_that_sees_only_what_is_encrypted(private, certificate, tmp_path):
    relay = Proxy(private.port)
    hub = f"https://hub.example:{private.port}"
    options = ["--ca", str(certificate / "cert.pem"), "--link", f"relay:127.0.0.1:{relay.port}"]
    with pilot(hub, tmp_path, *options) as one:
        _run_one(private, one)
    relay.close()


def test_through_files(private, certificate, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    over = threading.Event()

    def relay() -> None:
        while not over.is_set():
            for stream in spool.waiting(str(shared)):
                inner, outer = socket.socketpair()
                hub = socket.create_connection(("127.0.0.1", private.port))
                spool.Pump(stream, inner).start()
                threading.Thread(target=_splice, args=(outer, hub), daemon=True).start()
            time.sleep(0.02)

    thread = threading.Thread(target=relay)
    thread.start()
    url = f"https://hub.example:{private.port}"
    options = ["--ca", str(certificate / "cert.pem"), "--link", f"spool:{shared}"]
    try:
        with pilot(url, tmp_path / "p", *options) as one:
            _run_one(private, one)
        wait_for(lambda: not list(shared.iterdir()))
    finally:
        over.set()
        thread.join()
