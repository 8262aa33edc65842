"""What a payload finds in a sandbox, and what its end tells: the same as without one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from pilotage.job import model
from pilotage.payload.starter import process
from pilotage.run import Ending, EndReason, Launch, Started, Starter, evidence, launch
from pilotage.run.model import Sandbox
from tests.rigs.node import sandbox_users
from tests.rigs.node.sandbox import PROGRAMS, SandboxRig, opened
from tests.suite import system

pytestmark = [pytest.mark.anyio, pytest.mark.needs("root", "setpriv", "useradd")]

KINDS = list(PROGRAMS)
NASTY = """'"; touch pwned; $(touch pwned) `touch pwned` & | > pwned
-rf * \\ {keeper}/x %s ,src=/"""


@pytest.fixture(scope="module")
def ward() -> Iterator[sandbox_users.SandboxUsers]:
    system.needs("root", "setpriv", "useradd")
    with sandbox_users.ward() as made:
        yield made


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    system.needs(*PROGRAMS[request.param])
    return str(request.param)


@pytest.fixture
def scene(ward, kind, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    return lambda: opened(ward, kind)


def owners(one: Launch, *names: str) -> set[str]:
    return {Path(one.dir, name).owner() for name in names}


def outside(pid: int) -> tuple[dict[str, str], str]:
    return process.environ(pid), Path(f"/proc/{pid}/cmdline").read_text()


async def test_exit_codes_and_signals_pass_through(scene):
    async with scene() as made:
        for script, expected in (
            ("true", (EndReason.EXITED, 0, None)),
            ("exit 3", (EndReason.EXITED, 3, None)),
            ("exit 255", (EndReason.EXITED, 255, None)),
            ("kill -SEGV $$", (EndReason.SIGNALLED, None, signal.SIGSEGV)),
        ):
            _, end = await made.run("sh", "-c", script)
            assert (end.reason, end.exit, end.signal) == expected, script
        one, end = await made.run("no-such-program")
        assert end.exit in {1, 127}
        assert made.output(one, "stderr")


async def test_output_files_and_environment_are_its_own(scene, ward):
    code = (
        "print(open('in put').read(), sorted(os.environ), os.getcwd())\n"
        "print(sorted(map(int, os.listdir('/proc/self/fd'))), os.read(0, 1))\n"
        "print([name for name in os.listdir('/proc') if name.isdigit()])\n"
        "print('wrong', file=sys.stderr); open('made', 'w').write('x')"
    )
    async with scene() as made:
        one, end = await made.python(code, env={"A": "b c"}, files={"in put": "über"})
        assert end.ok, made.output(one, "stderr")
    said = made.output(one).splitlines()
    assert said[0].startswith("über")
    assert "'A'" in said[0]
    assert "TOKEN" not in said[0]
    assert said[0].endswith(one.dir)
    assert said[1] == "[0, 1, 2, 3] b''"  # the last is the listing itself
    assert len(said[2].split(",")) <= 3
    assert made.output(one, "stderr") == "wrong\n"
    assert owners(one, "made", "stdout", "in put") == {ward.name}


async def test_the_polite_signal_comes_first_and_the_deadly_one_after_the_grace(scene):
    hears = (
        "def hear(*_): print('heard', flush=True); sys.exit(7)\n"
        "signal.signal(signal.SIGTERM, hear); print('ready', flush=True); time.sleep(60)"
    )
    deaf = (
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True)\ntime.sleep(60)"
    )
    async with scene() as made:
        for code, exit_code, number, word in (
            (hears, 7, None, "heard"),
            (deaf, None, signal.SIGKILL, "ready"),
        ):
            one = made.launch(sandbox_users.PYTHON, "-c", f"import os, signal, sys, time\n{code}")
            await made.starter.start([one])
            await made.until(lambda one=one: "ready" in made.output(one))
            await made.starter.stop(one.key, "enough", grace=0.5 if number else 30)
            end = await made.end_of(one)
            assert (end.reason, end.exit, end.signal) == (EndReason.STOPPED, exit_code, number)
            assert word in made.output(one)


async def test_what_it_used_is_measured_and_bounded(scene):
    busy = "block = bytearray(64 << 20)\nwhile time.process_time() < 0.3: pass"
    greedy = "block = bytearray(b'x') * (200 << 20)\ntime.sleep(60)"
    async with scene() as made:
        _, end = await made.python(busy, memory=128 << 20)
        assert end.ok
        assert end.usage is not None
        assert 0.2 < end.usage.cpu_user + end.usage.cpu_system < 5
        assert end.usage.max_rss > 64 << 20
        _, end = await made.python(greedy, memory=100 << 20)
        assert end.reason is EndReason.MEMORY


async def test_no_text_is_ever_a_command(scene):
    code = "print(json.dumps([sys.argv[1:], os.environ['A'], os.listdir('.')]))"
    async with scene() as made:
        argv = [
            sandbox_users.PYTHON,
            "-c",
            f"import json, os, sys\n{code}",
            NASTY,
            "{keeper}/env",
            "{user}",
        ]
        key = "9;touch pwned $(id) 'x'.1"
        place = str(made.ward.work / "jobs" / key)
        name = "a'b\"; $(touch pwned)\n.txt"
        more = {"key": key, "dir": place, "cwd": place, "files": {name: "x"}}
        one = made.launch(*argv, env={"A": "$(id); 'x' \"y\""}, **more)
        await made.starter.start([one])
        end = await made.end_of(one)
        assert end.ok, made.output(one, "stderr")
    told, variable, files = json.loads(made.output(one))
    assert told == [NASTY, "{keeper}/env", "{user}"]
    assert variable == "$(id); 'x' \"y\""
    assert set(files) == {name, "stdout", "stderr"}


async def test_its_variables_are_for_inside_alone(scene):
    """Whatever loads code by name would run it with the pilot's rights."""
    hostile = {"LD_PRELOAD": "/no/such.so", "PYTHONPATH": "/no", "CONTAINERS_CONF": "/no/such"}
    async with scene() as made:
        one = made.launch("sleep", "60", env=hostile)
        await made.starter.start([one])
        [begun] = [report for report in await anext(made.starter) if isinstance(report, Started)]
        await anyio.sleep(0.3)
        environ, cmdline = outside(begun.pid)
    assert not {"LD_PRELOAD", "PYTHONPATH", "CONTAINERS_CONF"} & set(environ)
    assert "/no/such" not in cmdline


