"""The nineteen ways in which a MEOW runner loses or repeats work, each with the right outcome here.

The numbers are those of the study of MEOW that the documentation refers to ("come from MEOW").
"""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import anyio
import pytest

from pilotage.base import errors
from pilotage.job.model import State
from pilotage.rule import files, sweep
from tests.rigs.project.project import Rig
from tests.suite import programs

TRUE = '[rule.work]\nfiles = "raw/*"\nrun = ["true"]\n'


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


def paths(rig: Rig, name: str = "*") -> collections.Counter[str]:
    return collections.Counter(job.binding.path for job in rig.jobs(name))


async def done(rig: Rig, count: int) -> None:
    """Wait until as many jobs are done; one that failed does not count."""
    await rig.until(lambda: len(rig.jobs("*", State.DONE)) >= count)


def once(folder: Path, names: list[str]) -> collections.Counter[str]:
    return collections.Counter({str(folder / name): 1 for name in names})


def test_w01_many_files_before_the_start(tmp_path: Path, raw: Path) -> None:
    for number in range(500):
        (raw / str(number)).write_text("x")
    rig = Rig(tmp_path, TRUE)
    assert rig.run() == 0
    assert paths(rig) == once(raw, [str(number) for number in range(500)])


async def test_w02_written_aside_and_renamed(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.work]\nfiles = "raw/*.dat"\nrun = ["true"]\n')
    async with rig.live():
        (raw / "a.tmp").write_text("x")
        (raw / "a.tmp").rename(raw / "a.dat")
        await done(rig, 1)
    assert paths(rig) == once(raw, ["a.dat"])


async def test_w03_any_file_name(tmp_path: Path, raw: Path) -> None:
    names = [
        "a b",
        "a+b",
        "a@b",
        "a=b",
        "~a",
        "a,b",
        "(a)",
        "#a",
        "a:b",
        "é",
        "日本",
        "a\nb",
        "'\"$`",
    ]
    rig = Rig(tmp_path, '[rule.work]\nfiles = "raw/*"\nrun = ["cat", "{path}"]\n')
    odd = Path(os.fsdecode(os.fsencode(raw) + b"/\xff\xfe"))
    async with rig.live():
        for path in (*(raw / name for name in names), odd):
            path.write_text("x")
        await done(rig, len(names) + 1)
    assert paths(rig) == once(raw, [*names, "\udcff\udcfe"])


def test_w04_stopped_with_work_pending(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.work]\nfiles = "raw/*"\nrun = ["sleep", "0.2"]\n')
    with rig.up():
        for number in range(50):
            (raw / str(number)).write_text("x")
        rig.wait_jobs(2)
    assert rig.run() == 0
    assert paths(rig) == once(raw, [str(number) for number in range(50)])
    assert {job.state for job in rig.jobs()} == {State.DONE}


def test_w05_killed_and_started_again(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.work]\nfiles = "raw/*"\nrun = ["sleep", "0.5"]\n')
    for number in range(8):
        (raw / str(number)).write_text("x")
    process = rig.start()
    rig.wait_jobs(1, state=State.RUNNING)
    process.kill()
    process.wait()
    assert rig.run() == 0
    assert {job.state for job in rig.jobs()} == {State.DONE}
    assert paths(rig) == once(raw, [str(number) for number in range(8)])


def test_w05_a_long_job_outlives_the_runner_and_is_adopted(tmp_path: Path, raw: Path) -> None:
    begun = tmp_path / "begun"
    payload = f"echo attempt $PILOTAGE_ATTEMPT >> {begun}; sleep 3"
    rig = Rig(tmp_path, f'[rule.work]\nfiles = "raw/*"\nrun = ["sh", "-c", "{payload}"]\n')
    (raw / "a").write_text("x")
    process = rig.start()
    # The store says that it runs before it does: what dies in between never began.
    rig.wait(lambda _: begun.exists() and begun.read_text().endswith("\n"))
    process.kill()
    process.wait()
    assert rig.run() == 0
    (job,) = rig.jobs()
    assert job.state is State.DONE
    assert job.attempt == 1, "it was adopted, not started again"
    assert begun.read_text() == "attempt 1\n"


