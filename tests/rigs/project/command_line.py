"""A person with a project: the command line, a hub in a process of its own, and files of sites."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pilotage.hub.project import Project
from pilotage.job import machine
from pilotage.job.model import Job, State
from testbed.ports import free_port
from testbed.ssh import Sshd
from tests.suite.programs import until_ready

SRC = Path(__file__).parents[3] / "src"
#: Generous: real schedulers on a busy machine take their time.
PATIENCE = 110.0
#: Looks often, so that tests need not wait.
QUICK = 'poll = "0.5s"\nsettle = "1s"\n'


class CommandLine:
    """A project, and all that a person does with it."""

    def __init__(self, root: Path, *, rules: str = "", settings: str = "", hub: str = "") -> None:
        """Make the project; `hub` is more for the table of the hub."""
        self.root = root
        for folder in ("rules", "sites"):
            (root / folder).mkdir(parents=True)
        self.rules(rules)
        settings = f"[hub]\nport = {free_port()}\n{hub}\n{settings}"
        (root / "pilotage.toml").write_text(settings)
        self._hub: subprocess.Popen[bytes] | None = None

    def rules(self, text: str) -> None:
        """Write the book of rules."""
        (self.root / "rules" / "book.toml").write_text(text)

    def site(self, name: str, text: str) -> None:
        """Write the file of a site."""
        (self.root / "sites" / f"{name}.toml").write_text(QUICK + text)

    def write(self, path: str, content: str | bytes = "") -> Path:
        """Write a file of the project, seen at once as a whole."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        part = self.root / ".new"
        part.write_bytes(content.encode() if isinstance(content, str) else content)
        part.rename(file)
        return file

    def read(self, path: str) -> str:
        """Read a file of the project."""
        return (self.root / path).read_text()

    # -- the command line ------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """What commands have in their environment."""
        return {**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "200", "NO_COLOR": "1"}

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a command as a person does, in the project's folder."""
        return subprocess.run(
            self.argv(*words), cwd=self.root, env=self.env, capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    @staticmethod
    def argv(*words: str) -> list[str]:
        """Write the call of a command."""
        return [sys.executable, "-m", "pilotage", *words]

    def run(self, *words: str) -> str:
        """Run a command that works; return what it prints."""
        done = self.call(*words)
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}\n{self.said}"
        return done.stdout

    def json(self, *words: str) -> Any:
        """Run a command that works; return what it says as data."""
        return json.loads(self.run(*words, "--json"))

    def submit(self, *words: str) -> int:
        """Queue a job."""
        return int(self.run("submit", "-q", *words).split()[-1])

    # -- jobs ------------------------------------------------------------------------------------

    def jobs(self, rule: str = "") -> list[Job]:
        """Read all jobs, or those of a rule."""
        from pilotage.job.records import Selection

        with Project(self.root) as project:
            return [job for job in project.jobs(Selection()) if not rule or job.rule == rule]

    def job(self, number: int) -> Job:
        """Read a job."""
        with Project(self.root) as project:
            return project.job(number)

    def wait(self, condition: Callable[[], object], patience: float = PATIENCE) -> None:
        """Wait until a condition holds."""
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.1)

    def becomes(self, number: int, *states: State) -> Job:
        """Wait until a job is in one of some states."""
        self.wait(lambda: self.job(number).state in states)
        return self.job(number)

    def ends(self, *numbers: int) -> list[Job]:
        """Wait until jobs have ended."""
        self.wait(lambda: all(self.job(one).state in machine.FINAL for one in numbers))
        return [self.job(one) for one in numbers]

    def made(self, rule: str, count: int = 1) -> list[Job]:
        """Wait until a rule has made so many jobs and all of them have ended."""

        def there() -> bool:
            found = self.jobs(rule)
            return len(found) >= count and all(job.state in machine.FINAL for job in found)

        self.wait(there)
        return self.jobs(rule)

    def done(self, *numbers: int) -> None:
        """Wait until jobs are done."""
        for job in self.ends(*numbers):
            assert job.state is State.DONE, f"job {job.id} {job.state}: {job.reason}\n{self.said}"

    def told(self) -> str:
        """Say how things stand, for messages."""
        jobs = [f"{job.id} {job.name} {job.state} {job.reason}" for job in self.jobs()]
        return "\n".join(["", *jobs[:60], self.said[-6000:]])

    # -- the hub ---------------------------------------------------------------------------------

    @property
    def said(self) -> str:
        """What all hubs of this project printed."""
        file = self.root / ".said"
        return file.read_text() if file.exists() else ""

    def start(self, command: str = "up", env: Mapping[str, str] | None = None) -> None:
        """Start the hub."""
        with (self.root / ".said").open("a") as said:
            self._hub = subprocess.Popen(
                self.argv(command), cwd=self.root, env={**self.env, **(env or {})},
                stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT,
            )  # fmt: skip
        until_ready(self._hub, self._runs, lambda: self.said, PATIENCE)
        assert "its rules stay as they were" not in self.said, self.said

    def _runs(self) -> bool:
        with Project(self.root) as project:
            return project.running() and (project.state / "hub.json").exists()

    def stop(self) -> None:
        """End the hub as a person does."""
        assert self._hub is not None
        assert self._hub.poll() is None, self.said
        self._hub.terminate()
        self._hub.wait(timeout=PATIENCE)

    def kill(self) -> None:
        """End the hub as a power cut would."""
        if self._hub is not None:
            self._hub.kill()
            self._hub.wait()

    @contextmanager
    def up(self, command: str = "up") -> Iterator[CommandLine]:
        """Have the hub run while the block does, and take connections down after it."""
        try:
            self.start(command)
            yield self
            self.stop()
        finally:
            self.kill()
            for file in (self.root / "sites").glob("*.toml"):
                if "host =" in file.read_text():
                    self.call("site", "logout", file.stem)


def by_ssh(sshd: Sshd, batch: str = "slurm", *, alias: str = "key", more: str = "") -> str:
    """Write the file of a site that is reached by SSH."""
    return (
        f'batch = "{batch}"\nhost = "{alias}"\nssh_config = "{sshd.config}"\n'
        f'python = "/usr/bin/python3"\nlogin = "127.0.0.1"\n{more}'
    )
