from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system import lsf
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import KEY, ORDER, Sample, Words

REPLAY = Path(__file__).parents[2] / "replay" / "lsf"
LOST = (
    "EXIT: TERM_CWD_NOTEXIST: current working directory is not accessible or does not exist on"
    " the execution host"
)
NOW = 1794801800


def replay(name: str) -> Output:
    return Output(0, (REPLAY / name).read_text())


def item(last: str, name: str, words: str, *times: int | None, **more: object) -> BatchItem:
    began, ended = (None if time is None else 1794801700.0 + time for time in times)
    raw = {"key": f"p0123456789abc{last}", "id": name, "words": words}
    node = {"node": "node7" if began else "", "started": began, "ended": ended}
    return msgspec.convert(raw | node | more, BatchItem)


def over(last: str, name: str, words: str, cause: str, **more: object) -> BatchItem:
    return item(last, name, words, 20, 80, phase="over", cause=cause, **more)


JOBS = [
    item("a", "101", "PEND: Not enough job slot(s): 4 hosts;", None, None, phase="queued"),
    item("b", "102", "PSUSP: The job was suspended by the user while pending;", None, None,
         phase="held"),
    item("c", "103", "RUN", 20, None, phase="running"),
    over("d", "104[1]", "DONE", "exited", exit=0),
    over("d", "104[2]", "EXIT", "exited", exit=7, index=1),
    item("d", "104[3]", "RUN", 20, None, phase="running", index=2, node="node8"),
    item("d", "104[4]", "PEND: New job is waiting for scheduling;", None, None, phase="queued",
         index=3),
    over("e", "105", "EXIT: TERM_RUNLIMIT: job killed after reaching LSF run time limit",
         "timeout"),
    over("f", "106", "EXIT: TERM_MEMLIMIT: job killed after reaching LSF memory usage limit",
         "memory"),
    over("g", "107", "EXIT: TERM_OWNER: job killed by owner", "cancelled"),
    over("h", "108", "EXIT: TERM_EXTERNAL_SIGNAL: job killed by a signal external to LSF",
         "signalled", signal=9),
    over("i", "109", LOST, "node"),
    over("j", "110", "EXIT: TERM_PREEMPT: job killed after preemption", "preempted"),
    # Of the year before.
    item("k", "111", "USUSP", -27576160, None, phase="running"),
    item("l", "112", "UNKWN", None, None, phase="unknown", node="node7"),
]  # fmt: skip


class TestLSF(Words):
    listings = (
        Sample(replay("jobs.txt"), JOBS),
        Sample(replay("none.txt"), []),
        Sample(replay("empty.txt"), []),
    )
    answers = (
        (Output(0, "Job <12> is submitted to queue <normal>.\n"), "12"),
        (
            Output(0, "Please wait ...\nJob <7> is submitted to default queue <normal>.\n"),
            "7",
        ),
    )
    refusals = (
        (Output(255, "", "nosuch: No such queue. Job not submitted.\n"), True),
        (Output(255, "", "Bad resource requirement syntax. Job not submitted.\n"), True),
        (Output(255, "", "Request aborted by esub. Job not submitted.\n"), True),
        (Output(255, "", "Cannot connect to LSF. Please wait ...\n"), False),
        (
            Output(255, "", "Pending job threshold reached. Retrying in 60 seconds...\n"),
            False,
        ),
        (Output(255, "", "Batch daemon not responding ... unknown error\n"), False),
        (Output(1, "Job <12> is submitted to queue <normal>.\n", "unknown error"), False),
    )
    mapping = (
        ({"count": 3}, [f"{KEY}[1-3]", "/site/s/p0123456789abcd/out.%I"]),
        ({}, ["-J", KEY, "-rn", "-cwd", "/site/s/p0123456789abcd"]),
        ({"tasks": 2, "cpus": 4}, ["-n", "8", "span[hosts=1]"]),
        ({"nodes": 3, "tasks": 2}, ["-n", "6", "span[ptile=2]"]),
        ({"memory": 1 << 30}, ["-M", "1024MB", "rusage[mem=1024MB/host]"]),
        ({"time": 61.0}, ["-W", "2"]),
        ({"gpus": 2}, ["-gpu", "num=2"]),
        ({"queue": "q", "account": "p", "qos": "s", "reservation": "r"},
         ["-q", "q", "-P", "p", "-sla", "s", "-U", "r"]),
        ({"constraint": "type == any && mem > 5"}, ["select[type == any && mem > 5]"]),
        ({"extra": ("-app=big", "--H")}, ["-app", "big", "-H"]),
    )  # fmt: skip

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return lsf.TOOLS


@pytest.mark.parametrize(
    "changes",
    [
        {"step": True},
        {"folder": "/site/%J"},
        {"constraint": "any] rusage[mem=1"},
        {"extra": ("-J=other",)},
        {"extra": ("-r",)},
        {"extra": ("-K",)},
        {"extra": ("-app=-r",)},
    ],
)
def test_what_would_not_be_as_it_is_meant_is_refused(changes: dict[str, object]):
    with pytest.raises(BatchError) as caught:
        lsf.TOOLS.submit(msgspec.structs.replace(ORDER, **changes))
    assert caught.value.final


def test_it_keeps_no_history():
    assert lsf.TOOLS.history(0.0) is None


def record(**more: str) -> BatchItem:
    fields = {"JOBID": "7", "JOB_NAME": KEY, "STAT": "EXIT"} | more
    text = {"COMMAND": "bjobs", "JOBS": 1, "RECORDS": [fields]}
    (found,) = lsf.read(f"{NOW}\n{msgspec.json.encode(text).decode()}")
    return found


@pytest.mark.parametrize(
    "reason, code, cause",
    [
        ("", "3", "exited"), ("", "143", "signalled"), ("", "", "unknown"),
        ("TERM_UNKNOWN: unknown", "3", "exited"), ("TERM_ADMIN: by root", "130", "cancelled"),
        ("TERM_ZOMBIE: job exited while LSF was not available", "0", "node"),
        ("TERM_SWAP", "137", "memory"),
    ],
)  # fmt: skip
def test_ends(reason: str, code: str, cause: str):
    assert record(EXIT_REASON=reason, EXIT_CODE=code).cause is EndCause(cause)


@pytest.mark.parametrize(
    "text, time",
    [
        ("Nov 16 04:03", 1794801780.0),
        ("Nov 16 04:03:05", 1794801785.0),
        ("Nov 16 04:03:05 2026 L", 1794801785.0),
        ("Nov 17 04:00 E", 1794801600.0 + 86400),
        ("Nov 18 04:00", 1794801600.0 - 363 * 86400),
        ("-", None),
    ],
)
def test_times(text: str, time: float | None):
    assert record(FINISH_TIME=text).ended == time


def test_ids_may_hold_the_number():
    assert (record(JOBID="7[3]").id, record(JOBID="7[3]").index) == ("7[3]", 2)
    assert record(JOBID="7", JOBINDEX="3").id == "7[3]"


def test_a_listing_that_has_lost_some_is_no_listing():
    with pytest.raises(BatchError, match="0 of 2"):
        lsf.read(f'{NOW}\n{{"COMMAND":"bjobs","JOBS":2,"RECORDS":[]}}')


@pytest.mark.parametrize("state", ["ZOMBI", "UNKWN", "NEW"])
def test_a_state_that_nobody_knows_says_nothing(state: str):
    assert record(STAT=state).phase is Phase.UNKNOWN