EVERYTHING = """
[rule.new]
files = "raw/*"
events = ["created"]
run = ["true"]
[rule.changed]
files = "raw/*"
events = ["modified"]
run = ["true"]
[rule.moved]
files = "raw/*"
events = ["moved"]
run = ["true"]
[rule.left]
files = "raw/*"
events = ["moved_from"]
run = ["true"]
[rule.deleted]
files = "raw/*"
events = ["deleted"]
run = ["true"]
"""


async def test_w06_what_happens_while_it_is_down(tmp_path: Path, raw: Path) -> None:
    for name in ("change", "delete", "move", "stay"):
        (raw / name).write_text("x")
    rig = Rig(tmp_path, EVERYTHING)
    await rig.finish()
    assert rig.jobs() == [], "nothing has happened yet"
    (raw / "change").write_text("changed")
    (raw / "delete").unlink()
    (raw / "move").rename(raw / "moved")
    (raw / "new").write_text("x")
    await rig.finish()
    fired = {job.name: job.binding.path for job in rig.jobs()}
    assert fired == {
        "new": str(raw / "new"),
        "changed": str(raw / "change"),
        "moved": str(raw / "moved"),
        "left": str(raw / "move"),
        "deleted": str(raw / "delete"),
    }
    await rig.finish()
    assert len(rig.jobs()) == 5


#: Jobs that are made but never run: what is tested is that none is lost.
IDLE = '[rule.work]\nfiles = "{}/**/*.dat"\nrun = ["true"]\ncpus = 4096\n'


def write_many(folder: Path, count: int) -> None:
    code = (
        "import os, sys\n"
        "root, count = sys.argv[1], int(sys.argv[2])\n"
        "for d in range(100): os.makedirs(f'{root}/{d}', exist_ok=True)\n"
        "for i in range(count):\n"
        "    fd = os.open(f'{root}/{i % 100}/{i}.dat', os.O_CREAT | os.O_WRONLY)\n"
        "    os.write(fd, b'x'); os.close(fd)\n"
    )
    subprocess.run(["python3", "-c", code, str(folder), str(count)], check=True)


@pytest.mark.parametrize(
    "count, held_back",
    [
        pytest.param(5_000, False, id="burst"),
        pytest.param(0, True, id="overflow"),
        pytest.param(20_000, False, id="long burst", marks=pytest.mark.soak),
        pytest.param(100_000, True, id="long overflow", marks=pytest.mark.soak),
    ],
)
def test_w07_more_events_than_the_kernel_keeps(
    tmp_path: Path, *, count: int, held_back: bool
) -> None:
    # Each file is more than one event.
    count = count or int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    shm = Path("/dev/shm") / f"pilotage-{os.getpid()}-{count}"
    shm.mkdir()
    try:
        for number in range(100):
            (shm / str(number)).mkdir()
        rig = Rig(tmp_path, IDLE.format(shm))
        with rig.up() as process:
            if held_back:
                process.send_signal(signal.SIGSTOP)
            write_many(shm, count)
            if held_back:
                process.send_signal(signal.SIGCONT)
            rig.wait(lambda project: project.db.value("job_last") >= count)
            time.sleep(1)
        with rig.project() as project:
            rows = project.db.rows("job_counts")
        assert rows == [("work", "queued", count)]
    finally:
        subprocess.run(["rm", "-rf", str(shm)], check=True)


def test_w08_a_recipe_that_cannot_start_fails_aloud(tmp_path: Path, raw: Path) -> None:
    notebook = tmp_path / "rules" / "bad.ipynb"
    rig = Rig(
        tmp_path,
        '[rule.bad]\nfiles = "raw/*"\nnotebook = "bad.ipynb"\n'
        '[rule.gone]\nfiles = "raw/*"\nrun = ["no-such-program"]\n'
        '[rule.good]\nfiles = "raw/*"\nrun = ["true"]\n',
    )
    notebook.write_text('{"cells": []}')
    (raw / "a").write_text("x")
    assert rig.run() == 1, "some jobs failed"
    states = {job.name: job.state for job in rig.jobs()}
    assert states == {"bad": State.FAILED, "gone": State.FAILED, "good": State.DONE}
    (gone,) = rig.jobs("gone")
    assert "no-such-program" in gone.reason


