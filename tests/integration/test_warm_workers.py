"""Functions in workers that stay: what they return, how they fail, and that nothing stays after."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.job import model
from pilotage.payload.starter import process
from pilotage.run import Ending, EndReason, Launch, Starter, evidence, launch
from pilotage.run.model import Sandbox

pytestmark = pytest.mark.anyio

DEADLINE = 60.0
SOURCE = """
import os, signal, sys, time

loaded = []

def echo(*args, **kwargs):
    return [args, kwargs]

async def later(x):
    import asyncio
    await asyncio.sleep(0)
    return x

def fail(x):
    raise LookupError(f"no {x}")

def leave(code):
    sys.exit(code)

def vanish(code):
    os._exit(code)

def die(number):
    os.kill(os.getpid(), number)
    time.sleep(60)

def sleep(seconds):
    time.sleep(seconds)
    return seconds

def speak(text):
    print(text)
    os.write(2, b"to fd 2\\n")

def who():
    return os.getpid()

def count():
    loaded.append(1)
    return len(loaded)

def whose():
    return [os.environ["PILOTAGE_JOB"], os.environ["PILOTAGE_ATTEMPT"], os.getcwd()]

def leave_files(name):
    before = os.listdir()
    if name:
        open(name, "w").close()
    os.makedirs("folder/inside")
    return before

def use(name, target):
    with open(name) as file:
        text = file.read()
    with open(target, "w") as file:
        file.write(text)
    return [os.getcwd(), text, os.path.realpath(name)]

def swallow(megabytes):
    held = bytearray(megabytes << 20)
    for at in range(0, len(held), 4096):
        held[at] = 1
    time.sleep(60)

def nan():
    return float("nan")

def thing():
    return object()

def odd():
    return "\\udcff"

def odder():
    raise ValueError("\\udcff")

def large(count):
    return "x" * count

def read_stdin():
    return sys.stdin.read()

def forge():
    import socket
    for fd in range(3, 64):
        try:
            one = socket.socket(fileno=os.dup(fd))
            one.sendall(b"\\x00\\x00\\x00\\x20" + b'{}\\n1}\\n{"op":"ended","key":"9.9"}')
        except OSError:
            continue
    return "done"
