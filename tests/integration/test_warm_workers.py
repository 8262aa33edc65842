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
from pilotage.payload import Ending, Launch, Starter, Why, evidence
from pilotage.payload.model import Sandbox
from pilotage.payload.starter import process
from pilotage.site import launch

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
        spec = model.JobSpec(recipe, function, resources=model.Resources(**more))
        return launch.prepare(
            launch.Place(str(self.root)), spec, model.Binding(data=order), job=self._jobs,
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


async def test_each_job_knows_its_own_number_and_folder(tmp_path):
    async with bench(tmp_path) as one:
        assert await one.call("whose", []) == [{"ok": ["1", "1", str(tmp_path)]}]
        assert await one.call("whose", []) == [{"ok": ["2", "1", str(tmp_path)]}]


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
        ("die", signal.SIGSEGV, Why.SIGNALLED, "its worker was killed by SIGSEGV"),
        ("die", signal.SIGKILL, Why.SIGNALLED, "its worker was killed by SIGKILL"),
        ("vanish", 3, Why.EXITED, "its worker exited with code 3"),
        ("vanish", 0, Why.EXITED, "its worker exited with code 0"),
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
        assert ending.reason is Why.TIMEOUT
        assert await one.call("sleep", [0], time=60.0) == [{"ok": 0}]


async def test_a_function_that_takes_too_much_memory_is_killed(tmp_path):
    async with bench(tmp_path) as one:
        (ending,) = await one.run(one.launch("swallow", [256], memory=64 << 20))
        assert ending.reason is Why.MEMORY


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
        assert (ends[0].reason, ends[0].message) == (Why.STOPPED, "not wanted")


async def test_calls_end_early_when_there_is_a_limit_to_their_time(tmp_path):
    async with bench(tmp_path) as one:
        calls = [[0.05]] * 100
        found = await one.call("sleep", *calls, order={"within": 0.08})
        assert found == [{"ok": 0.05}] * 2


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
        assert ending.reason is Why.NOT_STARTED
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
        assert [report.reason for report in lost if isinstance(report, Ending)] == [Why.LOST]
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
async def test_a_worker_stays_in_its_sandbox(tmp_path):
    async with bench(tmp_path) as one:
        boxed = Sandbox(kind="bubblewrap")
        assert await one.call("count", [], [], sandbox=boxed) == [{"ok": 1}, {"ok": 2}]
        assert await one.call("count", [], sandbox=boxed) == [{"ok": 3}]
        assert await one.call("speak", ["inside"], sandbox=boxed) == [{"ok": None}]
        (ending,) = await one.run(one.launch("die", [9], sandbox=boxed))
        assert not ending.ok
        (ending,) = await one.run(one.launch("sleep", [60], sandbox=boxed, time=0.2))
        assert ending.reason is Why.TIMEOUT
    assert (tmp_path / "jobs/3.1/stdout").read_text() == "inside\n"
    await until(lambda: not workers(tmp_path))


async def test_standard_input_is_empty(tmp_path):
    async with bench(tmp_path) as one:
        assert await one.call("read_stdin", []) == [{"ok": ""}]


def _fields(job: Launch) -> dict[str, Any]:
    return {name: getattr(job, name) for name in Launch.__struct_fields__}
