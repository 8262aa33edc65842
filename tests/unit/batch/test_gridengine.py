from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pilotage.batch.system import gridengine, words
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.testing.batch.words import ORDER, Sample, Words

REPLAY = Path(__file__).parents[2] / "replay" / "gridengine"
END = "\nend of listing\n"
EMPTY = """\
<?xml version='1.0'?>
<job_info  xmlns:xsd="http://example.org/qstat.xsd">
  <queue_info>
  </queue_info>
  <job_info>
  </job_info>
</job_info>
"""
WHY = (
    "Eqw: 11/16/2026 04:03:18 [0:22116]: error: can't chdir to /site/s/p0123456789abce:"
    " No such file or directory"
)
LIMIT = "37 : qmaster enforced h_rt, h_cpu, or h_vmem limit"


def item(last: str, name: str, words: str, *times: int | None, **more: object) -> BatchItem:
    began, ended = (None if time is None else 1794801790.0 + time for time in times)
    index = int(name.partition(".")[2] or 1) - 1
    raw = {"key": f"p0123456789abc{last}", "id": name, "index": index, "words": words}
    node = {"node": "localhost" if began else "", "started": began, "ended": ended}
    return msgspec.convert(raw | node | more, BatchItem)


QSTAT = [
    item("a", "5.4", "dr", 9, None, phase="running"),
    item("a", "5.5", "r", 9, None, phase="running"),
    item("a", "5.6", "r", 10, None, phase="running"),
    item("a", "5.7", "r", 13, None, phase="running"),
    item("a", "5.8", "qw", None, None, phase="queued"),
    item("a", "5.9", "qw", None, None, phase="queued"),
    item("e", "4", WHY, None, None, phase="held"),
    item("f", "1", "qw", None, None, phase="queued"),
    *(item("d", f"2.{task}", "hqw", None, None, phase="held") for task in range(1, 6)),
]
QACCT = [
    item("a", "5.1", "", 8, 8, phase="over", cause="exited", exit=0),
    item("a", "5.2", "", 8, 8, phase="over", cause="exited", exit=7),
    item("a", "5.3", "100 : assumedly after job", 9, 9, phase="over", cause="signalled", signal=9),
    item("a", "5.4", "", 9, 22, phase="over", cause="cancelled"),
    item("b", "3", LIMIT, 7, 12, phase="over", cause="timeout"),
]


def replay(name: str) -> Output:
    return Output(0, (REPLAY / name).read_text())


class TestGridEngine(Words):
    listings = (Sample(replay("qstat.txt"), QSTAT), Sample(Output(0, EMPTY + END), []))
    histories = (
        Sample(replay("qacct.txt"), QACCT),
        Sample(Output(0, END), []),
        Sample(Output(0, f"no jobs running since startup\nqacct ended with 1\n{END}"), []),
    )
    answers = ((Output(0, "12\n"), "12"), (Output(0, "12.1-499:1\n"), "12"))
    refusals = (
        (
            Output(1, "", "Unable to run job: Job was rejected because job requests unknown queue"),
            True,
        ),
        (Output(1, "", 'Unable to run job: unknown resource "nores"\nExiting.\n'), True),
        (
            Output(1, "", "Unable to run job: the advance reservation id 77 is invalid\n"),
            True,
        ),
        (Output(2, "", 'qsub: invalid option argument "--bad"\n'), True),
        (
            Output(1, "", "error: commlib error: got select error (Connection refused)"),
            False,
        ),
        (
            Output(1, "", "Unable to run job: job rejected: it would exceed the limit of 5 jobs"),
            False,
        ),
        (Output(1, "12\n", "Unable to run job: rejected"), False),
    )
    mapping = (
        ({"count": 3}, ["-t", "1-3", "/site/s/p0123456789abcd/out.$TASK_ID"]),
        ({"tasks": 2, "cpus": 4}, ["-pe", "smp", "8"]),
        ({"memory": 8 << 30, "cpus": 4}, ["-l", f"h_vmem={2 << 30}"]),
        ({"time": 90.5}, ["-l", "h_rt=91"]),
        ({"gpus": 2}, ["gpu=2"]),
        ({"queue": "all.q", "account": "physics", "reservation": "7"},
         ["-q", "all.q", "-P", "physics", "-ar", "7"]),
        ({"constraint": "arch=lx-amd64"}, ["arch=lx-amd64"]),
        ({"nodes": 2, "tasks": 4, "extra": ("-pe=mpi", "--l=big=1", "-h")},
         ["mpi", "8", "-l", "big=1", "-h", "-r", "n", "-notify"]),
    )  # fmt: skip

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return gridengine.TOOLS


