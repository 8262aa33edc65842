"""The double behaves like Slurm unless it is told not to; each of its faults is what it says."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.batch.system import slurm
from pilotage.batch.system.model import BatchCommand, BatchError, Phase
from pilotage.testing.batch import beds
from pilotage.testing.batch.life import Bed, Life, find, make, submit, until, wait
from tests.rigs.cluster.misbehaving import faults
from tests.rigs.cluster.misbehaving.double import Misbehaving


class Trial(beds.Commands):
    """The double, as a bed."""

    def __init__(self, double: Misbehaving, folder: Path) -> None:
        can = frozenset({"signal", "step", "ended", "cause"})
        script = "#!/bin/sh\ntrue\n"
        words = ("sbatch", "--job-name=odd name", f"--chdir={folder}", "--parsable")
        super().__init__(
            slurm.TOOLS, folder, double.env, can=can, stranger=BatchCommand(words, script)
        )
        self.double = double


@pytest.fixture
def trial(tmp_path: Path) -> Iterator[Trial]:
    folder = tmp_path / "s"
    folder.mkdir()
    with Misbehaving(tmp_path / "double", scale=0.01) as double:
        yield Trial(double, folder)


class TestBehaving(Life):
    @pytest.fixture
    def bed(self, trial: Trial) -> Bed:
        return trial


TAKEN = {
    "late_accept": 1, "error_accept": 1, "junk_accept": 1, "silent_accept": 1, "id_error": 1,
    "killed_accept": 1, "late_refuse": 0, "error": 0, "refuse": 0, "junk": 0, "killed": 0,
    "vanish": 0, "hide": 1, "twice": 2, "reuse": 1, "slow": 1,
}  # fmt: skip
GOOD = {"late_accept", "vanish", "hide", "twice", "reuse", "slow"}


def test_every_fault_is_tried():
    assert set(TAKEN) == set(faults.SUBMIT)


@pytest.mark.parametrize("fault", sorted(TAKEN))
def test_submitting(trial: Trial, fault: str):
    trial.double.plan("sbatch", fault)
    order = make(trial, "echo ran >> ran")
    if fault in GOOD:
        assert submit(trial, order)
    else:
        with pytest.raises(BatchError) as caught:
            submit(trial, order)
        assert caught.value.final is (fault == "refuse")
    assert len(trial.double.accepted()) == TAKEN[fault]
    assert trial.double.left() == []
    ran = Path(order.folder, "ran")
    if TAKEN[fault]:
        until(
            trial,
            lambda: ran.read_text() if ran.exists() else "",
            lambda it: it.count("ran") == TAKEN[fault],
        )
    unseen = 2 if fault == "hide" else 0
    for _ in range(unseen):
        assert find(trial, order.key) == []
    assert len(find(trial, order.key)) == TAKEN[fault]


def test_one_that_is_late_has_taken_the_job_all_the_same(tmp_path: Path):
    folder = tmp_path / "s"
    folder.mkdir()
    with Misbehaving(tmp_path / "double", scale=1) as double:
        trial = Trial(double, folder)
        double.plan("sbatch", "late_accept")
        order = make(trial, "true")
        call = trial.batch.submit(order)
        with subprocess.Popen(call.argv, stdin=subprocess.PIPE, env=trial.env) as late:
            assert late.stdin is not None
            late.stdin.write(call.input.encode())
            late.stdin.close()
            until(trial, double.accepted, len)
            late.kill()
        assert len(find(trial, order.key)) == 1


def test_ids_are_used_again(trial: Trial):
    first = make(trial, "exit 1")
    name = submit(trial, first)
    wait(trial, first, Phase.OVER)
    trial.double.plan("sbatch", "reuse")
    second = make(trial, "exit 2")
    assert submit(trial, second) == name
    wait(trial, second, Phase.OVER)
    assert [item.exit for key in (first.key, second.key) for item in find(trial, key)] == [1, 2]


@pytest.mark.parametrize("fault", ["error", "nothing", "truncated", "header", "junk", "bytes"])
def test_listings_that_show_that_they_are_none(trial: Trial, fault: str):
    orders = [make(trial, "sleep 60", count=2) for _ in range(2)]
    for order in orders:
        submit(trial, order)
    trial.double.plan("squeue", fault)
    with pytest.raises(BatchError) as caught:
        find(trial, orders[0].key)
    assert not caught.value.final
    assert len(find(trial, orders[0].key)) == 2


def test_listings_that_lie(trial: Trial):
    orders = [make(trial, "sleep 60") for _ in range(4)]
    for order in orders:
        submit(trial, order)

    def seen() -> int:
        return len(trial.batch.listed(trial.run(trial.batch.listing())))

    assert seen() == 4
    trial.double.plan("squeue", "empty")
    trial.double.plan("squeue", "short")
    assert [seen(), seen(), seen()] == [0, 2, 4]
    submit(trial, make(trial, "sleep 60"))
    trial.double.plan("squeue", "stale")
    assert [seen(), seen()] == [4, 5]
    trial.double.plan("squeue", "unknown")
    found = trial.batch.listed(trial.run(trial.batch.listing()))
    assert {item.phase for item in found} == {Phase.UNKNOWN}
    assert {item.words for item in found} == {"WONDERING"}


def test_calling_off(trial: Trial):
    order = make(trial, "sleep 60", count=3)
    submit(trial, order)
    items = wait(trial, order, Phase.RUNNING)
    call = trial.batch.cancel([item.id for item in items])
    trial.double.plan("scancel", "deaf")
    trial.double.plan("scancel", "error")
    assert trial.run(call).exit == 0
    assert trial.run(call).exit == 1
    time.sleep(0.3)
    assert {item.phase for item in find(trial, order.key)} == {Phase.RUNNING}
    trial.double.plan("scancel", "error_done")
    assert trial.run(call).exit == 1
    wait(trial, order, Phase.OVER)


def test_histories(tmp_path: Path):
    folder = tmp_path / "s"
    folder.mkdir()
    with Misbehaving(tmp_path / "double", scale=0.01, accounting=True) as double:
        trial = Trial(double, folder)
        order = make(trial, 'exit "$i"', count=2)
        submit(trial, order)
        wait(trial, order, Phase.OVER)

        def history() -> list[tuple[int, int | None]]:
            call = trial.batch.history(0)
            assert call is not None
            found = trial.batch.remembered(trial.run(call))
            return [(item.index, item.exit) for item in found]

        assert history() == [(0, 0), (1, 1)]
        for fault in ("error", "nothing", "truncated", "header", "junk", "bytes"):
            double.plan("sacct", fault)
            with pytest.raises(BatchError):
                history()
        double.plan("sacct", "empty")
        assert history() == []


def test_plans_are_checked(trial: Trial):
    with pytest.raises(ValueError, match="knows"):
        trial.double.plan("squeue", "late_accept")
    trial.double.plan("squeue", "junk", times=3)
    assert trial.double.left() == ["squeue junk"] * 3
    trial.double.clear()
    assert trial.double.left() == []
