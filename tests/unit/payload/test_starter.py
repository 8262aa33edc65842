from __future__ import annotations

import math
import os
import resource
import signal
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.payload.starter import loop, payloads, process, spawn, wire
from pilotage.run import Ending, EndReason, alive, end_orphans, evidence


def an_ending(reason: EndReason, code: int | None) -> Ending:
    return Ending("7.1", 1.0, code, None, reason, "", None)


@pytest.mark.parametrize(
    "reason, code, ok",
    [
        (EndReason.EXITED, 0, True),
        (EndReason.EXITED, 1, False),
        (EndReason.TIMEOUT, 0, False),
        (EndReason.LOST, None, False),
    ],
)
def test_only_an_exit_with_zero_is_ok(reason, code, ok):
    assert an_ending(reason, code).ok is ok


@pytest.mark.parametrize(
    "count, words",
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1288490188, "1.2 GiB"),
        (2**30, "1.0 GiB"),
        (5 * 2**50, "5120.0 TiB"),
    ],
)
def test_sizes_are_written_for_people(count, words):
    assert payloads.size(count) == words


def test_signals_have_names():
    assert process.signal_name(signal.SIGSEGV) == "SIGSEGV"
    assert process.signal_name(signal.SIGRTMIN + 1) == f"signal {signal.SIGRTMIN + 1}"


@given(st.binary().filter(lambda name: b"\0" not in name))
def test_any_name_can_be_shown(name):
    assert spawn.shown(name).encode()


def test_a_program_is_looked_up_in_the_path_it_will_have(tmp_path):
    for folder, mode in (("a", 0o644), ("b", 0o755)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "tool").touch(mode)
    (tmp_path / "c" / "tool").mkdir(parents=True)
    a, b, c = (os.fsencode(tmp_path / name) for name in "abc")
    assert spawn.find(b"tool", b":".join((c, a, b))) == b + b"/tool"
    with pytest.raises(spawn.RefusedError, match="'tool' is not executable"):
        spawn.find(b"tool", a)
    with pytest.raises(spawn.RefusedError, match="no such program 'other'"):
        spawn.find(b"other", a + b":" + b)
    with pytest.raises(spawn.RefusedError, match="no such program ''"):
        spawn.find(b"", a)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "stdout", "exit.json"])
def test_files_of_a_payload_stay_in_its_directory(tmp_path, name):
    with pytest.raises(spawn.RefusedError, match="name of a file"):
        spawn.write_files(os.fsencode(tmp_path), {name: ""})


def test_an_attempt_is_claimed_once(tmp_path):
    place = os.fsencode(tmp_path / "deep" / "er" / "1")
    spawn.claim(place)
    with pytest.raises(spawn.ClaimedError, match="already claimed"):
        spawn.claim(place)


def test_the_first_reason_stays():
    order = {"key": "7.1", "timeout": 1.0, "grace": 1.0, "memory": None}
    payload = payloads.Payload(order, os.getpid(), b"/")
    payload.decide("timeout", "too slow")
    payload.decide("stopped", "not wanted")
    assert (payload.reason, payload.message) == ("timeout", "too slow")


def _ended(status: int, reason: str = "") -> payloads.Payload:
    order = {"key": "7.1", "timeout": None, "grace": 1.0, "memory": None}
    payload = payloads.Payload(order, os.getpid(), b"/")
    payload.reason = reason
    payload.end(status, resource.getrusage(resource.RUSAGE_SELF))
    return payload


@pytest.mark.parametrize(
    "status, reason, excused",
    [
        (signal.SIGTERM, "", True),
        (signal.SIGKILL, "", True),
        # What a shell says of a program of its own that was killed.
        ((128 + signal.SIGTERM) << 8, "", True),
        (signal.SIGSEGV, "", False),
        (1 << 8, "", False),
        (0, "", False),
        (signal.SIGKILL, "memory", False),
    ],
)
def test_an_end_from_outside_may_be_excused_by_the_end_of_its_starter(status, reason, excused):
    payload = _ended(status, reason)
    before = payload.ending["reason"]
    assert bool(payload.doubt) == excused
    payload.excuse("ended with its starter")
    assert payload.ending["reason"] == ("stopped" if excused else before)
    assert not payload.doubt


def test_an_end_that_is_in_doubt_is_told_when_the_doubt_is_over(monkeypatch):
    # What other tests have started is nothing that a payload left behind.
    monkeypatch.setattr(process, "children", list)
    ours, theirs = socket.socketpair()
    line = wire.StarterWire(theirs.detach())
    with ours, line.socket:
        starter = loop.Loop(line, b"/", b"/lock")
        payload = starter.sweeping["7.1"] = _ended(signal.SIGTERM)
        payload.doubt = payload.due = math.inf
        starter.sweep()
        assert (list(starter.sweeping), starter.kept) == (["7.1"], {})
        payload.doubt = 1.0
        starter.sweep()
        assert starter.kept["7.1"][1]["reason"] == "signalled"
        starter.sweeping["7.1"] = _ended(signal.SIGTERM)
        starter.terminate()
        starter.sweep()
        assert starter.kept["7.1"][1]["reason"] == "stopped"


def test_evidence_is_read_back(tmp_path):
    report = payloads.ending("7.1", "signalled", "killed by SIGSEGV", -11)
    payloads.write_evidence(os.fsencode(tmp_path), report)
    found = evidence(tmp_path)
    assert found == Ending(
        "7.1", report["time"], None, 11, EndReason.SIGNALLED, report["message"], None
    )
    assert [path.name for path in tmp_path.iterdir()] == ["exit.json"]


def test_no_evidence_is_none(tmp_path):
    assert evidence(tmp_path) is None
    assert evidence(tmp_path / "missing") is None


def test_evidence_that_cannot_be_written_is_told(tmp_path, capsys):
    (tmp_path / "file").touch()
    payloads.write_evidence(
        os.fsencode(tmp_path / "file" / "x"), payloads.ending("7.1", "exited", "", 0)
    )
    assert "no evidence of '7.1'" in capsys.readouterr().err


def test_a_lock_that_nobody_holds_is_not_alive(tmp_path):
    assert not alive(tmp_path / "missing")
    lock = tmp_path / "lock"
    lock.touch()
    assert not alive(lock)


def test_without_keys_there_are_no_orphans():
    assert end_orphans(set()) == 0


def test_the_table_knows_this_process():
    row = process.table()[os.getpid()]
    assert (row.parent, row.group, row.session) == (os.getppid(), os.getpgrp(), os.getsid(0))
    assert row.resident > 2**20
    assert process.memory({os.getpgrp()})[os.getpgrp()] >= row.resident // 2


def test_the_starter_needs_only_the_standard_library():
    folder = Path(process.__file__).parent
    names = {path.stem for path in folder.glob("*.py")}
    text = "".join(path.read_text() for path in folder.glob("*.py"))
    assert "import pilotage" not in text
    assert "from pilotage" not in text
    assert {"__main__", "loop", "spawn", "wire"} <= names