async def test_folders_are_shown_as_asked(scene, ward, kind):
    shared = ward.root / "shared"
    for name in ("read", "write", "hidden"):
        (shared / name).mkdir(parents=True, exist_ok=True)
        ward.write(shared / name / "file", name)
        (shared / name / "file").chmod(0o644)
        (shared / name).chmod(0o777 if name == "write" else 0o755)
    box = {"readable": (str(shared / "read"),), "writable": (str(shared / "write"),)}
    script = f"cd {shared}; cat read/file write/file hidden/file; touch read/new; touch write/new"
    async with scene() as made:
        one, _ = await made.run("sh", "-c", script, box=box)
    assert made.output(one).startswith("readwrite")
    assert (shared / "write" / "new").exists()
    assert not (shared / "read" / "new").exists()
    # Another user sees what everybody sees; the others see nothing.
    assert ("hidden" in made.output(one)) is (kind == "user")
    (shared / "write" / "new").unlink()


async def test_without_network_there_is_only_the_loop(scene):
    script = "cat /proc/net/dev | tail -n +3"
    async with scene() as made:
        one, _ = await made.run("sh", "-c", script, box={"network": False})
    assert [line.split(":")[0].strip() for line in made.output(one).splitlines()] == ["lo"]


async def test_a_link_leads_the_starter_nowhere(scene, ward):
    ward.write(ward.note, "the pilot's own")
    script = f"ln -s {ward.note} exit.json.part; ln -s {ward.token_file} result.json"
    async with scene() as made:
        one, end = await made.run("sh", "-c", script, result=True)
    assert end.result is None
    assert evidence(one.dir) is not None
    assert ward.note.read_text() == "the pilot's own"


