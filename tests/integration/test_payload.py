"""Real processes: what they are given, how they end, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from pilotage.payload.starter import process
from pilotage.run import Ending, EndReason, Launch, Started, Starter, evidence

pytestmark = pytest.mark.anyio

DEADLINE = 60.0
ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
FOREVER = "while True: time.sleep(3600)"


def launch(root: Path, key: str, *argv: str, **more: Any) -> Launch:
    fields = {"env": ENV, "cwd": str(root), "dir": str(root / "attempts" / key)}
    return Launch(key=key, argv=argv, **(fields | more))


def python(root: Path, key: str, code: str, **more: Any) -> Launch:
    return launch(root, key, sys.executable, "-c", f"import os, signal, sys, time\n{code}", **more)


def said_by(one: Launch, stream: str) -> str:
    return Path(one.dir, stream).read_text()


async def until(condition: Callable[[], object]) -> None:
    with anyio.fail_after(DEADLINE):
        while not condition():  # noqa: ASYNC110 - no event comes from another process
            await anyio.sleep(0.005)


async def endings(starter: Starter, count: int) -> dict[str, Ending]:
    found: dict[str, Ending] = {}
    with anyio.fail_after(DEADLINE):
        async for reports in starter:
            found |= {one.key: one for one in reports if isinstance(one, Ending)}
            if len(found) >= count:
                break
    starter.acknowledge(found)
    return found


async def run(root: Path, *launches: Launch) -> dict[str, Ending]:
    async with Starter.open(root) as starter:
        await starter.start(launches)
        return await endings(starter, len(launches))


def holders(root: Path, key: str) -> list[int]:
    """List the processes of a payload; other tests that run meanwhile use the same keys."""
    return [
        pid
        for pid, row in process.table().items()
        if row.state not in "ZX"
        and process.key_of(pid) == key
        and Path(process.environ(pid).get(process.STARTER, "/")).is_relative_to(root)
    ]


async def test_exit_codes_and_signals_are_told_apart(tmp_path):
    ended = await run(
        tmp_path,
        launch(tmp_path, "0.1", "true"),
        launch(tmp_path, "1.1", "sh", "-c", "exit 3"),
        launch(tmp_path, "2.1", "sh", "-c", "kill -SEGV $$"),
    )
    assert ended["0.1"].ok
    assert (ended["1.1"].reason, ended["1.1"].exit) == (EndReason.EXITED, 3)
    assert ended["1.1"].message == "exited with code 3"
    assert (ended["2.1"].reason, ended["2.1"].signal) == (EndReason.SIGNALLED, signal.SIGSEGV)
    assert ended["2.1"].message == "killed by SIGSEGV"
    assert ended["2.1"].exit is None


async def test_a_start_is_reported_before_its_end(tmp_path):
    seen = []
    async with Starter.open(tmp_path) as starter:
        await starter.start([launch(tmp_path, "1.1", "true")])
        with anyio.fail_after(DEADLINE):
            async for reports in starter:
                seen += reports
                if isinstance(seen[-1], Ending):
                    break
    assert [type(report) for report in seen] == [Started, Ending]
    assert seen[0].time <= seen[1].time


async def test_usage_is_measured(tmp_path):
    code = (
        "block = bytearray(64 << 20)\n"
        "while time.process_time() < 0.2: pass\n"
        "open('data', 'wb').write(bytes(1 << 20))\n"
        "os.sync()"
    )
    usage = (await run(tmp_path, python(tmp_path, "1.1", code)))["1.1"].usage
    assert usage is not None
    assert usage.wall >= 0.2
    assert usage.cpu_user + usage.cpu_system >= 0.2
    assert usage.max_rss > 64 << 20
    assert usage.read_bytes >= 0
    assert usage.written_bytes >= 0


async def test_output_and_files_are_in_the_attempt_directory(tmp_path):
    files = {"in put.txt": "über\r\n", "odd\udcff": "\udcfe"}
    script = "cat 'in put.txt'; echo wrong >&2"
    one = launch(
        tmp_path, "1.1", "sh", "-c", script, cwd=str(tmp_path / "attempts/1.1"), files=files
    )
    assert (await run(tmp_path, one))["1.1"].ok
    place = tmp_path / "attempts" / "1.1"
    assert (place / "stdout").read_bytes() == "über\r\n".encode()
    assert (place / "stderr").read_text() == "wrong\n"
    assert (place / "odd\udcff").read_bytes() == b"\xfe"
    assert {path.name for path in place.iterdir()} == {"stdout", "stderr", *files}


async def test_a_payload_has_only_what_it_was_given(tmp_path):
    code = (
        "print(sorted(os.environ)); print(os.listdir('/proc/self/fd')); print(os.read(0, 1))\n"
        "print(os.getpgid(0) == os.getpid())\n"
        "print([signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)])\n"
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    one = python(tmp_path, "1.1", code, env={"A": "b", "LC_CTYPE": "C.UTF-8"})
    assert (await run(tmp_path, one))["1.1"].ok
    said = said_by(one, "stdout").splitlines()
    assert said[0] == "['A', 'LC_CTYPE', 'PILOTAGE_KEY', 'PILOTAGE_STARTER']"
    assert said[1] == "['0', '1', '2', '3']"  # the last is the listing itself
    assert said[2:4] == ["b''", "True"]
    assert said[4].count("SIG_DFL") == 3
    assert said[5] == "set()"


async def test_what_cannot_start_says_why(tmp_path):
    (tmp_path / "plain").write_text("echo")
    (tmp_path / "script").write_text("#!/no/such/interpreter\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "noise").write_bytes(b"\0\1\2\3")
    (tmp_path / "noise").chmod(0o755)
    (tmp_path / "claimed").mkdir()
    expected = {
        "no.1": (launch(tmp_path, "no.1", "foo"), "no such program 'foo'"),
        "slash.1": (launch(tmp_path, "slash.1", "./foo"), "no such program './foo'"),
        "mode.1": (launch(tmp_path, "mode.1", "./plain"), "'./plain' is not executable"),
        "folder.1": (launch(tmp_path, "folder.1", "/"), "'/' is not executable"),
        "lines.1": (
            launch(tmp_path, "lines.1", "./script"),
            "interpreter of './script' is missing",
        ),
        "noise.1": (launch(tmp_path, "noise.1", "./noise"), "Exec format error"),
        "cwd.1": (
            launch(tmp_path, "cwd.1", "true", cwd="/no/such"),
            "directory '/no/such': No such",
        ),
        "nul.1": (launch(tmp_path, "nul.1", "true", "a\0b"), "embedded null byte"),
        "none.1": (launch(tmp_path, "none.1"), "no such program ''"),
        "file.1": (launch(tmp_path, "file.1", "true", files={"../x": ""}), "'../x' cannot be"),
        "dir.1": (
            launch(tmp_path, "dir.1", "true", dir=str(tmp_path / "plain/x")),
            "Not a directory",
        ),
        "twice.1": (
            launch(tmp_path, "twice.1", "true", dir=str(tmp_path / "claimed")),
            "the attempt was already claimed",
        ),
    }
    ended = await run(tmp_path, *(one for one, _ in expected.values()))
    for key, (_, words) in expected.items():
        assert ended[key].reason is EndReason.NOT_STARTED, key
        assert ended[key].message.startswith("cannot start: ")
        assert words in ended[key].message
        assert ended[key].usage is None
    assert not list((tmp_path / "claimed").iterdir())


@pytest.mark.parametrize("name", ["a b", "übër", "new\nline", "raw\udcff\udc80", "-", "$(x)`;'\""])
async def test_odd_names_arrive_byte_for_byte(tmp_path, name):
    folder = tmp_path / f"at {name}"
    folder.mkdir()
    program = folder / f"run {name}"
    program.symlink_to(sys.executable)
    code = (
        "import os, sys; w = open('out', 'wb').write\n"
        "w(b'|'.join([os.fsencode(sys.argv[1]), os.environb[b'ODD'], os.getcwdb()]))"
    )
    argv = (f"./run {name}", "-c", code, name)
    more = {"cwd": str(folder), "dir": str(folder / f"made {name}"), "env": ENV | {"ODD": name}}
    one = launch(tmp_path, "1.1", *argv, **more)
    ended = await run(tmp_path, one)
    assert ended["1.1"].ok, said_by(one, "stderr")
    raw = os.fsencode(name)
    assert (folder / "out").read_bytes() == b"|".join([raw, raw, os.fsencode(folder)])


async def test_odd_names_can_be_told(tmp_path):
    ended = await run(tmp_path, launch(tmp_path, "1.1", "no\udcff"))
    assert ended["1.1"].message == r"cannot start: no such program 'no\\xff'"


async def test_a_payload_that_ignores_the_polite_signal_is_killed(tmp_path):
    code = f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\n{FOREVER}"
    ended = await run(tmp_path, python(tmp_path, "1.1", code, timeout=1.0, grace=0.2))
    assert ended["1.1"].reason is EndReason.TIMEOUT
    assert ended["1.1"].signal in {signal.SIGKILL, signal.SIGTERM}
    assert ended["1.1"].message == "stopped after its time limit of 1 s"
    assert not ended["1.1"].ok


async def test_a_payload_may_end_itself_when_its_time_is_up(tmp_path):
    code = f"signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\nopen('up', 'w')\n{FOREVER}"
    async with Starter.open(tmp_path) as starter:
        await starter.start([python(tmp_path, "1.1", code, grace=DEADLINE)])
        await until((tmp_path / "up").exists)
        await starter.stop("1.1", "cancelled by ada", None)
        ended = await endings(starter, 1)
    assert (ended["1.1"].reason, ended["1.1"].exit) == (EndReason.STOPPED, 0)
    assert ended["1.1"].message == "cancelled by ada"


async def test_a_suspended_payload_can_be_stopped(tmp_path):
    async with Starter.open(tmp_path) as starter:
        await starter.start([launch(tmp_path, "1.1", "sh", "-c", "kill -STOP $$")])
        await until(
            lambda: any(process.table()[pid].state == "T" for pid in holders(tmp_path, "1.1"))
        )
        await starter.stop("1.1", "enough", DEADLINE)
        ended = await endings(starter, 1)
    assert (ended["1.1"].reason, ended["1.1"].signal) == (EndReason.STOPPED, signal.SIGTERM)


async def test_stopping_what_does_not_run_does_nothing(tmp_path):
    async with Starter.open(tmp_path) as starter:
        await starter.stop("9.9", "why not", 0)
        await starter.start([launch(tmp_path, "1.1", "true")])
        assert (await endings(starter, 1))["1.1"].ok


async def test_a_payload_that_uses_too_much_memory_is_killed(tmp_path):
    child = "block = bytearray(200 << 20)\\n" + FOREVER
    code = (
        f"import subprocess\nchild = 'import time\\n{child}'\n"
        "subprocess.run([sys.executable, '-c', child])"
    )
    other = python(tmp_path, "2.1", "block = bytearray(50 << 20)", memory=150 << 20)
    ended = await run(tmp_path, python(tmp_path, "1.1", code, memory=150 << 20), other)
    assert ended["2.1"].ok
    assert (ended["1.1"].reason, ended["1.1"].signal) == (EndReason.MEMORY, signal.SIGKILL)
    assert ended["1.1"].message.endswith("MiB of its 150.0 MiB memory")
    assert ended["1.1"].usage is not None
    assert ended["1.1"].usage.max_rss > 150 << 20
    assert not holders(tmp_path, "1.1")


@pytest.mark.parametrize(
    "limits, code, outcome",
    [
        ({"cpu_seconds": 1}, "while True: pass", (EndReason.SIGNALLED, signal.SIGXCPU)),
        (
            {"open_files": 40},
            "sys.exit(len([os.dup(0) for _ in range(60)]))",
            (EndReason.EXITED, None),
        ),
    ],
)
async def test_kernel_limits_hold(tmp_path, limits, code, outcome):
    # Limits come a moment after the start, so the payload waits for them.
    kind = "RLIMIT_CPU" if "cpu_seconds" in limits else "RLIMIT_NOFILE"
    value = next(iter(limits.values()))
    wait = f"import resource\nwhile resource.getrlimit(resource.{kind})[0] != {value}: pass\n"
    ended = await run(tmp_path, python(tmp_path, "1.1", wait + code, limits=limits))
    assert (ended["1.1"].reason, ended["1.1"].signal) == outcome
    assert not ended["1.1"].ok


async def test_an_unknown_limit_is_refused(tmp_path):
    ended = await run(tmp_path, launch(tmp_path, "1.1", "true", limits={"luck": 1}))
    assert ended["1.1"].message == "cannot start: unknown limits ['luck']"


ESCAPES = {
    "child": "subprocess.Popen(sleep)",
    "session": "subprocess.Popen(sleep, start_new_session=True)",
    "daemon": "os.fork() or (os.setsid(), os.fork() or subprocess.run(sleep))",
    "no name": "subprocess.Popen(sleep, start_new_session=True, env={})",
    "no name, same group": "subprocess.Popen(sleep, env={})",
    "ignores": "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsubprocess.Popen(sleep)",
    "tree": "[os.fork() for _ in range(4)]\nsubprocess.Popen(sleep)",
}


@pytest.mark.parametrize("how", ESCAPES)
async def test_nothing_outlives_its_payload(tmp_path, how):
    mark = f"3600.{os.getpid()}{abs(hash(how)) % 10**6}"
    code = (
        f"import subprocess\nsleep = ['sleep', '{mark}']\nmain = os.getpid()\n{ESCAPES[how]}\n"
        "if os.getpid() == main:\n"
        "    while not any(\n"
        f"        b'{mark}' in open(f'/proc/{{pid}}/cmdline', 'rb').read()\n"
        "        for pid in os.listdir('/proc') if pid.isdigit() and int(pid) != main\n"
        "        and os.path.exists(f'/proc/{pid}/cmdline')\n"
        "    ): time.sleep(0.01)\n"
        "    os._exit(0)\n"
    )
    one = python(tmp_path, "1.1", code)
    ended = await run(tmp_path, one)
    assert ended["1.1"].exit == 0, said_by(one, "stderr")
    assert not sleepers(mark)


def sleepers(mark: str) -> list[int]:
    found = []
    for pid, row in process.table().items():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if row.state not in "ZX" and words.startswith(b"sleep") and mark.encode() in words:
            found.append(pid)
    return found


async def test_a_daemon_of_a_running_payload_lives_as_long_as_it(tmp_path):
    code = (
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork(): os._exit(0)\n"
        "    open('daemon', 'w').write(str(os.getpid()))\n"
        f"    {FOREVER}\n"
        f"{FOREVER}"
    )
    async with Starter.open(tmp_path) as starter:
        await starter.start([python(tmp_path, "1.1", code)])
        await until(lambda: len(holders(tmp_path, "1.1")) == 2 and (tmp_path / "daemon").exists())
        await starter.start([launch(tmp_path, f"2.{n}", "true") for n in range(20)])
        await endings(starter, 20)
        assert len(holders(tmp_path, "1.1")) == 2
        await starter.stop("1.1", "enough", 0)
        await endings(starter, 1)
        assert not holders(tmp_path, "1.1")


async def test_many_quick_payloads(tmp_path):
    launches = [launch(tmp_path, f"{n}.1", "/bin/true") for n in range(500)]
    ended = await run(tmp_path, *launches)
    assert len(ended) == 500
    assert all(one.ok for one in ended.values())


async def test_an_acknowledged_end_leaves_no_file(tmp_path):
    one, two = (launch(tmp_path, key, "true") for key in ("1.1", "2.1"))
    async with Starter.open(tmp_path) as starter:
        await starter.start([one])
        await endings(starter, 1)
        await starter.start([two])
        with anyio.fail_after(DEADLINE):
            async for reports in starter:
                if isinstance(reports[-1], Ending):
                    break
    assert evidence(one.dir) is None
    assert evidence(two.dir) == reports[-1]


async def test_a_repeated_order_starts_nothing(tmp_path):
    one = launch(tmp_path, "1.1", "sh", "-c", "echo >> ../../count")
    once = msgspec.structs.replace(one, cwd=str(tmp_path / "attempts/1.1"))
    async with Starter.open(tmp_path) as starter:
        await starter.start([once, once])
        await starter.start([once])
        ended = await endings(starter, 1)
    assert ended["1.1"].ok
    assert (tmp_path / "count").read_text() == "\n"


async def test_slots_keep_the_rest_waiting_in_order(tmp_path):
    code = (
        "open(f'{os.getpid()}.on', 'w'); n = len([f for f in os.listdir() if f.endswith('.on')])\n"
    )
    code += "time.sleep(0.02); os.unlink(f'{os.getpid()}.on'); sys.exit(n > 2)"
    launches = [python(tmp_path, f"{n}.1", code) for n in range(12)]
    order: list[str] = []
    done = 0
    async with Starter.open(tmp_path, slots=2) as starter:
        await starter.start(launches)
        with anyio.fail_after(DEADLINE):
            async for reports in starter:
                order += [one.key for one in reports if isinstance(one, Started)]
                ended = [one for one in reports if isinstance(one, Ending)]
                assert all(one.ok for one in ended), ended
                done += len(ended)
                if done == len(launches):
                    break
    assert order == [one.key for one in launches]


async def test_a_waiting_payload_can_be_stopped(tmp_path):
    async with Starter.open(tmp_path, slots=1) as starter:
        await starter.start([launch(tmp_path, key, "sleep", "3600") for key in ("1.1", "2.1")])
        await until((tmp_path / "attempts/1.1/stdout").exists)
        await starter.stop("2.1", "not wanted", 0)
        ended = await endings(starter, 1)
        assert (ended["2.1"].reason, ended["2.1"].message) == (EndReason.STOPPED, "not wanted")
        assert not (tmp_path / "attempts" / "2.1").exists()


async def test_a_reader_that_is_slow_misses_nothing(tmp_path):
    launches = [
        launch(tmp_path, f"{n}.{'x' * 4000}", "true", dir=str(tmp_path / str(n)))
        for n in range(200)
    ]
    async with Starter.open(tmp_path) as starter:
        await starter.start(launches)
        await until(lambda: len(list(tmp_path.glob("*/stdout"))) == len(launches))
        assert len(await endings(starter, len(launches))) == len(launches)