def test_w09_no_gap_while_rules_change_and_directories_appear(tmp_path: Path, raw: Path) -> None:
    rules = '[rule.work]\nfiles = "raw/**/*.dat"\nrun = ["true"]\nparams = {{ n = {} }}\n'
    rig = Rig(tmp_path, rules.format(0))
    names = [f"{number}/{number}.dat" for number in range(200)]
    with rig.up():

        def write() -> None:
            for name in names:
                (raw / name).parent.mkdir()
                (raw / name).write_text("x")
                time.sleep(0.01)

        writer = threading.Thread(target=write)
        writer.start()
        for change in range(1, 4):
            rig.rules(rules.format(change))
            time.sleep(0.6)
        writer.join()
        rig.wait_jobs(200)
    assert paths(rig) == once(raw, names)


async def test_w10_a_restart_repeats_nothing(tmp_path: Path, raw: Path) -> None:
    for number in range(20):
        (raw / str(number)).write_text("x")
    rig = Rig(tmp_path, TRUE)
    for _ in range(3):
        await rig.finish()
    assert paths(rig) == once(raw, [str(number) for number in range(20)])


async def test_w11_the_same_content_again(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, TRUE + 'version = "content"\n')
    async with rig.live():
        for _ in range(3):
            (raw / "a").write_text("same")
            await anyio.sleep(0.3)
        await done(rig, 1)
        (raw / "a").write_text("other")
        await done(rig, 2)
    assert len(rig.jobs()) == 2


async def test_w12_a_slow_writer_is_one_file(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, '[rule.size]\nfiles = "raw/*"\nrun = ["wc", "-c", "{path}"]\n')
    async with rig.live():
        with (raw / "a").open("w") as file:
            for _ in range(3):
                file.write("x" * 1000)
                file.flush()
                await anyio.sleep(0.7)
        await done(rig, 1)
        await anyio.sleep(0.5)
    (job,) = rig.jobs()
    assert job.attempt == 1
    assert rig.output(job).startswith("3000 ")


async def test_w12_a_file_half_written_at_the_start(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, TRUE)
    with (raw / "a").open("w") as file:
        file.write("half")
        file.flush()
        async with rig.live():
            await anyio.sleep(1)
            assert rig.jobs() == []
            file.write("whole")
            file.close()
            await done(rig, 1)
    assert len(rig.jobs()) == 1


async def test_w12_appended_in_pieces_with_settle(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, TRUE + 'settle = "2s"\n')
    async with rig.live():
        for _ in range(4):
            with (raw / "a").open("a") as file:
                file.write("x" * 1000)
            await anyio.sleep(0.5)
        await done(rig, 1)
    (job,) = rig.jobs()
    assert job.binding.version.split("-")[1] == "4000"


async def test_w13_no_settle_time_no_doubles(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, TRUE)
    async with rig.live():
        for number in range(50):
            (raw / str(number)).write_text("x")
        await done(rig, 50)
        await anyio.sleep(0.5)
    assert paths(rig) == once(raw, [str(number) for number in range(50)])


async def test_w14_an_input_that_changed_is_called_off_not_failed(
    tmp_path: Path, raw: Path
) -> None:
    rig = Rig(
        tmp_path,
        '[rule.work]\nfiles = "raw/*"\nrun = ["sleep", "1"]\nlimit = "one"\n'
        '[rule.latest]\nfiles = "raw/b"\nrun = ["cat", "{path}"]\nlimit = "one"\n'
        'on_change = "latest"\n',
    )
    async with rig.live() as project:
        (raw / "a").write_text("x")
        await rig.until(lambda: rig.jobs("*", State.RUNNING))
        (raw / "b").write_text("old")
        await rig.until(lambda: rig.jobs("latest", State.QUEUED))
        (raw / "b").write_text("new version")
        await rig.until(lambda: not project.busy())
    mine = [job for job in rig.jobs("work") if job.binding.path.endswith("/b")]
    assert [job.state for job in mine] == [State.CANCELLED, State.DONE]
    assert "has changed since the rule matched it" in mine[0].reason
    assert {job.state for job in rig.jobs("latest")} == {State.DONE}


def test_w15_a_second_runner_refuses(tmp_path: Path, raw: Path) -> None:
    rig = Rig(tmp_path, TRUE)
    with rig.up():
        assert programs.wait(rig.start()) == 7
        assert "already" in rig.said
        for number in range(20):
            (raw / str(number)).write_text("x")
        rig.wait_jobs(20)
    assert paths(rig) == once(raw, [str(number) for number in range(20)])