def test_probing_finds_what_works(ward, kind):
    code = "import sys; sys.path.insert(0, sys.argv[1])\nimport sandbox\nprint(sandbox.available())"
    home = str(ward.starter().parent)
    argv = ward.command(sandbox_users.PYTHON, "-I", "-S", "-c", code, home)
    said = subprocess.run(argv, capture_output=True, text=True, check=True, cwd="/").stdout
    assert kind in said
    assert "none" in said


async def test_it_works_from_a_zip_file(ward, kind, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    packed = ward.root / "pilot.pyz"
    with zipfile.ZipFile(packed, "w") as file:
        for path in sorted((ward.root / "code").rglob("*.py")):
            file.write(path, path.relative_to(ward.root / "code"))
        file.writestr(
            "__main__.py", "import sys\nfrom starter.program import main\nmain(sys.argv[1:])"
        )
    monkeypatch.setattr("pilotage.run.starter._PROGRAM", packed)
    async with opened(ward, kind) as made:
        one, end = await made.run("echo", "fine")
    assert end.ok, made.output(one, "stderr")
    assert made.output(one) == "fine\n"


@pytest.fixture
def image(ward, needs) -> str:
    """Make an image of a single program, as no registry can be reached."""
    needs("podman", "busybox", "newuidmap", "catatonit", "tar")
    tree, archive = ward.root / "image", ward.root / "image.tar"
    (tree / "bin").mkdir(parents=True)
    shutil.copy(system.find("busybox") or "", tree / "bin" / "busybox")
    (tree / "bin" / "sh").symlink_to("busybox")
    subprocess.run(["tar", "-C", str(tree), "-cf", str(archive), "."], check=True)
    argv = ward.command("podman", "--log-level=error", "import", str(archive), "pilotage-test")
    subprocess.run(argv, check=True, cwd="/", capture_output=True)
    return "localhost/pilotage-test"


async def test_podman_runs_an_image(ward, image, monkeypatch):
    sandbox_users.shift(monkeypatch, ward)
    script = "busybox id -u; echo *; busybox ls /usr"
    async with opened(ward, "podman") as made:
        one, end = await made.run("sh", "-c", script, box={"image": image}, env={"PATH": "/bin"})
    assert end.exit == 1  # there is no /usr in this image
    assert made.output(one).split() == [str(ward.uid), "stderr", "stdout"]


@pytest.mark.needs("bwrap", "prlimit")
async def test_root_can_not_fork_without_end_either(ward):
    async with Starter.open(ward.root / "state") as starter:
        made = SandboxRig(ward, "bubblewrap", 0, starter)
        place = str(ward.root / "job")
        one = await made.attempt("forks", {}, limits={"processes": 30}, dir=place, cwd=place)
        said = await made.said(one, "forked")
        assert 0 < said[-1]["forked"] < 30


@pytest.mark.needs("bwrap", "prlimit")
async def test_a_worker_that_stays_can_be_in_a_sandbox(tmp_path):
    source = f"import os\ndef look():\n    return [os.getpid(), os.path.exists({str(tmp_path)!r})]"
    spec = model.JobSpec(model.Call("look", source=source), "look")
    order = model.Binding(data={"calls": [[[], {}]]})
    place, box = launch.LaunchContext(str(tmp_path)), Sandbox(kind="bubblewrap")
    found = []
    async with Starter.open(tmp_path, slots=1) as starter:
        for job in (1, 2):
            folder = str(tmp_path / f"{job}.1")
            made = launch.prepare(
                place, spec, order, job=job, attempt=1, folder=folder, sandbox=box
            )
            assert made.launch.warm
            await starter.start([made.launch])
            found.append((await ended(starter)).result)
    answers = [json.loads(bytes(one))["returns"] for one in found]
    assert answers[0] == answers[1]  # the same process has answered
    assert answers[0][0]["ok"][1] is False


async def ended(starter: Starter) -> Ending:
    with anyio.fail_after(sandbox_users.PATIENCE):
        while True:
            for report in await anext(starter):
                if isinstance(report, Ending):
                    return report
