#!/usr/bin/env python3
"""Print the modules that four pieces of work enter, process by process, and bound their number.

usage: walk.py [-v] [NAME...]    -v names the functions, too

Real processes do each piece of work in a temporary project, twice: the first time they load what
they need, the second time is traced. A module that a process also enters while it has no work is
not part of the walk. A bound is the value that was reached: it may fall and never rise.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

SOURCE = Path(__file__).resolve().parent.parent / "src" / "pilotage"
#: The most modules that each process may enter.
BOUNDS = {
    "file": {"hub": 20, "starter": 9},
    "call": {"program": 6, "hub": 19, "pilot": 2, "starter": 5},
    "message": {
        "hub": 31, "agent": 44, "login helper": 6, "queue of a machine": 5, "batch job": 12,
    },
    "flow": {
        "hub": 76, "login helper": 7, "queue of a machine": 5, "batch job": 12, "file sender": 2,
    },
}  # fmt: skip
TITLES = {
    "file": "a file becomes a local result",
    "call": "a Python call runs at a pilot and returns",
    "message": "a message becomes a batch job and its status",
    "flow": "a file starts a workflow over two sites",
}
#: Processes by what is on their command line; others are `starter`s.
ROLES = {
    "pilotage.node": "pilot",
    "agent run": "agent",
    "pilotage up": "hub",
    "pilotage hub": "hub",
    "caller.py": "program",
    "hand": "login helper",
    "local": "queue of a machine",
    "send": "file sender",
    "job": "batch job",
}
#: By process the modules that it enters, in order, and their functions.
Entered = dict[str, dict[str, list[str]]]
IDLE, WORK = 1, 2
#: Longer than the periods of what processes do without work.
IDLE_S = 7.0
SETTLE_S = 1.5
PATIENCE_S = 120.0

#: Loaded by each Python as `sitecustomize`. The phase is a byte in memory that all share; functions
#: are appended to a file as they are entered first.
TRACER = """
import mmap, os, sys, threading

_at = os.path.dirname(os.path.abspath(__file__))
with open(_at + "/phase", "rb") as _file:
    _phase = mmap.mmap(_file.fileno(), 1, prot=mmap.PROT_READ)
_seen = [set() for _ in range(3)]
_words = " ".join(sys.orig_argv[1:]).replace(chr(10), " ").replace(chr(9), " ")

def _entered(frame, event, _):
    if event != "call":
        return
    code, phase = frame.f_code, _phase[0]
    seen = _seen[phase]
    # The bodies of modules and classes have no fast locals: loading a module is not entering it.
    if code in seen or not phase or not code.co_flags & 1:
        return
    seen.add(code)
    path = code.co_filename
    if path.endswith(".py"):
        # Some processes close all files that they did not open.
        out = os.open(_at + "/entered", os.O_WRONLY | os.O_APPEND)
        line = (str(phase), _words, path, code.co_qualname + chr(10))
        os.write(out, chr(9).join(line).encode())
        os.close(out)

def _forked():
    for seen in _seen:
        seen.clear()

os.register_at_fork(after_in_child=_forked)
threading.setprofile(_entered)
sys.setprofile(_entered)
sys.executable = _at + "/python"
"""
#: Stands for Python where it is started in isolated mode, which loads no `sitecustomize`.
RUNNER = """
import os, runpy, sys

import sitecustomize

sys.path.remove(os.path.dirname(os.path.abspath(__file__)))
words = sys.argv[1:]
while words[0] in ("-I", "-S", "-E", "-B", "-u", "-X"):
    del words[: 2 if words[0] == "-X" else 1]
kind = words.pop(0)
if kind == "-c":
    source = words.pop(0)
    sys.argv = ["-c", *words]
    exec(compile(source, "<string>", "exec"), {"__name__": "__main__"})
elif kind == "-m":
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
else:
    sys.argv = [kind, *words]
    runpy.run_path(kind, run_name="__main__")
"""
PROGRAM = """
import sys
import pilotage

def double(number):
    return 2 * number

with pilotage.connect() as client:
    for line in sys.stdin:
        with open(line.strip(), "x") as file:
            file.write(str(client.submit(double, 21).result()))
"""
FLOW = """
name = "walk"
required = ["raw"]
to = "home"

[step.count]
site = "one"
inputs = [{ from = "{raw}", as = "in.txt" }]
run = ["sh", "-c", "wc -l < in.txt > lines"]
outputs = ["lines"]