"""


class Bench:
    """A starter and the launches for it."""

    def __init__(self, root: Path, starter: Starter) -> None:
        self.root = root
        self.starter = starter
        self._jobs = 0

    def launch(self, function: str, *calls: Any, **more: Any) -> Launch:
        self._jobs += 1
        given = {name: more.pop(name) for name in ("owner", "sandbox") if name in more}
        recipe = model.Call(function, source=more.pop("source", SOURCE), file=more.pop("file", ""))
        order = {"calls": [[args, {}] for args in calls], **more.pop("order", {})}
        about = {name: more.pop(name) for name in ("inputs", "outputs", "cwd") if name in more}
        spec = model.JobSpec(recipe, function, resources=model.Resources(**more), **about)
        return launch.prepare(
            launch.LaunchContext(str(self.root)), spec, model.Binding(data=order), job=self._jobs,
            attempt=1, folder=str(self.root / "jobs" / f"{self._jobs}.1"), **given,
        ).launch  # fmt: skip

    async def run(self, *launches: Launch) -> list[Ending]:
        await self.starter.start(launches)
        found: dict[str, Ending] = {}
        with anyio.fail_after(DEADLINE):
            async for reports in self.starter:
                found |= {one.key: one for one in reports if isinstance(one, Ending)}
                if len(found) >= len(launches):
                    break
        self.starter.acknowledge(found)
        return [found[one.key] for one in launches]

    async def call(self, function: str, *calls: Any, **more: Any) -> list[Any]:
        (ending,) = await self.run(self.launch(function, *calls, **more))
        assert ending.ok, ending
        return returns(ending)


def returns(ending: Ending) -> list[Any]:
    found: list[Any] = json.loads(bytes(ending.result))["returns"]
    return found


@asynccontextmanager
async def bench(root: Path, slots: int = 2) -> AsyncIterator[Bench]:
    async with Starter.open(root, slots=slots) as starter:
        yield Bench(root, starter)


def workers(root: Path) -> list[int]:
    return [
        pid
        for pid, row in process.table().items()
        if row.state not in "ZX"
        and process.environ(pid).get(process.WORKER)
        and process.environ(pid).get(process.STARTER, "").startswith(str(root))
    ]


def said_by(job: Launch) -> str:
    said = Path(job.dir, "stdout")
    return said.read_text() if said.exists() else ""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(DEADLINE):
        while not condition():  # noqa: ASYNC110 - no event comes from another process
            await anyio.sleep(0.01)


async def test_each_call_returns_in_its_place(tmp_path):
    async with bench(tmp_path) as one:
        assert await one.call("echo", [1, "é"], [{"a": None}], []) == [
            {"ok": [[1, "é"], {}]}, {"ok": [[{"a": None}], {}]}, {"ok": [[], {}]},
        ]  # fmt: skip
        assert await one.call("later", [1], [2]) == [{"ok": 1}, {"ok": 2}]


async def test_an_exception_is_the_error_of_its_call_alone(tmp_path):
    async with bench(tmp_path) as one:
        first, second = await one.call("fail", ["key"], [2])
        assert first["error"]["type"] == "LookupError"
        assert first["error"]["message"] == "no key"
        assert "return" not in first["error"]["traceback"]
        assert 'raise LookupError(f"no {x}")' in first["error"]["traceback"]
        assert "warm.py" not in first["error"]["traceback"]
        assert second["error"]["message"] == "no 2"
        (left,) = await one.call("leave", [3])
        assert left["error"]["type"] == "SystemExit"


async def test_what_is_not_json_is_the_error_of_its_call_with_a_hint(tmp_path):
    async with bench(tmp_path) as one:
        for function in ("nan", "thing", "odd"):
            (found,) = await one.call(function, [])
            assert "not JSON" in found["error"]["message"]
            assert "write a file" in found["error"]["message"]
        (odd,) = await one.call("odder", [])
        assert odd["error"]["message"] == "\\udcff"
        small, large = await one.call("large", [10], [9 << 20])
        assert small == {"ok": "x" * 10}
        assert "too many" in large["error"]["message"]


async def test_a_worker_stays_and_loads_once(tmp_path):
    async with bench(tmp_path) as one:
        assert await one.call("count", [], []) == [{"ok": 1}, {"ok": 2}]
        assert await one.call("count", []) == [{"ok": 3}]
        assert len(workers(tmp_path)) == 1
        # Without output there is no directory.
        assert not (tmp_path / "jobs").exists()
    assert workers(tmp_path) == []


async def test_owners_never_share_a_worker(tmp_path):
    async with bench(tmp_path) as one:
        ((mine,), (again,), (theirs,)) = [
            await one.call("who", [], owner=owner) for owner in ("a", "a", "b")
        ]
        assert mine == again
        assert mine != theirs


async def test_each_job_knows_its_own_number_and_works_in_the_folder_of_its_worker(tmp_path):
    async with bench(tmp_path) as one:
        ((first,), (second,)) = [await one.call("whose", []) for _ in "12"]
        assert [found["ok"][:2] for found in (first, second)] == [["1", "1"], ["2", "1"]]
        folder = Path(first["ok"][2])
        assert second["ok"][2] == str(folder)
        assert folder.parent.parent == tmp_path / "starters"
        assert await one.call("whose", [], cwd=".") == [{"ok": ["3", "1", str(tmp_path)]}]
    assert list((tmp_path / "starters").iterdir()) == []


async def test_what_a_call_leaves_in_its_workers_folder_is_gone_and_reported(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("leave_files", ["a"], ["b"], ["a"]))
        assert returns(ending) == [{"ok": []}] * 3
        left = json.loads(bytes(ending.result))["left"]
        assert left == {"0": ["a", "folder"], "1": ["b", "folder"], "2": ["a", "folder"]}
        (ending,) = await one.run(one.launch("leave_files", [""]))
        assert json.loads(bytes(ending.result))["left"] == {"0": ["folder"]}
        (ending,) = await one.run(one.launch("echo", []))
        assert b"left" not in bytes(ending.result)
    said = (tmp_path / "jobs/1.1/stderr").read_text()
    assert said.splitlines()[1] == (
        "pilotage: removed 'b', 'folder', not declared as outputs"
    )  # fmt: skip


async def test_a_worker_whose_folder_is_removed_makes_it_again(tmp_path):
    source = "import os, shutil\ndef f():\n shutil.rmtree(os.getcwd())\n return os.getpid()\n"
    async with bench(tmp_path) as one:
        first, second = [await one.call("f", [], source=source) for _ in "12"]
        assert first == second


async def test_folders_of_workers_go_with_their_starter(tmp_path):
    async with bench(tmp_path) as one:
        await one.call("leave_files", ["a"])
        assert list((tmp_path / "starters").glob("*.lock.d/*"))
        os.kill(one.starter._pid, signal.SIGKILL)
        with anyio.fail_after(DEADLINE):
            assert [report async for report in one.starter] == []
    assert not list((tmp_path / "starters").glob("*.lock.d"))
    # As after a power cut.
    (tmp_path / "starters/x.lock.d/1").mkdir(parents=True)
    async with bench(tmp_path) as one:
        assert not (tmp_path / "starters/x.lock.d").exists()


async def test_a_call_with_files_has_a_folder_of_its_own_and_nothing_is_copied(tmp_path):
    (tmp_path / "in/deep").mkdir(parents=True)
    for name in ("in/a é [1].txt", "in/deep/b.txt", "in/c.txt"):
        (tmp_path / name).write_text(name)
    async with bench(tmp_path) as one:
        job = one.launch(
            "use", ["in/a é [1].txt", "out/new/x"], ["in", "."],
            inputs=("in/a é [[]1].txt", "in/deep", "in/*.txt"), outputs={"x": "out/new/x"},
        )  # fmt: skip
        first, second = returns((await one.run(job))[0])
        (again,) = await one.call(
            "use", ["in/deep/b.txt", "out/y"], inputs=("in",), outputs={"y": "out/y"}
        )
    folder = f"{tmp_path}/jobs/1.1/work"
    assert first["ok"] == [folder, "in/a é [1].txt", f"{tmp_path}/in/a é [1].txt"]
    assert "IsADirectoryError" in second["error"]["type"]
    assert again["ok"][1] == "in/deep/b.txt"
    # A call that raised has failed, and nothing of it is kept.
    assert not (tmp_path / "out/new/x").exists()
    assert (tmp_path / "out/y").read_text() == "in/deep/b.txt"
    assert names(tmp_path / "jobs") == []


async def test_calls_with_files_share_a_worker(tmp_path):
    (tmp_path / "in").write_text("1")
    async with bench(tmp_path) as one:
        found = [await one.call("who", [], inputs=("in",)) for _ in "12"]
        assert found[0] == found[1]
        assert len(workers(tmp_path)) == 1


async def test_an_input_that_is_missing_fails_the_job_before_the_call(tmp_path):
    async with bench(tmp_path) as one:
        for inputs in (("gone.txt",), ("gone/*.txt",)):
            (ending,) = await one.run(one.launch("vanish", [3], inputs=inputs))
            assert (ending.reason, ending.exit) == (EndReason.EXITED, 1)
            assert ending.message == f"its input {inputs[0]} is not there"
            assert returns(ending) == []
        assert not list((tmp_path / "jobs").glob("*/work"))


async def test_what_a_call_with_files_raised_is_why_its_job_failed(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("fail", ["key"], outputs={"x": "x"}))
        assert (ending.exit, ending.message) == (1, "LookupError: no key")
        assert returns(ending)[0]["error"]["type"] == "LookupError"


async def test_files_among_the_arguments_are_paths(tmp_path):
    (tmp_path / "a").write_text("1")
    source = """
