"""Pilots that ask for data that is not theirs, or bring what no job has left."""

from __future__ import annotations

import hashlib
import secrets
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.node import frame
from pilotage.node.data.line import CutError, DataConnection, RefusalError
from pilotage.node.dial import dial, route
from tests.rigs.node.real_hub import RealHub, running

TEXT = b"what the job reads"


class Rogue:
    """A pilot that says what a test wants."""

    def __init__(self, hub: RealHub, work: Path) -> None:
        self.work = work
        self._way = route(hub.url)
        self._socket, _ = dial(self._way)
        self._socket.settimeout(60)
        self._reader = frame.Reader()
        self.key = secrets.token_hex(32)
        facts = {"host": "node", "work": str(work), "cpus": 1, "memory": 1 << 33}
        found = self.ask("hello", protocol=1, token=hub.secret(), key=self.key, facts=facts)
        self.number = found["pilot"]
        assert found["marker"] == str(hub.root / ".pilotage" / "marker")
        self.ask("ready", seen="guessed", writable=True, shown="writable")

    def ask(self, op: str, **fields: Any) -> dict[str, Any]:
        self._socket.sendall(frame.pack(frame.text({"op": op, "n": 1, **fields})))
        while True:
            for found in self._reader.feed(self._socket.recv(1 << 16)):
                assert "error" not in found, found
                return found

    def job(self) -> dict[str, Any]:
        """Wait for a job."""
        for _ in range(100):
            if jobs := self.ask("sync", wait=1.0)["jobs"]:
                assert len(jobs) == 1
                return dict(jobs[0])
        raise AssertionError("no job came")

    def line(self, **other: Any) -> DataConnection:
        return DataConnection(
            self._way, lambda: {"protocol": 1, "pilot": self.number, "key": self.key, **other}
        )

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@pytest.fixture
def hub(tmp_path) -> Iterator[RealHub]:
    with running(tmp_path / "project") as one:
        (one.root / "in").write_bytes(TEXT)
        (one.root / "secret").write_bytes(b"not for you")
        yield one


@pytest.fixture
def rogue(hub, tmp_path) -> Iterator[Rogue]:
    one = Rogue(hub, tmp_path / "work")
    try:
        yield one
    finally:
        one.close()


def _submit(hub: RealHub) -> int:
    spec = JobSpec(Command(("true",)), "job", inputs=("in",), outputs={"out": "out", "dir": "dir"})
    return hub.project.submit(NewJob(spec))


def _sum(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _refused(line: DataConnection, key: str, outputs: dict[str, Any], *paths: str) -> str:
    with pytest.raises(RefusalError) as caught:
        line.home(key, outputs, paths, lambda: None)
    return str(caught.value)


def test_a_pilot_gets_what_its_attempts_read_and_nothing_else(hub, rogue):
    job = _submit(hub)
    # A guess is no proof that it sees the project: the data comes to it.
    launch = rogue.job()
    assert [one["sha256"] for one in launch["data"]["inputs"]] == [_sum(TEXT)]
    key = launch["key"]
    got: list[bytes] = []
    line = rogue.line()
    line.fetch(key, _sum(TEXT), 5, got.append)
    assert b"".join(got) == TEXT[5:]
    for name, digest in (
        (key, _sum(b"not for you")), (f"{job}.2", _sum(TEXT)), ("999.1", _sum(TEXT)),
        ("../x", _sum(TEXT)), (key, "../../secret"),
    ):  # fmt: skip
        with pytest.raises(RefusalError):
            line.fetch(name, digest, 0, got.append)
    for other in ({"key": "0" * 64}, {"pilot": 999}, {"pilot": 2**70}, {"protocol": 2}):
        with pytest.raises((RefusalError, CutError)):
            rogue.line(**other).fetch(key, _sum(TEXT), 0, got.append)
    assert b"".join(got) == TEXT[5:]
    line.close()


def test_what_no_job_can_have_left_is_refused_and_leaves_nothing(hub, rogue):
    _submit(hub)
    launch = rogue.job()
    key, line = launch["key"], rogue.line()
    out = Path(launch["outputs"]["out"])
    out.parent.mkdir(parents=True)
    out.write_bytes(b"left")
    facts = {"size": 4, "sha256": _sum(b"left")}
    # Another content than was announced.
    assert "is not what the job left" in _refused(
        line, key, {"out": {**facts, "sha256": _sum(b"lies")}}, str(out)
    )
    for name in ("../x", "/etc/x", "a/../../x", ""):
        _refused(line, key, {"dir": {"files": {name: facts}}}, str(out))
    for odd in ({"size": -1, "sha256": _sum(b"")}, {"size": 4, "sha256": "../x"}, {"x": 1}, 7, "x"):
        _refused(line, key, {"out": odd}, str(out))
    before = {".pilotage", "in", "secret", "pilotage.toml"}
    left = {one.name for one in hub.root.iterdir() if not one.name.endswith(".part")}
    assert left == before
    line.home(key, {"out": facts, "strange": facts}, [str(out)], lambda: None)
    assert (hub.root / "out").read_bytes() == b"left"
    assert not list(hub.root.glob(".*.part"))
    line.close()


def test_an_attempt_that_is_over_writes_nothing(hub, rogue):
    job = _submit(hub)
    launch = rogue.job()
    out = Path(launch["outputs"]["out"])
    out.parent.mkdir(parents=True)
    out.write_bytes(b"late")
    end = {"key": launch["key"], "time": 0.0, "exit": 1, "reason": "exited"}
    rogue.ask("sync", ended=[end])
    hub.wait(job)
    assert hub.state(job) is State.FAILED
    facts = {"size": 4, "sha256": _sum(b"late")}
    line = rogue.line()
    assert "no longer belongs to this pilot" in _refused(
        line, launch["key"], {"out": facts}, str(out)
    )
    line.close()
    assert not (hub.root / "out").exists()
