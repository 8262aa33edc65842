"""What a review broke: odd names, dying starters, broken books, long chains, full disks."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import anyio
import pytest

from pilotage.event import records
from pilotage.job import purge
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.rule import intake
from tests.rigs.project.project import Rig


async def test_a_limit_key_may_hold_any_bytes(tmp_path: Path) -> None:
    rules = '[rule.r]\nfiles = "in/**/*"\nrun = ["true"]\nlimit = {key = "{dir}:x", most = 1}\n'
    rig = Rig(tmp_path, rules)
    async with rig.live():
        folder = tmp_path / "in" / os.fsdecode(b"od\xffd:2")
        folder.mkdir(parents=True)
        for name in (b"a", b"b\xfe"):
            (folder / os.fsdecode(name)).touch()
        await rig.until(lambda: len(rig.jobs("r", State.DONE)) == 2)


async def test_any_number_of_broken_books_leave_the_others_in_force(tmp_path: Path) -> None:
    rig = Rig(tmp_path, '[rule.r]\nfiles = "in/*"\nrun = ["true"]\n')
    (tmp_path / "in").mkdir()
    async with rig.live():
        for name in ("x.toml", "y.toml", "z.toml"):
            rig.rules('[rule.r]\nfiles = "in/*"\nrun = ["false"]\n', name)
        (tmp_path / "rules" / "folder.toml").mkdir()
        (tmp_path / "rules" / "dangling.toml").symlink_to(tmp_path / "nowhere")
        (tmp_path / "rules" / "binary.toml").write_bytes(b"\xff\xfe")
        rig.rules('[rule.good]\nfiles = "in/*"\nrun = ["true"]\n', "good.toml")
        (tmp_path / "in" / "a").touch()
        await rig.ended(2)
    assert [job.state for job in rig.jobs()] == [State.DONE, State.DONE]


LINGER = '[site]\non_exit = "linger"\n'


@pytest.mark.parametrize("text", ["[]", "nothing", "[[{{"])
async def test_a_payload_may_write_a_file_named_like_our_evidence(
    tmp_path: Path, text: str
) -> None:
    rig = Rig(tmp_path, settings=LINGER)
    argv = ("sh", "-c", f"echo '{text}' > exit.json; echo > here; sleep 1")
    async with rig.live() as project:
        job = project.submit(NewJob(JobSpec(Command(argv), "j")))
        await rig.until(lambda: list((tmp_path / ".pilotage/jobs").glob("*/*/here")))
    async with rig.live() as project:
        await rig.ended(1)
        assert project.job(job).state is State.DONE
        assert len(project.attempts(job)) == 1


@pytest.mark.parametrize("verb, state", [("cancel", State.CANCELLED), ("hold", State.HELD)])
async def test_an_adopted_job_can_be_stopped(tmp_path: Path, verb: str, state: State) -> None:
    rig = Rig(tmp_path, settings=LINGER)
    async with rig.live() as project:
        job = project.submit(NewJob(JobSpec(Command(("sh", "-c", "echo > here; sleep 60")), "j")))
        await rig.until(lambda: list((tmp_path / ".pilotage/jobs").glob("*/*/here")))
    async with rig.live() as project:
        getattr(project, verb)([job])
        await rig.until(lambda: project.job(job).state is state, 20)


def starter_of(root: Path) -> int:
    """Find the process of the starter of a project."""
    mark = os.fsencode(root / ".pilotage/starters")
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "cmdline").read_bytes():
                return int(folder.name)
        except OSError:
            continue
    return 0


async def test_what_a_dead_starter_did_not_begin_belongs_to_the_next(tmp_path: Path) -> None:
    rig = Rig(tmp_path, settings="[site]\ncpus = 1\n")
    gate = tmp_path / "gate"
    stay = ("sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.05; done")
    with rig.project() as project:
        # Short jobs first, so that later ones are claimed before there is room for them.
        for argv in [("true",)] * 40 + [stay] * 5:
            project.submit(NewJob(JobSpec(Command(argv), argv[0])))
    async with rig.live() as project:

        def waiting() -> list[str]:
            locks = [project.attempts(job.id)[-1].starter for job in rig.jobs("*", State.RUNNING)]
            return locks if len(locks) > 1 else []

        await rig.until(lambda: len(rig.jobs("true", State.DONE)) == 40 and waiting())
        dead = waiting()[0]
        left = [job.id for job in rig.jobs("*", State.RUNNING)]
        os.kill(starter_of(tmp_path), signal.SIGKILL)
        gate.touch()
        await rig.until(lambda: len(rig.jobs("*", State.DONE)) == 45)
        # The first may have ended in the moment before.
        assert {project.attempts(job)[-1].starter for job in left[1:]}.isdisjoint({dead})


async def test_numbers_are_not_given_again_after_all_was_forgotten(tmp_path: Path) -> None:
    rules = (
        '[rule.after]\njob = "x"\nrun = ["true"]\n\n[rule.said]\nmessage = "m"\nrun = ["true"]\n'
    )
    rig = Rig(tmp_path, rules)
    job = NewJob(JobSpec(Command(("true",)), "x"))
    async with rig.live() as project:
        project.submit(job)
        await rig.ended(2)
        project.emit("m")
        await rig.ended(3)
    with rig.project() as project, project.db.transaction():
        later = project.clock.now() + 1000
        while purge.forget(project.db, later) is not None:
            pass
        while records.forget(project.db, later) is not None:
            pass
    async with rig.live() as project:
        assert project.submit(job) > 3
        assert project.emit("m") > 2
        await rig.until(lambda: len(rig.jobs("after", State.DONE)) == 1)


async def test_a_rule_added_while_nothing_ran_does_not_hear_of_the_past(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    job = NewJob(JobSpec(Command(("true",)), "x"))
    async with rig.live() as project:
        project.submit(job)
        await rig.ended(1)
    rig.rules('[rule.after]\njob = "x"\nrun = ["true"]\n')
    async with rig.live() as project:
        later = project.submit(job)
        await rig.ended(3)
    async with rig.live():
        await anyio.sleep(0.5)
    assert [one.parent for one in rig.jobs("after")] == [later]


async def test_a_rule_is_born_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "_KNOWN_AT_ONCE", 7)
    rig = Rig(tmp_path, '[rule.one]\nfiles = "in/*"\nrun = ["true"]\n')
    (tmp_path / "in").mkdir()
    for number in range(50):
        (tmp_path / "in" / str(number)).touch()
    async with rig.live():
        await rig.ended(50)
        rig.rules('[rule.two]\nfiles = "in/*"\nrun = ["true"]\n', "two.toml")
        await rig.ended(50, "two")
    assert len({job.binding.path for job in rig.jobs("two")}) == len(rig.jobs("two")) == 50


@pytest.mark.parametrize("kills", [3, pytest.param(30, marks=pytest.mark.soak)])
async def test_starters_that_are_killed_again_and_again(tmp_path: Path, kills: int) -> None:
    rig = Rig(tmp_path)
    with rig.project() as project:
        for _ in range(30 * kills):
            project.submit(NewJob(JobSpec(Command(("sleep", "0.01")), "x")))
    async with rig.live():
        for _ in range(kills):
            # If several die before they are ready, that is a fault, and ends the hub.
            done = len(rig.jobs("x", State.DONE))
            await rig.until(lambda done=done: len(rig.jobs("x", State.DONE)) > done)  # type: ignore[misc]
            if pid := starter_of(tmp_path):
                os.kill(pid, signal.SIGKILL)
        await rig.until(lambda: len(rig.jobs("x", State.DONE)) == 30 * kills)
