from __future__ import annotations

import time
from pathlib import Path

import msgspec
import pytest

from pilotage.batch.system.model import (
    BatchCommand,
    BatchError,
    BatchOrder,
    BatchSystem,
    EndCause,
    Output,
    Phase,
)
from pilotage.batch.system.slurm import TOOLS
from pilotage.testing.batch import beds
from pilotage.testing.batch.life import Bed, Life, find, make, submit, until, wait
from pilotage.testing.batch.words import ORDER, Sample, Words, recorded
from testbed.slurm import Slurm as Cluster
from tests.suite.beds import slurm, slurm_accounting  # noqa: F401

RECORDED = Path(__file__).parent / "batch/recorded"
CAN = frozenset({"time", "signal", "hold", "wait", "step", "ended", "cause"})
STRANGE = BatchCommand(
    ("sbatch", "--job-name=odd name; $(id)\nof two lines", "--output=/dev/null"),
    "#!/bin/sh\ntrue\n",
)
END = "\nend of listing\n"


def _bed(cluster: Cluster, folder: Path) -> beds.Commands:
    return beds.Commands(
        TOOLS, folder, cluster.environment(), can=CAN, waits=("--begin=now+1hour",),
        holds=("--hold",), stranger=STRANGE,
    )  # fmt: skip


class TestSlurm(Life):
    @pytest.fixture
    def bed(self, slurm: Cluster, tmp_path: Path) -> Bed:  # noqa: F811
        return _bed(slurm, tmp_path)

    def hasten(self, bed: Bed, order: BatchOrder, number: str) -> None:
        """See that a minute was asked for, which is the least, and move its end to now."""
        wait(bed, order, Phase.RUNNING)
        assert (
            "TimeLimit=00:01:00" in bed.run(BatchCommand(("scontrol", "show", "job", number))).out
        )
        said = bed.run(BatchCommand(("scontrol", "update", f"jobid={number}", "endtime=now+10")))
        assert said.exit == 0, said

    def test_there_is_no_history_without_accounting(self, bed: Bed):
        call = bed.batch.history(time.time() - 60)
        assert call is not None
        said = bed.run(call)
        assert said.exit == 1
        assert bed.batch.remembered(said) == []

    @pytest.mark.parametrize(
        "changes",
        [
            {"queue": "nowhere"}, {"memory": 1 << 45}, {"constraint": "fast"}, {"gpus": 3},
            {"reservation": "nobody"}, {"extra": ("--bogus",)}, {"extra": ("--begin=whenever",)},
            {"count": 100_000},
        ],
    )  # fmt: skip
    def test_what_never_can_be_is_refused_for_ever(self, bed: Bed, changes: dict[str, object]):
        order = make(bed, "true", **changes)
        with pytest.raises(BatchError) as caught:
            submit(bed, order)
        assert caught.value.final, caught.value
        # Slurm lists some of what it refused as failed: it never ran.
        assert {item.cause for item in find(bed, order.key)} <= {EndCause.NODE}

    @pytest.mark.parametrize("changes", [{"nodes": 40}, {"cpus": 400}, {"time": 1e6}])
    def test_what_a_partition_does_not_have_is_held(self, bed: Bed, changes: dict[str, object]):
        order = make(bed, "true", **changes)
        submit(bed, order)
        (item,) = wait(bed, order, Phase.HELD)
        assert "Partition" in item.words
        bed.run(bed.batch.cancel([item.id]))

    def test_a_controller_that_is_away_comes_back(self, bed: Bed, slurm: Cluster):  # noqa: F811
        order = make(bed, "sleep 0.5; exit 4")
        submit(bed, order)
        slurm.stop_controller()
        try:
            with pytest.raises(BatchError) as caught:
                find(bed, order.key)
            assert not caught.value.final
            with pytest.raises(BatchError) as caught:
                submit(bed, make(bed, "true"))
            assert not caught.value.final
        finally:
            slurm.start_controller()
        (item,) = wait(bed, order, Phase.OVER, extra=60)
        assert (item.cause, item.exit) == (EndCause.EXITED, 4)

    def test_a_node_that_fails(self, bed: Bed, slurm: Cluster):  # noqa: F811
        order = make(bed, "sleep 300", extra=("--nodelist=n4",))
        submit(bed, order)
        wait(bed, order, Phase.RUNNING)
        slurm.fail_node("n4")
        try:
            # It is not put into the queue again.
            (item,) = wait(bed, order, Phase.OVER, extra=60)
        finally:
            slurm.restore_node("n4")
        assert item.cause is EndCause.NODE

    def test_an_array_of_which_nothing_is_left_is_no_job(self, bed: Bed):
        order = bed.waiting(make(bed, "true", count=3))
        submit(bed, order)
        for item in find(bed, order.key):
            bed.run(bed.batch.cancel([item.id]))
        assert until(bed, lambda: find(bed, order.key), lambda found: not found) == []

    def test_filters_of_the_user_do_not_count(self, slurm: Cluster, tmp_path: Path):  # noqa: F811
        bed = _bed(slurm, tmp_path)
        bed.env.update(SQUEUE_PARTITION="long", SQUEUE_STATES="RUNNING", SBATCH_WAIT="1")
        order = bed.waiting(make(bed, "true"))
        submit(bed, order)
        (item,) = find(bed, order.key)
        bed.run(bed.batch.cancel([item.id]))

    def test_a_folder_with_odd_letters(self, slurm: Cluster, tmp_path: Path):  # noqa: F811
        odd = tmp_path / "50%a é 'x' $HOME"
        odd.mkdir()
        bed = _bed(slurm, odd)
        order = make(bed, "pwd")
        submit(bed, order)
        wait(bed, order, Phase.OVER)
        until(bed, lambda: Path(order.folder, "out.0").exists(), bool)
        assert Path(order.folder, "out.0").read_text() == f"{order.folder}\n"


