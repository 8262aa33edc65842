"""Ends of flows are told outside: by HTTPS to hosts that are allowed, and by a mail program."""

from __future__ import annotations

import json
import ssl
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import pytest

from pilotage.flow.model import Notify
from testbed.certificates import Authority
from tests.flowed import Flow, Hub, Step


class Ear:
    """A server that fails at first, and then keeps what it is told."""

    def __init__(self, authority: Authority) -> None:
        self.told: list[dict[str, Any]] = []
        self.keys: list[str] = []
        self._fails = [503, 302]
        papers = authority.issue("ear", address="127.0.0.1")
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*papers)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.place = f"127.0.0.1:{self._server.server_port}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        ear = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                status = ear._fails.pop(0) if ear._fails else 200
                ear.keys.append(self.headers["Idempotency-Key"])
                if status == 200:
                    ear.told.append(json.loads(body))
                self.send_response(status)
                self.send_header("Location", "https://127.0.0.1:1/")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    (tmp_path / "papers").mkdir()
    return Authority(tmp_path / "papers")


@pytest.fixture
def ear(authority: Authority) -> Iterator[Ear]:
    with Ear(authority) as one:
        yield one


def test_a_host_is_told_until_it_has_heard_and_others_are_not(
    tmp_path: Path, ear: Ear, authority: Authority
):
    # A mail program that fails at first.
    mail = """\
import pathlib, sys
here = pathlib.Path(sys.argv[1])
(here / f"{len([*here.iterdir()])}").write_bytes(sys.stdin.buffer.read())
sys.exit(len([*here.iterdir()]) == 1)
"""
    mails = tmp_path / "mails"
    mails.mkdir()
    told = {"webhooks": [ear.place], "mail": [sys.executable, "-c", mail, str(mails)]}
    hub = Hub(tmp_path / "hub", settings={"flows": told})
    step = Step(recipe={"kind": "command", "argv": ["false"]})
    asked = Notify(webhook=f"https://{ear.place}/x", email="me@place.example")
    number = hub.submit(Flow(name="told", steps={"a": step}, notify=asked))
    other = Notify(webhook="https://169.254.169.254/x")
    hub.submit(Flow(name="other", steps={"a": step}, notify=other))
    hub.start(env={"SSL_CERT_FILE": str(authority.certificate)})
    try:
        hub.wait(lambda: ear.told and len([*mails.iterdir()]) == 2)
        hub.wait(lambda: hub.query("SELECT count(*) FROM flow_outbox") == [(0,)])
    finally:
        hub.kill()
    assert [(one["flow"], one["state"], one["name"]) for one in ear.told] == [
        (number, "failed", "told")
    ]
    assert "`a` failed" in ear.told[0]["text"]
    assert len(ear.keys) == 3
    assert len(set(ear.keys)) == 1
    assert "169.254.169.254` is not notified" in hub.said
    assert b"told (1) is failed" in (mails / "1").read_bytes()
