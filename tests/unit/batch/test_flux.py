from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import flux
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import KEY, ORDER, Sample, Words

REPLAY = Path(__file__).parents[2] / "replay" / "flux"
FIRST = 361295786278912
FOLDER = "/site/s/p0123456789abcd"


def replay(name: str) -> Output:
    return Output(0, (REPLAY / name).read_text())


def item(
    last: str, words: str, began: float | None, ended: float | None, **more: object
) -> BatchItem:
    raw = {"key": f"p0123456789abc{last}", "id": str(FIRST + ord(last) - ord("a")), "words": words}
    node = {"node": "node7" if began else "", "started": began, "ended": ended}
    return msgspec.convert(raw | node | more, BatchItem)


def over(last: str, words: str, cause: str, **more: object) -> BatchItem:
    return item(last, words, 1794801720.5, 1794801780.25, phase="over", cause=cause, **more)


JOBS = [
    item("a", "SCHED: insufficient resources", None, None, phase="queued"),
    item("b", "SCHED: its urgency is 0", None, None, phase="held"),
    item("c", "RUN", 1794801720.5, None, phase="running"),
    item("d", "CLEANUP", 1794801720.5, None, phase="running"),
    over("e", "COMPLETED", "exited", exit=0),
    over("f", "FAILED", "exited", exit=7),
    over("g", "FAILED", "signalled", signal=9),
    over("h", "TIMEOUT: timeout resource allocation expired", "timeout"),
    over("i", "CANCELED: cancel", "cancelled"),
    over("j", "FAILED: node-failure node7 (rank 3) is lost", "node"),
    item("k", "CANCELED: cancel preempted by job f2oLkTLb", None, 1794801780.25, phase="over",
         cause="preempted"),
    over("l", "FAILED", "signalled", signal=15),
    item("m", "DEPEND", None, None, phase="queued"),
]  # fmt: skip


class TestFlux(Words):
    listings = (Sample(replay("jobs.txt"), JOBS), Sample(replay("none.txt"), []))
    histories = (Sample(replay("jobs.txt"), JOBS),)
    answers = (
        (Output(0, "ƒ2oLkTLb\n"), "68484595712"),
        (Output(0, "f2oLkTLb\n"), "68484595712"),
        (Output(0, "361295786278912\n"), "361295786278912"),
    )
    refusals = (
        (Output(1, "", "flux-submit: ERROR: [Errno 22] Invalid queue 'x' specified"), True),
        (Output(1, "", "flux-submit: ERROR: unsatisfiable request"), True),
        (Output(1, "", "flux-submit: ERROR: Unable to connect to Flux: ENOENT"), False),
        (
            Output(1, "", "flux-submit: ERROR: job submission is disabled: maintenance"),
            False,
        ),
        (Output(1, "ƒ2oLkTLb\n", "invalid"), False),
    )
    mapping = (
        ({"tasks": 2, "cpus": 4, "gpus": 1},
         ["submit", "--ntasks=1", "--cores-per-task=8", "--gpus-per-task=1", "/bin/sh",
          f"{FOLDER}/script.sh"]),
        ({"nodes": 2, "cpus": 4, "gpus": 1},
         ["batch", "--nodes=2", "--nslots=2", "--cores-per-slot=4", "--gpus-per-slot=1"]),
        ({"time": 90.5}, ["--time-limit=91s"]),
        ({"queue": "q", "account": "b", "constraint": "gpu&rack1"},
         ["--queue=q", "--setattr=system.bank=b", "--requires=gpu&rack1"]),
        ({"extra": ("--urgency=0", "--exclusive")}, ["--urgency=0", "--exclusive"]),
        ({}, [f"--job-name={KEY}", f"--cwd={FOLDER}", f"--output={FOLDER}/out.0"]),
    )  # fmt: skip

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return flux.TOOLS


@pytest.mark.parametrize(
    "changes",
    [
        {"count": 2},
        {"step": True},
        {"qos": "high"},
        {"reservation": "mine"},
        {"folder": "/site/{{id}}"},
        {"extra": ("--cc=0-9",)},
        {"extra": ("-N2",)},
        {"extra": ("--job-name=x",)},
    ],
)
def test_what_would_not_be_as_it_is_meant_is_refused(changes: dict[str, object]):
    with pytest.raises(BatchError) as caught:
        flux.TOOLS.submit(msgspec.structs.replace(ORDER, **changes))
    assert caught.value.final


def job(**more: object) -> BatchItem:
    fields = {"id": 5, "name": KEY, "state": "INACTIVE", "result": "FAILED"} | more
    (found,) = flux.read(msgspec.json.encode({"jobs": [fields]}).decode())
    return found


@pytest.mark.parametrize(
    "exception, cause",
    [
        (("exec", "lost contact with job shell"), "node"),
        (("exec", "task was killed: out of memory"), "memory"),
        (("timeout", "expired"), "timeout"),
        (("cancel", "by an operator"), "cancelled"),
    ],
)
def test_exceptions(exception: tuple[str, str], cause: str):
    raised = {"occurred": True, "severity": 0, "type": exception[0], "note": exception[1]}
    assert job(exception=raised).cause is EndCause(cause)


def test_an_exception_that_is_no_end_says_nothing():
    raised = {"occurred": True, "severity": 5, "type": "exec", "note": "slow"}
    assert job(exception=raised, returncode=3).cause is EndCause.EXITED


def test_one_without_a_code_has_none():
    assert job().cause is EndCause.UNKNOWN


def test_a_state_that_nobody_knows_says_nothing():
    assert job(state="LIMBO").phase is Phase.UNKNOWN