class TestAccounting:
    @pytest.fixture
    def bed(self, slurm_accounting: Cluster, tmp_path: Path) -> Bed:  # noqa: F811
        return _bed(slurm_accounting, tmp_path)

    def test_what_is_over_is_remembered(self, bed: Bed):
        bed.stranger()
        orders = [
            make(bed, "exit 7"), make(bed, "kill -9 $$"), make(bed, 'exit "$i"', count=3),
        ]  # fmt: skip
        for order in orders:
            submit(bed, order)
        for order in orders:
            wait(bed, order, Phase.OVER)

        def history() -> list[tuple[str, int, object, object, object]]:
            call = bed.batch.history(time.time() - 600)
            assert call is not None
            found = bed.batch.remembered(bed.run(call))
            keys = [order.key for order in orders]
            return sorted(
                (item.key, item.index, item.cause, item.exit, item.signal)
                for item in found
                if item.key in keys and item.phase is Phase.OVER
            )

        one, two, three = (order.key for order in orders)
        assert until(bed, history, lambda found: len(found) == 5) == [
            (one, 0, EndCause.EXITED, 7, None),
            (two, 0, EndCause.SIGNALLED, None, 9),
            (three, 0, EndCause.EXITED, 0, None),
            (three, 1, EndCause.EXITED, 1, None),
            (three, 2, EndCause.EXITED, 2, None),
        ]


class TestWords(Words):
    listings = (recorded(RECORDED, "slurm-squeue"), Sample(Output(0, END), ()))
    histories = (
        recorded(RECORDED, "slurm-sacct"),
        Sample(Output(0, END), ()),
        Sample(Output(1, "", "Slurm accounting storage is disabled\n"), ()),
    )
    answers = ((Output(0, "12\n"), "12"), (Output(0, "12;cluster\n"), "12"))
    refusals = (
        (Output(1, "", "sbatch: error: invalid partition specified: nope\n"), True),
        (Output(1, "", "sbatch: error: Memory specification can not be satisfied\n"), True),
        (Output(1, "", "sbatch: error: Batch job submission failed: Invalid feature spec"), True),
        (Output(255, "", "sbatch: unrecognized option '--bogus'\n"), True),
        (
            Output(1, "", "sbatch: error: Batch job submission failed: Invalid account or acc"),
            True,
        ),
        (
            Output(1, "", "sbatch: error: QOSMaxCpuPerJobLimit\nsbatch: error: Batch job "
                 "submission failed: Job violates accounting/QOS policy (job submit limit, user's "
                 "size and/or time limits)"),
            True,
        ),
        (
            Output(1, "", "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job "
                 "submission failed: Job violates accounting/QOS policy (job submit limit, user's "
                 "size and/or time limits)"),
            False,
        ),
        (
            Output(1, "", "sbatch: error: Batch job submission failed: Socket timed out on send"),
            False,
        ),
        (
            Output(1, "", "sbatch: error: Batch job submission failed: Unable to contact slurm"),
            False,
        ),
        (Output(1, "12\n", "sbatch: error: Invalid partition name specified"), False),
    )  # fmt: skip
    mapping = (
        ({}, ("--parsable", "--no-requeue", "--nodes=1", f"--job-name={ORDER.key}")),
        ({"count": 3}, ("--array=0-2", f"--output={ORDER.folder}/out.%a")),
        (
            {"nodes": 2, "tasks": 4, "cpus": 8},
            ("--nodes=2", "--ntasks-per-node=4", "--cpus-per-task=8"),
        ),
        ({"memory": (1 << 30) + 1, "gpus": 2}, ("--mem=1025M", "--gres=gpu:2")),
        ({"time": 61.0}, ("--time=2",)),
        ({"queue": "long", "account": "a", "qos": "high"}, ("--partition=long", "--account=a")),
        ({"constraint": "a&b", "reservation": "r"}, ("--constraint=a&b", "--reservation=r")),
        ({"extra": ("--exclusive", "--licenses=a:1")}, ("--exclusive", "--licenses=a:1")),
    )

    @pytest.fixture
    def batch(self) -> BatchSystem:
        return TOOLS

    def test_what_makes_it_ours_comes_last(self, batch: BatchSystem):
        order = msgspec.structs.replace(ORDER, extra=("--job-name=other", "--requeue"))
        argv = batch.submit(order).argv
        for name in ("--job-name=", "--no-requeue"):
            ours = [place for place, word in enumerate(argv) if word.startswith(name)][-1]
            assert ours > argv.index("--requeue")

    def test_those_of_one_array_are_called_off_together(self, batch: BatchSystem):
        ids = ["12_0", "12_1", "12_2", "12_7", "9", "13_5"]
        assert batch.cancel(ids).argv == ("scancel", "--quiet", "9", "12_[0-2,7]", "13_5")

    def test_a_step_reads_its_script_from_the_folder(self, batch: BatchSystem):
        call = batch.submit(msgspec.structs.replace(ORDER, step=True))
        assert call.detach
        assert not call.input
        assert call.argv[-2:] == ("/bin/sh", f"{ORDER.folder}/script.sh")
        with pytest.raises(BatchError):
            batch.submit(msgspec.structs.replace(ORDER, step=True, count=2))
