from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.batch.system import htcondor
from pilotage.batch.system.model import BatchCommand, BatchOrder, EndCause, Phase
from pilotage.testing.batch import beds
from pilotage.testing.batch.life import Bed, Life, let_others_run, make, submit, until, wait
from testbed.condor import Condor
from tests.suite.beds import condor  # noqa: F401

CAN = frozenset({"time", "signal", "memory", "hold", "wait", "ended", "cause"})
STRANGER = """\
executable = /bin/true
transfer_executable = False
batch_name = odd name; of somebody
queue
"""
#: Tells who started it each time that it is started.
LONG = "echo $PPID >> began; sleep 300"


class TestHTCondor(Life):
    @pytest.fixture
    def bed(self, condor: Condor) -> Iterator[Bed]:  # noqa: F811
        # Jobs run as another than root, who makes their folders.
        before = os.umask(0)
        folder = Path(tempfile.mkdtemp(dir=condor.shared))
        folder.chmod(0o777)
        yield beds.Commands(
            htcondor.TOOLS, folder, condor.env, can=CAN, waits=("--request_disk=999999999999",),
            holds=("--hold",), stranger=BatchCommand(("condor_submit", "-terse", "-"), STRANGER),
        )  # fmt: skip
        os.umask(before)

    @pytest.mark.slow
    def test_too_much_memory(self, bed: Bed):
        # Without the kernel's help HTCondor looks only now and then.
        hog = "exec python3 -c 'import time; hog = bytearray(400 << 20); time.sleep(120)'"
        order = make(bed, hog, memory=100 << 20)
        submit(bed, order)
        (item,) = wait(bed, order, Phase.OVER, extra=60)
        assert item.cause is EndCause.MEMORY
        assert "memory usage exceeded" in item.words

    @pytest.mark.slow
    def test_one_that_is_lost_is_not_started_again(self, bed: Bed):
        order = make(bed, LONG)
        submit(bed, order)
        (starter,) = until(bed, lambda: began(order), bool)
        os.kill(starter, signal.SIGKILL)
        (item,) = wait(bed, order, Phase.OVER)
        assert item.cause is EndCause.NODE
        let_others_run(bed)
        assert began(order) == [starter]

    @pytest.mark.slow
    def test_one_whose_place_is_taken_is_not_started_again(self, bed: Bed):
        order = make(bed, LONG)
        submit(bed, order)
        (starter,) = until(bed, lambda: began(order), bool)
        (item,) = wait(bed, order, Phase.RUNNING)
        assert bed.run(BatchCommand(("condor_vacate_job", item.id))).exit == 0
        (item,) = wait(bed, order, Phase.OVER)
        assert item.cause is EndCause.PREEMPTED
        let_others_run(bed)
        assert began(order) == [starter]

    @pytest.mark.slow
    def test_one_outlives_the_scheduler(self, bed: Bed, condor: Condor):  # noqa: F811
        order = make(bed, "echo $PPID >> began; while [ ! -e go ]; do sleep 0.1; done; exit 4")
        submit(bed, order)
        until(bed, lambda: began(order), bool)
        wait(bed, order, Phase.RUNNING)
        os.kill(schedd(condor), signal.SIGKILL)
        assert bed.run(htcondor.TOOLS.listing()).exit != 0
        until(bed, lambda: bed.run(htcondor.TOOLS.listing()).exit == 0, bool, extra=60)
        Path(order.folder, "go").touch()
        (item,) = wait(bed, order, Phase.OVER, extra=60)
        assert (item.cause, item.exit) == (EndCause.EXITED, 4)
        assert len(began(order)) == 1


def began(order: BatchOrder) -> list[int]:
    """Return the processes that started the script."""
    path = Path(order.folder, "began")
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def schedd(pool: Condor) -> int:
    """Find the scheduler's process."""
    ours = f"CONDOR_CONFIG={pool.folder}/".encode()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            named = path.joinpath("comm").read_text() == "condor_schedd\n"
            if named and ours in path.joinpath("environ").read_bytes():
                return int(path.name)
        except OSError:
            continue
    raise AssertionError("no condor_schedd")
