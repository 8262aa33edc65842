"""Programs beside jobs: bounded, alone, and gone when nobody wants them any more."""

from __future__ import annotations

import asyncio
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from pilotage.agent import side_program
from pilotage.base import errors
from tests.rigs.node.login_helper import wait_for


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "job"
    made.mkdir()
    return made


def program(folder: Path, script: str) -> str:
    file = folder.parent / "program"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return str(file)


async def run(folder: Path, script: str, *args: str, seconds: float = 60.0) -> str:
    """Run a script, and return what it wrote."""
    output, lock = folder.parent / "kept" / "out", folder.parent / "kept" / "lock"
    argv = [program(folder, script), *args]
    await side_program.run(
        argv, folder=str(folder), env={"GIVEN": "a b"}, lock=lock, output=output, seconds=seconds
    )
    return output.read_text()


async def test_it_gets_its_words_a_folder_and_a_clean_environment(folder, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    said = await run(folder, 'echo "$1" "$GIVEN" "$SECRET" "$HOME"; pwd; umask', "-n; $(id)")
    assert said.splitlines() == ["-n; $(id) a b  /nonexistent", str(folder), "0077"]


async def test_no_file_of_a_stranger_runs_with_it(folder):
    """Python runs what is at home in a certain place; inputs of a job may have that very name."""
    name = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    place = folder / ".local" / "lib" / name / "site-packages"
    place.mkdir(parents=True)
    (place / "stranger.pth").write_text("import sys; print('mine')\n")
    base = Path(sys.base_prefix) / "bin" / name
    assert await run(folder, f"{base} -c 'print(1)'") == "1\n"


async def test_it_fails_with_the_end_of_what_it_said(folder):
    with pytest.raises(errors.JobFailed, match="program failed with status 3: the end"):
        await run(folder, "yes | head -c 5000; echo; echo the end >&2; exit 3")
    with pytest.raises(errors.JobFailed, match="ended by signal 9"):
        await run(folder, "kill -9 $$")


async def test_it_has_so_long_and_no_longer(folder):
    with pytest.raises(errors.TimedOut):
        await run(folder, "echo $$ > pid; sleep 1000", seconds=1.0)
    assert gone(folder)


async def test_what_it_leaves_behind_is_ended_with_it(folder):
    await run(folder, "setsid sh -c 'echo $$ > pid; sleep 1000' & while ! [ -s pid ]; do :; done")
    await asyncio.to_thread(wait_for, lambda: gone(folder))


def gone(folder: Path) -> bool:
    """Say whether the process is over that said which it is."""
    try:
        facts = Path("/proc", (folder / "pid").read_text().strip(), "stat").read_text()
    except FileNotFoundError:
        return True
    return facts.rpartition(")")[2].split()[0] == "Z"


def begun(folder: Path) -> bool:
    return (folder / "pid").exists() and bool((folder / "pid").read_text().strip())


async def test_who_is_called_off_leaves_nothing(folder):
    task = asyncio.create_task(run(folder, "echo $$ > pid; sleep 1000"))
    await asyncio.to_thread(wait_for, lambda: begun(folder))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for, lambda: gone(folder))


def holder(lock: Path) -> subprocess.Popen[bytes]:
    """Have a process that holds a lock which its parent took, as after a kill of the parent."""
    lock.parent.mkdir()
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return subprocess.Popen(["sleep", "1000"], pass_fds=[file.fileno()])


async def test_what_another_process_left_is_ended_first(folder):
    left = holder(folder.parent / "kept" / "lock")
    try:
        assert await run(folder, "echo here") == "here\n"
        assert left.wait(timeout=30) == -9
    finally:
        left.kill()
        left.wait()


async def test_who_is_called_off_while_a_lock_is_waited_for_does_not_keep_it(folder):
    left = holder(folder.parent / "kept" / "lock")
    try:
        task = asyncio.create_task(run(folder, "true"))
        await asyncio.to_thread(left.wait, 30)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # Whatever still tries to take it has it by now.
        await asyncio.sleep(1.0)
        assert await run(folder, "echo here") == "here\n"
    finally:
        left.kill()
        left.wait()


async def test_a_program_that_is_not_there_is_said_so(folder):
    with pytest.raises(errors.JobFailed, match="failed with status"):
        await side_program.run(
            ["/nowhere/program"], folder=str(folder), env={}, lock=folder.parent / "lock",
            output=folder.parent / "out",
        )  # fmt: skip