def f(one, more, *, to):
    to["y"].write_text(one.read_text() + more[1].read_text())
    return [type(one).__name__, one.is_absolute(), to["y"].name]
"""
    files = [
        {"at": [0, 0, 0], "path": "a"}, {"at": [0, 0, 1, 1], "path": "a"},
        {"at": [0, 1, "to", "y"], "path": "out/b"},
    ]  # fmt: skip
    order = {"calls": [[["", [0, 0]], {"to": {"y": ""}}]], "files": files}
    async with bench(tmp_path) as one:
        job = one.launch("f", source=source, order=order, inputs=("a",), outputs={"y": "out/b"})
        (ending,) = await one.run(job)
    assert returns(ending) == [{"ok": ["PosixPath", True, "b"]}]
    assert (tmp_path / "out/b").read_text() == "11"


async def test_an_output_that_is_an_input_is_written_as_a_whole(tmp_path):
    source = "def f():\n open('log', 'a').write('2')\n return open('log').read()\n"
    (tmp_path / "log").write_text("1")
    before = (tmp_path / "log").stat().st_ino
    async with bench(tmp_path) as one:
        found = await one.call("f", [], source=source, inputs=("log",), outputs={"l": "log"})
    assert found == [{"ok": "12"}]
    assert (tmp_path / "log").read_text() == "12"
    assert (tmp_path / "log").stat().st_ino != before


async def test_folders_that_calls_write_are_merged(tmp_path):
    source = "import os\ndef f(name):\n os.makedirs('out/a')\n open('out/a/' + name, 'w')\n"
    async with bench(tmp_path) as one:
        for name in ("1", "2"):
            await one.call("f", [name], source=source, outputs={"o": "out"})
        assert names(tmp_path / "out/a") == ["1", "2"]
        (tmp_path / "file").mkdir()
        job = one.launch("leave_files", ["file"], outputs={"o": "file"})
        (ending,) = await one.run(job)
    assert ending.exit == 1
    assert "Is a directory" in ending.message


async def test_what_a_link_leads_to_is_copied_and_stays(tmp_path):
    source = "import os\ndef f(to):\n os.symlink(to + '/d', 'd'); os.symlink(to + '/d/x', 'x')\n"
    away = tmp_path / "away"
    (away / "d").mkdir(parents=True)
    (away / "d/x").write_text("1")
    async with bench(tmp_path) as one:
        outputs = {"d": "d", "x": "x"}
        for _ in "12":
            assert await one.call("f", [str(away)], source=source, outputs=outputs) == [
                {"ok": None}
            ]
    assert names(away / "d") == ["x"]
    for copy in (tmp_path / "d/x", tmp_path / "x"):
        assert copy.read_text() == "1"
        assert not copy.is_symlink()


async def test_an_output_in_a_folder_that_is_read_is_kept_only_if_all_goes_well(tmp_path):
    source = """
