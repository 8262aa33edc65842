from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import pbs
from pilotage.batch.system.model import (
    BatchEnd,
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import KEY, ORDER, Sample, Words

REPLAY = Path(__file__).parents[2] / "replay" / "pbs"
END = "\nend of listing\n"
RAN = "Job run at Mon Nov 16 at 04:02 on (node7:ncpus=1:mem=1048576kb)"


def replay(name: str) -> Output:
    return Output(0, (REPLAY / name).read_text())


def item(last: str, name: str, words: str, *times: int | None, **more: object) -> BatchItem:
    began, ended = (None if time is None else 1794801700.0 + time for time in times)
    raw = {"key": f"p0123456789abc{last}", "id": name, "words": words}
    node = {"node": "node7" if began else "", "started": began, "ended": ended}
    return msgspec.convert(raw | node | more, BatchItem)


def over(last: str, name: str, words: str, cause: str, **more: object) -> BatchItem:
    return item(last, name, words, 20, 80, phase="over", cause=cause, **more)


LIVE = [
    item("a", "101.pbs1", "Q: Not Running: Insufficient amount of resource: ncpus", None, None,
         phase="queued"),
    item("b", "102.pbs1", "H (u): Job held by alice on Mon Nov 16 04:00:30 2026", None, None,
         phase="held"),
    item("c", "103.pbs1", f"R: {RAN}", 20, None, phase="running"),
    item("d", "104[0].pbs1", "X", None, 80, phase="over", cause="unknown"),
    item("d", "104[1].pbs1", f"R: {RAN}", 20, None, phase="running", index=1),
    item("d", "104[2].pbs1", "Q", None, None, phase="queued", index=2),
    item("d", "104[3].pbs1", "B: Job Array Began at Mon Nov 16 at 04:02", None, None,
         phase="queued", index=3),
    item("e", "105.pbs1", f"E: {RAN}", 20, None, phase="running"),
    item("f", "107.pbs1", "W", None, None, phase="queued"),
]  # fmt: skip
PAST = [
    over("a", "201.pbs1", f"F: {RAN} and finished", "exited", exit=0),
    over("b", "202.pbs1", f"F: {RAN} and failed", "exited", exit=7),
    over("c", "203.pbs1", f"F: {RAN} and failed", "signalled", signal=9),
    over("d", "204.pbs1", f"F: {RAN} and failed", "timeout"),
    over("e", "205.pbs1", f"F: {RAN} and failed", "memory"),
    over("f", "206.pbs1", f"F: {RAN} and terminated", "cancelled"),
    item("g", "207.pbs1", "F: Job deleted by alice", None, 90, phase="over", cause="cancelled"),
    over("h", "208.pbs1", f"F: {RAN} and failed", "node"),
    over("i", "209[0].pbs1", f"X: {RAN}", "exited", exit=0),
    over("i", "209[1].pbs1", f"X: {RAN}", "exited", exit=1, index=1),
]
ODD = [item("a", "301.pbs1", f"R: {RAN}", 20, None, phase="running")]
TORQUE = [
    item("a", "41.torque1", "Q", None, None, phase="queued"),
    item("b", "42.torque1", "H (u)", None, None, phase="held"),
    item("c", "43[0].torque1", "R", 20, None, phase="running"),
    over("c", "43[1].torque1", "C", "exited", exit=7, index=1),
    over("d", "44.torque1", "C", "exited", exit=0),
    over("e", "45.torque1", "C", "memory"),
    over("f", "46.torque1", "C", "timeout"),
    over("g", "47.torque1", "C", "signalled", signal=15),
    over("h", "48.torque1", "C", "timeout"),
]


class TestPBS(Words):
    listings = (
        Sample(replay("live.json"), LIVE),
        Sample(replay("odd.json"), ODD),
        Sample(replay("torque.xml"), TORQUE),
        Sample(replay("none.json"), []),
        Sample(Output(0, END), []),
        Sample(Output(0, f"<Data></Data>\n{END}"), []),
    )
    histories = (Sample(replay("past.json"), PAST), Sample(Output(0, END), []))
    answers = (
        (Output(0, "12.pbs1\n"), "12.pbs1"),
        (Output(0, "12[].pbs1.example.org\n"), "12[].pbs1.example.org"),
    )
    refusals = (
        (Output(170, "", "qsub: Unknown queue\n"), True),
        (Output(188, "", "qsub: Job violates queue and/or server resource limits\n"), True),
        (Output(1, "", "qsub: illegal -l value\n"), True),
        (Output(1, "", "qsub: cannot connect to server pbs1 (errno=15010)\n"), False),
        (Output(38, "", "qsub: would exceed queue generic's per-user limit\n"), False),
        (Output(1, "12.pbs1\n", "qsub: Unknown queue\n"), False),
    )
    mapping = (
        ({"count": 3}, ["-J", "0-2", "-t", "/site/s/p0123456789abcd/out.^array_index^"]),
        ({"nodes": 2, "tasks": 2, "cpus": 4, "memory": 1 << 30, "gpus": 1, "constraint": "arch=x"},
         ["select=2:ncpus=8:mpiprocs=2:mem=1048576kb:ngpus=1:arch=x",
          "nodes=2:ppn=8:gpus=1:arch=x", "mem=2097152kb"]),
        ({"time": 3661.5}, ["walltime=01:01:02"]),
        ({"queue": "long", "account": "physics"}, ["-q", "long", "-A", "physics"]),
        ({"reservation": "R12"}, ["-q", "R12", "-W", "x=advres:R12"]),
        ({"extra": ("-l=place=excl", "--P=mine", "-h")}, ["place=excl", "-P", "mine", "-h"]),
        ({}, ["-N", KEY, "-r", "n", "cd /site/s/p0123456789abcd || exit 1"]),
    )  # fmt: skip

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return pbs.TOOLS


@pytest.mark.parametrize(
    "changes",
    [
        {"qos": "high"},
        {"step": True},
        {"folder": "/site/host:b"},
        {"constraint": "a=b+2:ncpus=99"},
        {"queue": "long", "reservation": "R12"},
        {"extra": ("-J=0-9",)},
        {"extra": ("-rerun",)},
        {"extra": ("-l=-x",)},
    ],
)
def test_what_would_not_be_as_it_is_meant_is_refused(changes: dict[str, object]):
    with pytest.raises(BatchError) as caught:
        pbs.TOOLS.submit(msgspec.structs.replace(ORDER, **changes))
    assert caught.value.final


def test_a_folder_is_no_shell():
    call = pbs.TOOLS.submit(msgspec.structs.replace(ORDER, folder="/site/it's $(here)"))
    assert call.input.splitlines()[1] == "cd '/site/it'\"'\"'s $(here)' || exit 1"


def test_an_array_that_waits_has_all_its_numbers():
    job = {"Job_Name": KEY, "job_state": "Q", "array_indices_remaining": "0-8:4,9"}
    text = msgspec.json.encode({"pbs_version": "1", "Jobs": {"7[].s": job}}).decode()
    assert [(found.id, found.index) for found in pbs.read(text)] == [
        ("7[0].s", 0), ("7[4].s", 4), ("7[8].s", 8), ("7[9].s", 9),
    ]  # fmt: skip


@pytest.mark.parametrize("state", ["M", "Z", ""])
def test_a_state_that_nobody_knows_says_nothing(state: str):
    jobs = {"7.s": {"Job_Name": KEY, "job_state": state}}
    text = msgspec.json.encode({"pbs_version": "1", "Jobs": jobs}).decode()
    (found,) = pbs.read(text)
    assert (found.phase, found.cause) == (Phase.UNKNOWN, None)


@pytest.mark.parametrize(
    "status, cause, exit, signal",
    [
        (0, "exited", 0, None), (127, "exited", 127, None), (137, "signalled", None, 9),
        (254, "exited", 254, None), (271, "signalled", None, 15), (-29, "timeout", None, None),
        (-27, "memory", None, None), (-3, "node", None, None), (-19, "cancelled", None, None),
        (-25, "unknown", None, None),
    ],
)  # fmt: skip
def test_codes(status: int, cause: str, exit: int | None, signal: int | None):  # noqa: A002
    found = pbs.end({"job_state": "F", "Exit_status": status})
    assert found == BatchEnd(EndCause(cause), exit, signal)


def test_a_wall_of_time_by_a_signal():
    job = {
        "job_state": "F", "Exit_status": 271, "substate": 91,
        "resources_used": {"walltime": "00:10:03"}, "Resource_List": {"walltime": "00:10:00"},
    }  # fmt: skip
    assert pbs.end(job).cause is EndCause.TIMEOUT
