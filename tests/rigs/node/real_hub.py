"""A real hub in a process of its own, which tests may kill and start again, and its secrets."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from pilotage.hub.project import Project
from pilotage.job import machine
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.project import tokens
from testbed.ports import free_port
from tests.rigs.node.scripted_hub import Program, pilot, wait_for
from tests.suite import programs

SRC = Path(__file__).parents[3] / "src"
_HUB = """
import sys
from pathlib import Path
import anyio
from pilotage.hub import process
from pilotage.hub.project import Project

async def main():
    with Project(Path(sys.argv[1])) as project:
        await process.up(project, local=sys.argv[2] == "local", serve=lambda _: None)

anyio.run(main)
"""
#: Beats quickly, so that tests need not wait, and is patient, since machines are noisy.
QUICK = 'heartbeat = "1s"\nlease = "20s"\nsandbox = "none"\n'


class RealHub:
    """A project and the hub that runs it."""

    def __init__(self, root: Path, *, pilots: str = QUICK, hub: str = "", more: str = "") -> None:
        root.mkdir(parents=True)
        self.port = free_port()
        text = f"[hub]\nport = {self.port}\n{hub}\n[pilots]\n{pilots}\n{more}"
        (root / "pilotage.toml").write_text(text)
        self.root = root
        self.project = Project(root)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def _address(self) -> Path:
        return self.project.state / "hub.json"

    @property
    def url(self) -> str:
        return str(msgspec.json.decode(self._address.read_bytes())["url"])

    @property
    def ca(self) -> str:
        return str(msgspec.json.decode(self._address.read_bytes())["ca"])

    def start(self, *, local: bool = False, env: dict[str, str] | None = None) -> None:
        """Start it; with `local` jobs run on this machine, too."""
        self._address.unlink(missing_ok=True)
        command = [sys.executable, "-c", _HUB, str(self.root), "local" if local else ""]
        self.process = subprocess.Popen(
            command, env={**os.environ, "PYTHONPATH": str(SRC), **(env or {})}
        )
        programs.until_ready(self.process, self._address.exists)

    def kill(self) -> None:
        """End it as a power cut would."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def token(self, scope: tokens.TokenScope, owner: str = "me", **facts: object) -> str:
        """Make a token."""
        with self.project.change() as db:
            return tokens.mint(db, scope, owner, now=time.time(), lifetime=3600, **facts)[0]  # type: ignore[arg-type]

    def secret(self) -> str:
        """Make a secret that enrols one pilot."""
        return self.token(tokens.TokenScope.ENROL, uses=1)

    def submit(self, *argv: str, name: str = "job") -> int:
        """Queue a program."""
        return self.project.submit(NewJob(JobSpec(Command(argv), name)))

    def state(self, job: int) -> State:
        """Read the state of a job."""
        return self.project.job(job).state

    def wait(self, *jobs: int, seconds: float = 60) -> None:
        """Wait until jobs have ended."""
        wait_for(lambda: all(self.state(job) in machine.FINAL for job in jobs), seconds)

    def output(self, job: int) -> str:
        """Read what the last attempt of a job wrote."""
        return Path(self.project.attempts(job)[-1].dir, "stdout").read_text()


@contextmanager
def running(root: Path, *, local: bool = False, **settings: str) -> Iterator[RealHub]:
    """Have a hub run while the block does."""
    hub = RealHub(root, **settings)
    try:
        hub.start(local=local)
        yield hub
    finally:
        hub.kill()
        hub.project.close()


@contextmanager
def enrolled(
    hub: RealHub, base: Path, *words: str, inside: tuple[str, ...] = (),
    env: dict[str, str] | None = None, url: str = "",
) -> Iterator[Program]:  # fmt: skip
    """Have a pilot program run while the block does; `inside` is put before its command."""
    base.mkdir(exist_ok=True, parents=True)
    secret = base / "enrol"
    secret.write_text(hub.secret())
    ca: tuple[str, ...] = ()
    if hub.ca:
        ca = ("--ca", str(shutil.copy(hub.ca, base / "ca.pem")))
    program = [*inside, sys.executable, "-m", "pilotage.node"]
    with pilot(
        url or hub.url, base, *words, *ca, "--secret-file", str(secret), program=program, env=env
    ) as one:
        yield one


@contextmanager
def blind(
    hub: RealHub, base: Path, *words: str, env: dict[str, str] | None = None, url: str = ""
) -> Iterator[Program]:
    """Have a pilot program run that does not see the project; this needs bubblewrap."""
    hidden = ("bwrap", "--dev-bind", "/", "/", "--tmpfs", str(hub.root), "--die-with-parent")
    try:
        with enrolled(hub, base, *words, inside=hidden, env=env, url=url) as one:
            yield one
    finally:
        # What was killed is bubblewrap: the pilot ends with it, but a moment later.
        wait_for(lambda: not _named(str(base / "work")))


def _named(word: str) -> list[str]:
    """Find the processes that were started with a word."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if word.encode() in file.read_bytes().split(b"\0"):
                found.append(file.parent.name)
    return found