def f(well):
    seen = open('set/deep/a').read() + open('set/b').read()
    open('set/deep/new', 'w').write(seen)
    if not well:
        raise ValueError
"""
    (tmp_path / "set/deep").mkdir(parents=True)
    (tmp_path / "set/deep/a").write_text("1")
    (tmp_path / "set/b").write_text("2")
    files = {"inputs": ("set",), "outputs": {"new": "set/deep/new"}}
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("f", [False], source=source, **files))
        assert ending.exit == 1
        assert names(tmp_path / "set/deep") == ["a"]
        await one.call("f", [True], source=source, **files)
    assert (tmp_path / "set/deep/new").read_text() == "12"


async def test_a_worker_that_dies_while_outputs_get_their_places_is_a_failure(tmp_path):
    source = """
import os, signal
def f(die):
    for name in "ab":
        open(name, "w").write(name)
    real = os.replace
    def replace(one, other):
        if die and other.endswith("b"):
            os.kill(os.getpid(), signal.SIGKILL)
        real(one, other)
    os.replace = replace
"""
    outputs = {"a": "to/a", "b": "to/b"}
    source = source.replace("open(name", "open('to/' + name")
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("f", [True], source=source, outputs=outputs))
        assert ending.reason is EndReason.SIGNALLED
        assert names(tmp_path / "to") == ["a"]
        assert await one.call("f", [False], source=source, outputs=outputs) == [{"ok": None}]
    assert names(tmp_path / "to") == ["a", "b"]
    assert (tmp_path / "to/b").read_text() == "b"


async def test_what_a_function_says_is_in_the_files_of_its_attempt(tmp_path):
    async with bench(tmp_path) as one:
        await one.call("speak", ["one"], ["two"])
        await one.call("speak", ["three"])
        await one.call("echo", [])
    assert (tmp_path / "jobs/1.1/stdout").read_text() == "one\ntwo\n"
    assert (tmp_path / "jobs/1.1/stderr").read_text() == "to fd 2\nto fd 2\n"
    assert (tmp_path / "jobs/2.1/stdout").read_text() == "three\n"
    assert not (tmp_path / "jobs/3.1").exists()


async def test_output_can_be_followed_while_the_function_runs(tmp_path):
    source = "import time\ndef f():\n print('here')\n time.sleep(60)\n"
    async with bench(tmp_path) as one:
        job = one.launch("f", [], source=source)
        await one.starter.start([job])
        await until(lambda: said_by(job) == "here\n")


@pytest.mark.parametrize(
    "function, argument, reason, words",
    [
        ("die", signal.SIGSEGV, EndReason.SIGNALLED, "its worker was killed by SIGSEGV"),
        ("die", signal.SIGKILL, EndReason.SIGNALLED, "its worker was killed by SIGKILL"),
        ("vanish", 3, EndReason.EXITED, "its worker exited with code 3"),
        ("vanish", 0, EndReason.EXITED, "its worker exited with code 0"),
    ],
)
async def test_a_worker_that_dies_is_a_failure_and_another_takes_its_place(
    tmp_path, function, argument, reason, words
):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch(function, [int(argument)]))
        assert (ending.reason, ending.ok, ending.result) == (reason, False, None)
        assert words in ending.message
        assert await one.call("echo", [1]) == [{"ok": [[1], {}]}]


async def test_a_function_that_takes_too_long_is_stopped(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("sleep", [60], time=0.2))
        assert ending.reason is EndReason.TIMEOUT
        assert await one.call("sleep", [0], time=60.0) == [{"ok": 0}]


async def test_a_function_that_takes_too_much_memory_is_killed(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("swallow", [256], memory=64 << 20))
        assert ending.reason is EndReason.MEMORY


async def test_a_call_can_be_stopped(tmp_path):
    async with bench(tmp_path) as one:
        job = one.launch("sleep", [60])
        await one.starter.start([job])
        await one.starter.stop(job.key, "not wanted", 5)
        with anyio.fail_after(DEADLINE):
            async for reports in one.starter:
                ends = [report for report in reports if isinstance(report, Ending)]
                if ends:
                    break
        assert (ends[0].reason, ends[0].message) == (EndReason.STOPPED, "not wanted")


async def test_calls_end_early_when_there_is_a_limit_to_their_time(tmp_path):
    async with bench(tmp_path) as one:
        calls = [[0.05]] * 100
        found = await one.call("sleep", *calls, order={"within": 0.08})
        # On a busy machine the first one alone may take as long.
        assert found in ([{"ok": 0.05}], [{"ok": 0.05}] * 2)


async def test_as_many_workers_as_there_are_slots(tmp_path):
    async with bench(tmp_path, slots=2) as one:
        found = await one.run(*[one.launch("who", []) for _ in range(20)])
        assert len({returns(ending)[0]["ok"] for ending in found}) <= 2
        for owner in "abcdef":
            await one.call("who", [], owner=owner)
        assert len(workers(tmp_path)) <= 3


async def test_a_file_that_cannot_be_loaded_is_the_error_of_each_call(tmp_path):
    async with bench(tmp_path) as one:
        found = await one.call("f", [], [], source="import nothing_of_this_name\n")
        assert [each["error"]["type"] for each in found] == ["ModuleNotFoundError"] * 2
        (found,) = await one.call("g", [], source="def f(): pass\n")
        assert "no function 'g'" in found["error"]["message"]


async def test_a_function_of_a_package_finds_what_lies_beside_it(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("VALUE = 42\n")
    (package / "mine.py").write_text("from .other import VALUE\ndef f(): return VALUE\n")
    async with bench(tmp_path) as one:
        assert await one.call("f", [], source="", file=str(package / "mine.py")) == [{"ok": 42}]


async def test_an_interpreter_that_is_not_there_is_told(tmp_path):
    async with bench(tmp_path) as one:
        job = one.launch("echo", [])
        gone = Launch(**{**_fields(job), "argv": ("/nowhere/python", "warm.py")})
        (ending,) = await one.run(gone)
        assert ending.reason is EndReason.NOT_STARTED
        assert "/nowhere/python" in ending.message


async def test_a_function_cannot_forge_the_end_of_another(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("forge", []))
        assert ending.key == "1.1"
        assert not ending.ok
        assert await one.call("echo", []) == [{"ok": [[], {}]}]


async def test_what_returned_after_the_runner_died_is_kept_with_its_result(tmp_path):
    async with bench(tmp_path) as one:
        job = one.launch("sleep", [0.3])
        one.starter.linger = True
        await one.starter.start([job])
        with anyio.fail_after(DEADLINE):
            await anext(one.starter)
    await until(lambda: evidence(job.dir))
    found = evidence(job.dir)
    assert found
    assert found.ok
    assert returns(found) == [{"ok": 0.3}]
    await until(lambda: not workers(tmp_path))


async def test_workers_die_with_their_starter(tmp_path):
    async with bench(tmp_path) as one:
        job = one.launch("sleep", [60])
        await one.starter.start([job])
        with anyio.fail_after(DEADLINE):
            await anext(one.starter)
        os.kill(one.starter._pid, signal.SIGKILL)
        with anyio.fail_after(DEADLINE):
            lost = await anext(one.starter)
        assert [report.reason for report in lost if isinstance(report, Ending)] == [EndReason.LOST]
        assert workers(tmp_path) == []


async def test_in_a_container_each_job_is_a_process(tmp_path):
    async with bench(tmp_path) as one:
        job = one.launch("echo", [1], [2], sandbox=Sandbox(kind="podman", image="x"))
        assert job.warm == ""
        plain = Launch(**{**_fields(job), "sandbox": None})
        (ending,) = await one.run(plain)
        assert ending.ok
        assert returns(ending) == [{"ok": [[1], {}]}, {"ok": [[2], {}]}]


@pytest.mark.needs("bwrap")
async def test_calls_in_a_sandbox_have_folders_of_their_own(tmp_path):
    (tmp_path / "in").write_text("1")
    async with bench(tmp_path) as one:
        boxed = Sandbox(kind="bubblewrap", writable=(str(tmp_path),))
        (ending,) = await one.run(one.launch("leave_files", ["a"], ["b"], sandbox=boxed))
        assert json.loads(bytes(ending.result))["left"]["1"] == ["b", "folder"]
        job = one.launch(
            "use", ["in", "out/x"], inputs=("in",), outputs={"x": "out/x"}, sandbox=boxed
        )
        assert job.warm == ""
        (ending,) = await one.run(job)
        assert ending.ok
        job = one.launch("fail", ["key"], outputs={"x": "out/x"}, sandbox=boxed)
        (ending,) = await one.run(job)
        assert (ending.exit, returns(ending)[0]["error"]["type"]) == (1, "LookupError")
    assert (tmp_path / "out/x").read_text() == "1"


@pytest.mark.needs("bwrap")
async def test_a_worker_stays_in_its_sandbox(tmp_path):
    async with bench(tmp_path) as one:
        boxed = Sandbox(kind="bubblewrap")
        assert await one.call("count", [], [], sandbox=boxed) == [{"ok": 1}, {"ok": 2}]
        assert await one.call("count", [], sandbox=boxed) == [{"ok": 3}]
        assert await one.call("speak", ["inside"], sandbox=boxed) == [{"ok": None}]
        (ending,) = await one.run(one.launch("die", [9], sandbox=boxed))
        assert not ending.ok
        slow = one.launch("sleep", [60], sandbox=boxed, time=0.2)
        (ending,) = await one.run(Launch(**{**_fields(slow), "grace": 0.5}))
        assert ending.reason is EndReason.TIMEOUT
    assert (tmp_path / "jobs/3.1/stdout").read_text() == "inside\n"
    await until(lambda: not workers(tmp_path))


async def test_standard_input_is_empty(tmp_path):
    async with bench(tmp_path) as one:
        assert await one.call("read_stdin", []) == [{"ok": ""}]


def _fields(job: Launch) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Launch.__struct_fields__}