def test_options_may_be_repeated():
    order = msgspec.structs.replace(ORDER, extra=("-l=big=1", "-l=fast=1", "-pe=mpi"))
    argv = list(gridengine.TOOLS.submit(order).argv)
    assert [argv[at + 1] for at, word in enumerate(argv) if word == "-l"] == ["big=1", "fast=1"]
    assert argv[argv.index("-pe") + 1] == "mpi"


@pytest.mark.parametrize(
    "changes",
    [
        {"nodes": 2},
        {"qos": "high"},
        {"step": True},
        {"folder": "/site/a:b"},
        {"folder": "/site/$HOME"},
        {"extra": ("-t=1-9",)},
        {"extra": ("-sync=y",)},
        {"extra": ("-q=-l",)},
    ],
)
def test_what_would_not_be_as_it_is_meant_is_refused(changes: dict[str, object]):
    with pytest.raises(BatchError) as caught:
        gridengine.TOOLS.submit(msgspec.structs.replace(ORDER, **changes))
    assert caught.value.final


@pytest.mark.parametrize(
    "state, phase",
    [
        ("qw", "queued"), ("Rq", "queued"), ("hqw", "held"), ("hRq", "held"), ("Eqw", "held"),
        ("r", "running"), ("t", "running"), ("Rr", "running"), ("hr", "running"), ("s", "running"),
        ("S", "running"), ("T", "running"), ("dr", "running"), ("dqw", "running"), ("", "unknown"),
        ("x", "unknown"), ("z", "unknown"),
    ],
)  # fmt: skip
def test_states(state: str, phase: str):
    assert gridengine.phase(state) is Phase(phase)


def record(**more: str) -> list[BatchItem]:
    now = "Mon Nov 16 04:03:19 2026"
    fields = {
        "jobname": "p0123456789abcd", "jobnumber": "5", "taskid": "undefined", "failed": "0",
        "exit_status": "0", "start_time": now, "end_time": now,
    } | more  # fmt: skip
    return gridengine.read_past(
        "=====\n" + "".join(f"{name} {text}\n" for name, text in fields.items())
    )


@pytest.mark.parametrize("failed", ["11  : before job", "25  : rescheduling", "28  : changing"])
def test_what_will_be_tried_again_is_not_over(failed: str):
    assert record(failed=failed) == []


def test_what_never_began_is_not_over():
    assert record(failed="11", start_time="-/-", end_time="-/-") == []


def test_one_code_stands_for_two_limits():
    both = {"failed": LIMIT, "category": "-l h_rt=60,h_vmem=1G", "exit_status": "137 (Killed)"}
    assert [item.cause for item in record(ru_wallclock="60s", **both)] == [EndCause.TIMEOUT]
    assert [item.cause for item in record(ru_wallclock="9.500s", **both)] == [EndCause.MEMORY]
    assert [item.cause for item in record(failed=LIMIT)] == [EndCause.TIMEOUT]


def test_an_unknown_failure_is_the_nodes():
    assert [item.cause for item in record(failed="97  : what")] == [EndCause.NODE]


def test_times_of_other_versions():
    for text in ("11/16/2026 04:03:19", "11/16/2026 04:03:19.000"):
        assert [item.ended for item in record(end_time=text)] == [1794801799.0]


def test_accounting_that_fails_is_no_history():
    with pytest.raises(BatchError, match="permission denied"):
        gridengine.read_past("permission denied\nqacct ended with 1\n")


@given(st.lists(st.integers(0, 10_000), min_size=1))
def test_numbers_come_back(numbers: list[int]):
    assert list(words.indices(",".join(map(str, numbers)))) == numbers


def test_spans():
    assert list(words.indices("1,4-6,10-20:5")) == [1, 4, 5, 6, 10, 15, 20]


@pytest.mark.parametrize("junk", ["a", "1-", "1-2:0", "1-99999999", "-1", "1,,2"])
def test_what_is_no_span(junk: str):
    with pytest.raises(ValueError, match=junk):
        list(words.indices(junk))
