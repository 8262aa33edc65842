from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import htcondor
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import KEY, ORDER, Sample, Words

REPLAY = Path(__file__).parents[2] / "replay" / "htcondor"
END = "\nend of listing\n"
SECOND = "pilotage: it was to be started a second time"
MEMORY = (
    "Error from slot1_6@localhost: Job has gone over cgroup memory limit of 128 megabytes."
    " Peak usage: 128 megabytes. Consider resubmitting with a higher request_memory."
)


def replay(name: str) -> Output:
    return Output(0, (REPLAY / name).read_text())


def item(last: str, name: str, words: str, *times: int | None, **more: object) -> BatchItem:
    began, ended = (None if time is None else 1794801200.0 + time for time in times)
    node = "localhost" if began else ""
    raw = {"key": f"p0123456789abc{last}", "id": name, "words": words, "node": node}
    return msgspec.convert(raw | {"started": began, "ended": ended} | more, BatchItem)


QUEUE = [
    item("a", "23.3", "running", 25, None, phase="running", index=3),
    item("c", "25.0", "idle", None, None, phase="queued"),
    item("d", "26.0", "held: submitted on hold at user's request", None, None, phase="held"),
    item(
        "f", "28.0", "idle: Job not found at execution machine", 26, 34, phase="over", cause="node"
    ),
    item("g", "29.0", "idle", 26, 34, phase="over", cause="preempted"),
]
HISTORY = [
    item("a", "23.0", "completed", 25, 26, phase="over", cause="exited", exit=0),
    item("a", "23.1", "completed", 25, 26, phase="over", cause="exited", exit=7, index=1),
    item("a", "23.2", "completed", 25, 26, phase="over", cause="signalled", signal=9, index=2),
    item("b", "24.0", "removed: pilotage: it used up its wall time", 25, 30, phase="over",
         cause="timeout"),
    item("e", "27.0", f"removed: pilotage: it was held after it had begun: {MEMORY}", 25, 26,
         phase="over", cause="memory"),
    item("f", "28.0", f"removed: {SECOND}: Job not found at execution machine", 26, 34,
         phase="over", cause="node"),
    item("g", "29.0", f"removed: {SECOND}", 26, 34, phase="over", cause="preempted"),
    item("h", "30.0", "removed: via condor_rm (by user tester)", 26, 34, phase="over",
         cause="cancelled"),
]  # fmt: skip


class TestHTCondor(Words):
    listings = (Sample(replay("queue.txt"), QUEUE), Sample(Output(0, END), []))
    histories = (
        Sample(replay("history.txt"), HISTORY),
        Sample(Output(0, f"[\n]\n{END}"), []),
    )
    answers = (
        (Output(0, "12.0 - 12.499\n"), "12"),
        (Output(0, "7.0 - 7.0\n", "WARNING: odd"), "7"),
    )
    refusals = (
        (Output(1, "", "\nERROR: Parse error in expression: \n\tRequestCpus = x y\n"), True),
        (Output(1, "", "\nERROR: Invalid accounting_group: my group\n"), True),
        (Output(1, "", "\nERROR: No such directory: /nowhere\n"), True),
        (Output(1, "", "\nERROR: Failed to connect to local queue manager\nSECMAN:2007"), False),
        (Output(1, "12.0 - 12.0\n", "\nERROR: Invalid something"), False),
    )  # fmt: skip
    mapping = (
        ({"count": 3}, ["queue 3", 'environment = "PILOTAGE_INDEX=$(Process)"']),
        ({"tasks": 2, "cpus": 4}, ["request_cpus = 8"]),
        ({"memory": (1 << 30) + 1}, ["request_memory = 1025"]),
        ({"gpus": 2}, ["request_gpus = 2"]),
        ({"account": "physics.me"}, ["accounting_group = physics.me"]),
        ({"constraint": 'Arch == "X"'},
         ['requirements = (Arch == "X") && (NumShadowStarts ?: 0) == 0']),
        ({"extra": ("--rank=Memory", "--hold", '--+Flavour="long"')},
         ["rank = Memory", "hold = True", '+Flavour = "long"']),
    )  # fmt: skip

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return htcondor.TOOLS


def test_the_wall_time_is_in_the_policy():
    text = htcondor.TOOLS.submit(msgspec.structs.replace(ORDER, time=90.5)).input
    assert "time() - JobCurrentStartExecutingDate > 91" in text
    assert "JobCurrentStartExecutingDate" not in htcondor.TOOLS.submit(ORDER).input


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 2},
        {"queue": "long"},
        {"qos": "high"},
        {"reservation": "mine"},
        {"step": True},
        {"folder": "/site/it's"},
        {"constraint": "true) || (true"},
        {"constraint": "true /* "},
        {"constraint": "(true"},
        {"extra": ("--periodic_remove=False",)},
        {"extra": ("--+PeriodicRemove=False",)},
        {"extra": ("--MY.Requirements=True",)},
        {"extra": ("--queue=7",)},
        {"extra": ("--rank=$(Process)",)},
    ],
)
def test_what_would_not_be_as_it_is_meant_is_refused(changes: dict[str, object]):
    with pytest.raises(BatchError) as caught:
        htcondor.TOOLS.submit(msgspec.structs.replace(ORDER, **changes))
    assert caught.value.final


def ad(**more: object) -> BatchItem:
    fields = {"ClusterId": 1, "ProcId": 0, "PilotageKey": KEY, "JobStatus": 3, "NumShadowStarts": 1}
    (found,) = htcondor.read(msgspec.json.encode([fields | more]).decode())
    return htcondor.item(found, gone=True)


def test_older_ones_word_the_policy_otherwise():
    reason = "The job attribute PeriodicRemove expression '...' evaluated to TRUE"
    assert ad(RemoveReason=reason, LastJobStatus=2).cause is EndCause.TIMEOUT
    assert ad(RemoveReason=reason, LastJobStatus=1).cause is EndCause.NODE
    held = ad(RemoveReason=reason, LastJobStatus=5, LastHoldReasonCode=34)
    assert held.cause is EndCause.MEMORY


def test_a_held_one_that_somebody_removes_was_called_off():
    found = ad(RemoveReason="via condor_rm (by user me)", LastJobStatus=5, LastHoldReasonCode=34)
    assert found.cause is EndCause.CANCELLED


@pytest.mark.parametrize(
    "code, minor, cause",
    [
        (34, 0, "memory"),
        (21, 102, "memory"),
        (47, 0, "timeout"),
        (1, 0, "cancelled"),
        (6, 2, "node"),
    ],
)
def test_holds_after_the_beginning_end_it(code: int, minor: int, cause: str):
    held = ad(JobStatus=5, HoldReason="words", HoldReasonCode=code, HoldReasonSubCode=minor)
    assert (held.phase, held.cause) == (Phase.OVER, EndCause(cause))


def test_a_state_that_nobody_knows_says_nothing():
    assert ad(JobStatus=8).phase is Phase.UNKNOWN
    assert ad(JobStatus=8).cause is None


def test_one_without_an_exit_code_has_none():
    assert ad(JobStatus=4).cause is EndCause.UNKNOWN
    assert ad(JobStatus=4, ExitBySignal=True).cause is EndCause.UNKNOWN


def test_what_has_no_value_may_be_null():
    assert ad(HoldReason=None, RemoveReason="via condor_rm").cause is EndCause.CANCELLED


def test_an_ad_of_another_kind_is_no_listing():
    with pytest.raises(BatchError):
        ad(JobStatus="/Expr(3)/")