async def test_w16_a_star_stays_in_its_directory(tmp_path: Path) -> None:
    (tmp_path / "t/deep/er").mkdir(parents=True)
    (tmp_path / "t/old").write_text("x")
    (tmp_path / "t/deep/er/old").write_text("x")
    rig = Rig(tmp_path, '[rule.work]\nfiles = "t/*"\nrun = ["true"]\n')
    async with rig.live():
        (tmp_path / "t/new").write_text("x")
        (tmp_path / "t/deep/er/new").write_text("x")
        await done(rig, 2)
        await anyio.sleep(0.5)
    assert paths(rig) == once(tmp_path / "t", ["old", "new"])


def test_w17_parameters_are_values(tmp_path: Path, raw: Path) -> None:
    hostile = 'it\'s $(echo INJECTED) `id` "x" ; rm -rf ~ \\ {not a keyword'
    steps = "def show(text, url, n):\n    print(repr([text, url, n]))\n"
    rig = Rig(
        tmp_path,
        "[rule.shell]\nfiles = 'raw/*'\nscript = '''\nprintf '%s' \"$text\"\n'''\n"
        f"params = {{ text = {json.dumps(hostile.replace('{', '{{'))} }}\n"
        "[rule.python]\nfiles = 'raw/*'\npython = 'steps.py:show'\n"
        f"params = {{ text = {json.dumps(hostile.replace('{', '{{'))}, url = 'x?a=b', n = 9 }}\n"
        "[rule.argv]\nfiles = 'raw/*'\nrun = ['printf', '%s', '{name}']\n",
    )
    (tmp_path / "rules" / "steps.py").write_text(steps)
    (raw / "$(touch pwned); echo").write_text("x")
    assert rig.run() == 0
    said = {}
    with rig.project() as project:
        for job in rig.jobs():
            (attempt,) = project.attempts(job.id)
            said[job.name] = Path(attempt.dir, "stdout").read_text()
    assert said["shell"] == hostile
    assert said["python"].strip() == repr([hostile, "x?a=b", 9])
    assert said["argv"] == "$(touch pwned); echo"
    assert not list(tmp_path.rglob("pwned"))


def test_w18_sweeps_have_all_their_points() -> None:
    down = sweep.points({"x": {"start": 3, "stop": 1, "step": -1}}, "product")
    assert [point["x"] for point in down] == [3, 2, 1]
    fine = sweep.points({"x": {"start": 0, "stop": 0.3, "step": 0.1}}, "product")
    assert [point["x"] for point in fine] == [0.0, 0.1, 0.2, 0.3]
    backwards = "sweep = { x = { start = 1, stop = 3, step = -1 } }"
    with pytest.raises(errors.BadRule):
        files.load_text("b", f'[rule.r]\nfiles = "a"\nrun = ["true"]\n{backwards}', "/", "/")


async def test_w19_a_recipe_that_writes_its_own_trigger_is_held(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        '[rule.again]\nfiles = "raw/*"\nrun = ["sh", "-c", "date +%N > \\"$0\\"", "{path}"]\n'
        "max_depth = 5\n",
    )
    (raw / "a").write_text("x")
    await rig.finish()
    jobs = rig.jobs()
    assert [job.state for job in jobs] == [State.DONE] * 5 + [State.HELD]
    assert "loop guard" in jobs[-1].reason


async def test_w19_a_chain_of_derived_names_is_held(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        '[rule.again]\nfiles = "raw/*"\nrun = ["cp", "{path}", "{path}.out"]\nmax_depth = 5\n',
    )
    (raw / "data").write_text("x")
    await rig.finish()
    assert [job.state for job in rig.jobs()] == [State.DONE] * 5 + [State.HELD]


async def test_w19_a_fast_loop_is_held_by_its_rate(tmp_path: Path, raw: Path) -> None:
    rig = Rig(
        tmp_path,
        '[rule.ping]\nfiles = "raw/a"\nrun = ["sh", "-c", "date +%N > \\"$0\\"", "{base}/raw/b"]\n'
        "max_repeats = 5\n"
        '[rule.pong]\nfiles = "raw/b"\nrun = ["sh", "-c", "date +%N > \\"$0\\"", "{base}/raw/a"]\n'
        "max_repeats = 5\n",
    )
    (raw / "a").write_text("x")
    await rig.finish()
    held = rig.jobs("*", State.HELD)
    assert len(held) == 1
    assert "times within a minute" in held[0].reason