[step.write]
site = "two"
inputs = ["count"]
run = ["cp", "lines", "sum"]
outputs = ["sum"]
"""
FLOW_RULE = """
[rule.start]
files = "inbox/*.txt"
flow = "walk.toml"
params = { raw = "{path}" }
"""


class Scene:
    """A project in a temporary folder, processes that are traced, and what they enter."""

    def __init__(self, top: Path) -> None:
        self.top, self.lab = top, top / "lab"
        self._trace = top / "trace"
        self._trace.mkdir()
        (self._trace / "phase").write_bytes(b"\0")
        (self._trace / "entered").touch()
        (self._trace / "sitecustomize.py").write_text(TRACER)
        (self._trace / "runner.py").write_text(RUNNER)
        self.python = self._trace / "python"
        self.python.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" "{self._trace}/runner.py" "$@"\n'
        )
        self.python.chmod(0o755)
        self._processes: list[subprocess.Popen[str]] = []
        self.pilotage("init", str(self.lab), cwd=top)
        (self.lab / "inbox").mkdir()

    def pilotage(self, *words: str, cwd: Path | None = None) -> str:
        """Run a command, untraced."""
        command = [sys.executable, "-m", "pilotage", *words]
        done = subprocess.run(
            command,
            cwd=cwd or self.lab,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )
        if done.returncode:
            raise SystemExit(f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self, *words: str, cwd: Path | None = None) -> subprocess.Popen[str]:
        """Start a traced process of Python."""
        env = os.environ | {"PYTHONPATH": str(self._trace)}
        with (self.top / "said").open("a") as said:
            process = subprocess.Popen(
                [sys.executable, *words], cwd=cwd or self.lab, env=env, text=True,
                stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return process

    def up(self, *words: str) -> None:
        """Run the hub of the project."""
        (self.lab / "pilotage.toml").write_text("[hub]\nport = 0\n")
        self.start("-m", "pilotage", *(words or ("up",)))
        self.wait((self.lab / ".pilotage" / "hub.json").exists)

    def url(self) -> str:
        """Return the address of the hub."""
        return str(json.loads((self.lab / ".pilotage" / "hub.json").read_text())["url"])

    def wait(self, condition: Callable[[], object]) -> None:
        """Wait until something is there."""
        until = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > until or any(one.poll() for one in self._processes):
                self.fail("no result")
            time.sleep(0.05)

    def fail(self, message: str) -> NoReturn:
        """Give up, with what the processes printed."""
        raise SystemExit(f"{message}: {(self.top / 'said').read_text()[-4000:]}")

    def trace(self, work: Callable[[str], None]) -> Entered:
        """Do a piece of work; return the modules that each process enters for it alone."""
        work("warm")
        for phase in (IDLE, WORK):
            time.sleep(SETTLE_S)
            with (self._trace / "phase").open("r+b") as file:
                file.write(bytes([phase]))
            if phase == IDLE:
                time.sleep(IDLE_S)
            else:
                work("walk")
                time.sleep(SETTLE_S)
        return self._entered()

    def _entered(self) -> Entered:
        idle: dict[str, set[str]] = defaultdict(set)
        found: Entered = defaultdict(dict)
        for line in (self._trace / "entered").read_text().splitlines():
            phase, words, path, function = line.split("\t")
            role, module = _role(words), _module(path)
            if int(phase) == IDLE:
                idle[role].add(module)
            elif module and module not in idle[role]:
                found[role].setdefault(module, []).append(function)
        return {role: modules for role, modules in found.items() if modules}

    def end(self) -> None:
        """End all processes."""
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


# -- the walks -------------------------------------------------------------------------------------


def walk_file(scene: Scene) -> Entered:
    """Have the example rule of a new project make a result of a file."""
    scene.up()
    return scene.trace(lambda name: _put(scene, name, scene.lab / "outbox" / f"{name}.txt"))


def walk_call(scene: Scene) -> Entered:
    """Call a function that runs at a pilot."""
    scene.up("hub")
    secret = scene.top / "secret"
    secret.write_text(scene.pilotage("token", "new", "enrol", "--quiet"))
    secret.chmod(0o600)
    scene.start(
        "-m", "pilotage.node", "--hub", scene.url(), "--secret-file", str(secret),
        "--writable", str(scene.python.parent),
    )  # fmt: skip
    (scene.top / "caller.py").write_text(PROGRAM)
    program = scene.start(str(scene.top / "caller.py"))

    def call(name: str) -> None:
        result = scene.top / name
        print(result, file=program.stdin, flush=True)
        scene.wait(lambda: result.exists() and result.read_text() == "42")

    return scene.trace(call)


def walk_message(scene: Scene) -> Entered:
    """Send a job to the agent of a site, which runs it by its batch system."""
    site = scene.top / "site"
    scene.up("hub")
    words = ("agent", "setup", "far", "--batch", "local", "--hub", scene.url())
    scene.pilotage(*words, "--folder", str(site))
    settings = site / "agent.toml"
    batch = f'batch = "local"\npython = "{scene.python}"\nfolder = "{scene.top}/nodes"\n'
    head, mark, _ = settings.read_text().partition("[batch]\n")
    settings.write_text(head + mark + batch)
    token = site / "hub-token"
    token.write_text(scene.pilotage("token", "new", "agent", "--site", "far", "--quiet"))
    token.chmod(0o600)
    scene.pilotage("app", "add", "count", "/usr/bin/wc", "/etc/passwd", cwd=site)
    scene.start("-m", "pilotage", "agent", "run", str(site), cwd=site)
    job = {"name": "walk", "recipe": {"kind": "app", "app": "count"}, "site": "far"}
    (scene.lab / "job.json").write_text(json.dumps(job))

    def send(_: str) -> None:
        scene.pilotage("submit", "--wait", str(scene.lab / "job.json"))

    return scene.trace(send)


def walk_flow(scene: Scene) -> Entered:
    """Have a rule start a workflow whose steps run at two sites."""
    (scene.lab / "rules" / "example.toml").write_text(FLOW_RULE)
    (scene.lab / "walk.toml").write_text(FLOW)
    (scene.lab / "sites").mkdir()
    for name in ("one", "two"):
        (scene.top / name).mkdir()
        text = f'batch = "local"\nfolder = "{scene.top / name}"\npython = "{scene.python}"\n'
        (scene.lab / "sites" / f"{name}.toml").write_text(text)
    scene.up()
    done: set[Path] = set()

    def run(name: str) -> None:
        (scene.lab / "inbox" / f"{name}.txt").write_text("walk\n")
        scene.wait(lambda: len(_sums(scene) - done) > 0)
        done.update(_sums(scene))

    return scene.trace(run)


def _sums(scene: Scene) -> set[Path]:
    return set((scene.lab / "home").rglob("sum"))


def _put(scene: Scene, name: str, result: Path) -> None:
    (scene.lab / "inbox" / f"{name}.txt").write_text("walk\n")
    scene.wait(result.exists)


WALKS = {"file": walk_file, "call": walk_call, "message": walk_message, "flow": walk_flow}


def main() -> int:
    """Print walks; return 1 if one is over its bound."""
    names = [one for one in sys.argv[1:] if one in WALKS] or list(WALKS)
    with ThreadPoolExecutor() as threads:
        found = dict(zip(names, threads.map(_walk, names), strict=True))
    over = [_show(name, found[name]) for name in names]
    return int(any(over))


def _walk(name: str) -> Entered:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as top:
        scene = Scene(Path(top))
        try:
            return WALKS[name](scene)
        finally:
            scene.end()


def _show(name: str, found: Entered) -> bool:
    """Print a walk; return whether it is over a bound."""
    over = False
    print(f"  {TITLES[name]}")
    for role, modules in found.items():
        value, bound = len(modules), BOUNDS[name].get(role, 0)
        over |= value > bound
        groups = list(_grouped(modules))
        back = len(groups) - len({package for package, _ in groups})
        mark = "  <- over its bound" if value > bound else ""
        print(f"  {value:6} of {bound:3}  modules in the {role}, {back} returns{mark}")
        for package, inside in groups:
            print(f"                {package:8} {' '.join(inside)}")
        if "-v" in sys.argv[1:]:
            lines = (f"{one}: {' '.join(functions)}" for one, functions in modules.items())
            print(textwrap.indent("\n".join(lines), " " * 16))
    return over


def _grouped(modules: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield packages in the order in which they are entered, and their modules."""
    parts = (module.partition(".") for module in modules)
    for package, inside in itertools.groupby(parts, lambda one: one[0]):
        yield package, [rest or head for head, _, rest in inside]


def _role(words: str) -> str:
    for mark, role in ROLES.items():
        if f" {mark} " in f" {words} " or f"/{mark} " in f"{words} ":
            return role
    return "starter"


def _module(path: str) -> str:
    """Name the module of a file; programs at nodes are copies, in folders and archives."""
    parts = Path(path).parts
    if "site-packages" in parts or path.startswith(sys.base_prefix):
        return ""
    for at in range(1, len(parts)):
        for above in ((), ("payload",), ("node",)):
            if (SOURCE.joinpath(*above, *parts[at:])).is_file():
                module = ".".join((*above, *parts[at:])).removesuffix(".py")
                return module.removesuffix(".__init__")
    return ""


if __name__ == "__main__":
    sys.exit(main())
