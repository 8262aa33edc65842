"""A hub that does what a test says, and the pilot program beside it."""

from __future__ import annotations

import base64
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pilotage.node import frame

SECRET = "pil_e_" + "x" * 43
_SRC = Path(__file__).parents[3] / "src"
_UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: pilotage\r\n\r\n"


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Hub:
    """Speaks the protocol to one pilot; `grant` gives it work."""

    def __init__(self, tls: ssl.SSLContext | None = None, **terms: Any) -> None:
        self.terms = {
            "pilot": 7, "name": "seven", "site": "here", "heartbeat": 2.0, "lease": 10.0,
            "checks": [], "env": {}, "setup": [], "idle": None, **terms,
        }  # fmt: skip
        self.heard: list[dict[str, Any]] = []
        self.ends: dict[str, dict[str, Any]] = {}
        #: How often each end was told.
        self.told: dict[str, int] = {}
        self.logs: dict[tuple[str, str], bytes] = {}
        self.facts: dict[str, Any] = {}
        self.checks: list[dict[str, Any]] | None = None
        self.left: str | None = None
        self.held: dict[str, dict[str, Any]] = {}
        self.fresh: list[dict[str, Any]] = []
        self.stops: list[dict[str, Any]] = []
        self.drain = ""
        self.bye = False
        #: Answers to these are lost, with the connection; `end` is a sync that tells of one.
        self.lose: set[str] = set()
        self.errors: dict[str, dict[str, str]] = {}
        self.silent = False
        self.shut = False
        self._tls = tls
        self._lock = threading.Condition()
        self._links: set[socket.socket] = set()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    def ops(self, op: str) -> list[dict[str, Any]]:
        return [one for one in self.heard if one.get("op") == op]

    def grant(self, key: str, *argv: str, **more: Any) -> None:
        folder = f"{self.facts['work']}/jobs/{key}"
        launch = {
            "key": key, "argv": list(argv), "env": {}, "inherit": True, "cwd": folder,
            "dir": folder, "files": {}, "timeout": None, "grace": 5.0, "memory": None,
            "limits": {}, "sandbox": None, "warm": "", "result": False, "outputs": {}, **more,
        }  # fmt: skip
        with self._lock:
            self.held[key] = launch
            self.fresh.append(launch)
            self._lock.notify_all()

    def say(self, **fields: Any) -> None:
        with self._lock:
            for name, value in fields.items():
                setattr(self, name, value)
            self._lock.notify_all()

    def cut(self) -> None:
        """Break all connections."""
        for link in list(self._links):
            with suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.shut = True
        self._server.close()
        self.cut()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._server.accept()
            except OSError:
                return
            if self.shut:
                raw.close()
                continue
            threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        link = raw
        with suppress(OSError, frame.FrameError):
            link = self._tls.wrap_socket(raw, server_side=True) if self._tls else raw
            self._links.add(link)
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (byte := link.recv(1)):
                    return
                head += byte
            link.sendall(_UPGRADED)
            reader = frame.Reader()
            while data := link.recv(1 << 18):
                for message in reader.feed(data):
                    self._hear(link, message)
        self._links.discard(link)
        link.close()

    def _hear(self, link: socket.socket, message: dict[str, Any]) -> None:
        with self._lock:
            self.heard.append(message)
            # A question that was parked is answered when the next one comes.
            self._lock.notify_all()
        if message["op"] == "log":
            name = (message["key"], message["stream"])
            known = self.logs.get(name, b"")
            assert message["at"] <= len(known)
            self.logs[name] = known[: message["at"]] + base64.b64decode(message["data"])
        elif message["op"] == "sync" and not (message["ended"] or message["started"]):
            threading.Thread(target=self._park, args=(link, message), daemon=True).start()
        else:
            self._reply(link, message)

    def _park(self, link: socket.socket, message: dict[str, Any]) -> None:
        number = self.heard.index(message)

        def due() -> bool:
            later = any(one["op"] == "sync" for one in self.heard[number + 1 :])
            return bool(self.fresh or self.stops or self.drain or self.bye or later)

        with self._lock:
            self._lock.wait_for(due, message["wait"])
        self._reply(link, message)

    def _reply(self, link: socket.socket, message: dict[str, Any]) -> None:
        with self._lock:
            op = message["op"]
            body = {"n": message["n"], "p": 0, **self._answer(op, message)}
            if op in self.errors:
                body = {"n": message["n"], "p": 0, "error": self.errors[op]}
            kind = "end" if message.get("ended") and "end" in self.lose else op
            if kind in self.lose:
                self.lose.discard(kind)
                self.cut()
            elif not self.silent:
                with suppress(OSError):
                    link.sendall(frame.pack(frame.text(body)))

    def _answer(self, op: str, message: dict[str, Any]) -> dict[str, Any]:
        if op == "hello":
            self.facts = message["facts"]
            return self.terms
        if op == "resume":
            self.fresh = [one for key, one in self.held.items() if key not in message["running"]]
            jobs, self.fresh = self.fresh, []
            return {**self.terms, "jobs": jobs, "stop": []}
        if op == "ready":
            self.checks = message["checks"]
        if op == "leave":
            self.left = message["reason"]
        if op != "sync":
            return {}
        for end in message["ended"]:
            self._end(end)
        jobs, self.fresh = self.fresh, []
        stops, self.stops = self.stops, []
        return {"jobs": jobs, "stop": stops, "drain": self.drain, "bye": self.bye}

    def _end(self, end: dict[str, Any]) -> None:
        key = end["key"]
        self.told[key] = self.told.get(key, 0) + 1
        if self.held.pop(key, None) is None:
            return
        for stream in ("stdout", "stderr"):
            rest = base64.b64decode(end.get(stream, ""))
            self.logs[key, stream] = self.logs.get((key, stream), b"") + rest
        # Last: a test that sees the end reads the whole log.
        self.ends[key] = end


class Program:
    """A pilot that runs."""

    def __init__(self, process: subprocess.Popen[bytes], work: Path, log: Path) -> None:
        self.process = process
        self.work = work
        self._log = log

    @property
    def words(self) -> str:
        return self._log.read_text()

    @property
    def folder(self) -> Path:
        (found,) = (one for one in self.work.iterdir() if not one.name.startswith("pilot-cache-"))
        return found

    def status(self, seconds: float = 90.0) -> int:
        return self.process.wait(seconds)

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)


@contextmanager
def pilot(
    hub: str, base: Path, *words: str, env: dict[str, str] | None = None,
    program: list[str] | None = None,
) -> Iterator[Program]:  # fmt: skip
    """Run the pilot program; it is killed if it does not end by itself."""
    base.mkdir(exist_ok=True, parents=True)
    secret = base / "secret"
    secret.write_text(SECRET)
    command = program or [sys.executable, "-m", "pilotage.node"]
    work = base / "work"
    options = ["--hub", hub, "--secret-file", str(secret), "--work", str(work), "--cpus", "4"]
    environ = {**os.environ, "PYTHONPATH": str(_SRC), **(env or {})}
    with (base / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *options, *words], stdin=subprocess.DEVNULL, stderr=log, env=environ
        )
    try:
        yield Program(process, work, base / "log")
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        sys.stderr.write((base / "log").read_text())
