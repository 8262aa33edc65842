from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.batch.system.gridengine import TOOLS
from pilotage.batch.system.model import BatchCommand, BatchOrder, EndCause, Phase
from pilotage.testing.batch import beds, life
from pilotage.testing.batch.life import Bed, Life, let_others_run, make, submit, until, wait
from testbed.gridengine import GridEngine as Cluster
from tests.suite.beds import gridengine  # noqa: F401

CAN = frozenset({"time", "signal", "hold", "wait", "ended", "cause"})


class TestGridEngine(Life):
    @pytest.fixture
    def bed(self, gridengine: Cluster, tmp_path: Path) -> Bed:  # noqa: F811
        return beds.Commands(
            TOOLS, tmp_path, beds.environment(gridengine.env), can=CAN, patience=90,
            waits=("-a=204001010000",), holds=("-h",),
            stranger=BatchCommand(("qsub", "-N", "odd", "-o", "/dev/null", "-j", "y"), "true\n"),
        )  # fmt: skip

    @pytest.mark.slow
    @pytest.mark.parametrize("code", [99, 100])
    def test_no_code_has_it_run_again(self, bed: Bed, code: int):
        order = make(bed, f"echo x >> began; exit {code}")
        submit(bed, order)
        (item,) = wait(bed, order, Phase.OVER)
        assert (item.cause, item.exit) == (EndCause.EXITED, 1)
        let_others_run(bed)
        assert began(order) == 1

    @pytest.mark.slow
    def test_it_is_told_before_it_is_killed(self, bed: Bed):
        script = 'trap "echo told > told; exit 0" USR2; touch set; sleep 300 & wait'
        order = make(bed, f"exec sh -c '{script}'")
        submit(bed, order)
        (item,) = wait(bed, order, Phase.RUNNING)
        until(bed, lambda: Path(order.folder, "set").exists(), bool)
        assert bed.run(bed.batch.cancel([item.id])).exit == 0
        (item,) = wait(bed, order, Phase.OVER)
        assert Path(order.folder, "told").exists()

    @pytest.mark.slow
    def test_what_cannot_start_is_held_and_says_why(self, bed: Bed):
        order = make(bed, "exit 0")
        Path(order.folder, "script.sh").unlink()
        Path(order.folder).rmdir()
        submit(bed, order)
        (item,) = wait(bed, order, Phase.HELD)
        assert "No such file or directory" in item.words
        assert bed.run(bed.batch.cancel([item.id])).exit == 0

    @pytest.mark.slow
    def test_a_master_that_is_away_lists_nothing(self, bed: Bed, gridengine: Cluster):  # noqa: F811
        order = make(bed, f"{life.STAY}; exit 6")
        submit(bed, order)
        wait(bed, order, Phase.RUNNING)
        gridengine.stop_master()
        try:
            said = bed.run(bed.batch.listing())
            assert said.exit != 0
            assert bed.run(bed.batch.cancel(["1"])).exit != 0
            life.let_go(order)
        finally:
            gridengine.start_master()
            # Or it looks for the master only once a minute.
            gridengine.restart_node()
        (item,) = wait(bed, order, Phase.OVER, extra=120)
        assert (item.cause, item.exit) == (EndCause.EXITED, 6)


def began(order: BatchOrder) -> int:
    return len(Path(order.folder, "began").read_text().split())
