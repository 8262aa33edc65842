"""A factory that starts pilots for hubs, and hubs that reach no batch system but through it."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pilotage.edge.factory import view
from pilotage.hub import tls
from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.project import tokens
from testbed.ports import free_port
from tests.driven import Ahead
from tests.sites import PATIENCE, SITE, SRC, Farm

POOL = "burst"
#: The site of the factory, as it calls it itself.
OURS = "batch"
OVER = {"down", "failed", "lost"}
_QUICK = """
interval = "0.5s"

[pilot]
cpus = 1

[control]
patience = "0.5s"
haste = "0.5s"
rest = "1s"
ski = 0.0
"""


class Frontend(Farm):
    """A hub with a pool at a site that a factory feeds."""

    def __init__(self, root: Path, *, maximum: int) -> None:
        super().__init__(root, 'batch = "factory"\n')
        self.name = root.name
        self.port = free_port()
        (root / "pilotage.toml").write_text(
            f'[hub]\ntls = "on"\nport = {self.port}\n'
            '[pilots]\nsandbox = "none"\nheartbeat = "0.5s"\nlease = "1m"\n'
        )
        with Project(root) as project:
            # A hub that is killed as it starts may not have come to this.
            tls.context(project.settings.hub, project.state)
        (root / "pools").mkdir()
        self.pool(maximum)

    def pool(self, maximum: int) -> None:
        """Write the file of the pool."""
        file = self.root / "pools" / f"{POOL}.toml"
        file.write_text(f'site = "{SITE}"\nmaximum = {maximum}\npending = {maximum}\n{_QUICK}')

    def queue(self, count: int, seconds: float) -> list[int]:
        """Queue jobs that only pilots of the pool run."""
        asked = f'pool == "{POOL}"'
        return self.submit(count, more=f"sleep {seconds}", site="", requirements=asked)

    def start(self, *words: str, crash: str = "") -> subprocess.Popen[bytes]:
        """Start the hub; nothing runs on its own machine."""
        program = [sys.executable, "-m", "pilotage", "hub", "--project", str(self.root), *words]
        env = {**os.environ, "PYTHONPATH": str(SRC), "PILOTAGE_DEBUG": "1", **self.env}
        if crash:
            env["PILOTAGE_CRASH_AT"] = crash
        with (self.root / ".said").open("a") as said:
            self._hub = subprocess.Popen(program, env=env, stdout=said, stderr=subprocess.STDOUT)
        return self._hub

    def token(self, site: str = SITE) -> str:
        """Make a token for a factory."""
        with Project(self.root) as project, project._change() as db:
            now = time.time()
            made = tokens.mint(db, tokens.Scope.FACTORY, "", now=now, lifetime=3600, site=site)
        return made[0]

    def states(self) -> collections.Counter[str]:
        """Count the pilots that there ever were by state."""
        with Project(self.root) as project:
            rows = project.db.rows("pilot_list", states="[]", site=SITE, most=10_000)
        return collections.Counter(row[4] for row in rows)

    def live(self) -> int:
        """Count pilots that are not over."""
        return sum(count for state, count in self.states().items() if state not in OVER)

    def done(self, jobs: list[int]) -> bool:
        """Say whether jobs are done."""
        return all(self.job(one).state is State.DONE for one in jobs)

    def certificate(self) -> Path:
        """Return the certificate of the hub."""
        return self.root / ".pilotage" / "tls" / "certificate.pem"


class Plant:
    """A factory process, which may be killed."""

    def __init__(self, root: Path, site: str, *, env: Mapping[str, str] = {}) -> None:
        self.root = root
        self.env = dict(env)
        for folder in (root / "hubs", root / "sites", root / "there"):
            folder.mkdir(parents=True)
        (root / "pilotage.toml").touch()
        head = f'folder = "{root / "there"}"\npoll = "0.5s"\nsettle = "0.5s"\n'
        (root / "sites" / f"{OURS}.toml").write_text(head + site)
        #: Whether it goes by a clock that `wait` moves.
        self.driven = False
        self._ahead = Ahead(root / ".ahead")
        self._process: subprocess.Popen[bytes] | None = None

    def feed(self, hub: Frontend, *, maximum: int, site: str = SITE) -> None:
        """Write the file of a hub; `site` is one of that hub's."""
        token = self.root / "hubs" / f"{hub.name}.token"
        token.write_text(hub.token(site))
        token.chmod(0o600)
        (self.root / "hubs" / f"{hub.name}.pem").write_text(hub.certificate().read_text())
        self.write(
            hub.name,
            f'url = "https://127.0.0.1:{hub.port}"\ntoken_file = "{token.name}"\n'
            f'ca = "{hub.name}.pem"\nmaximum = {maximum}\npending = {maximum}\n'
            f'interval = "0.5s"\n[sites]\n{site} = "{OURS}"\n',
        )

    def write(self, name: str, text: str) -> None:
        """Write the file of a hub, at once and whole."""
        part = self.root / "hubs" / f".{name}"
        part.write_text(text)
        part.rename(self.root / "hubs" / f"{name}.toml")

    def start(self, *, crash: str = "") -> subprocess.Popen[bytes]:
        """Start `pilotage pool serve`; it kills itself at a crash point."""
        name = self._ahead.program() if self.driven else ["pilotage"]
        program = [sys.executable, "-m", *name, "pool", "serve", "--project", str(self.root)]
        path = f"{SRC}:{SRC.parent}"
        env = {**os.environ, "PYTHONPATH": path, "PILOTAGE_DEBUG": "1", **self.env}
        if crash:
            env["PILOTAGE_CRASH_AT"] = crash
        with (self.root / ".said").open("a") as said:
            self._process = subprocess.Popen(
                program, env=env, stdout=said, stderr=subprocess.STDOUT
            )
        return self._process

    def stay(self) -> None:
        """Start `pilotage pool serve` unless it runs."""
        if self._process is None:
            self.start()

    def as_hub(self) -> subprocess.Popen[bytes]:
        """Start `pilotage up` in the folder of the factory, which is refused."""
        program = [sys.executable, "-m", "pilotage", "up", "--project", str(self.root)]
        env = {**os.environ, "PYTHONPATH": str(SRC), **self.env}
        with (self.root / ".said").open("a") as said:
            return subprocess.Popen(program, env=env, stdout=said, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        """What all processes printed."""
        file = self.root / ".said"
        return file.read_text() if file.exists() else ""

    def kill(self) -> None:
        """End the factory as a power cut would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def dies(self, crash: str) -> None:
        """Run until it kills itself at a point."""
        process = self.start(crash=crash)
        try:
            assert process.wait(timeout=PATIENCE) == -signal.SIGKILL, self.said
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.said}") from None
        finally:
            self.kill()

    def wait(
        self, condition: Callable[[], object], patience: float = PATIENCE, passing: float = 0.0
    ) -> None:
        """Wait until a condition holds; the factory must not end by itself meanwhile.

        After each look in vain so many seconds pass for the factory, if it is driven.
        """
        deadline = time.monotonic() + patience
        while not condition():
            assert self._process is None or self._process.poll() is None, self.said[-6000:]
            assert time.monotonic() < deadline, self.said[-6000:]
            time.sleep(0.1)
            if passing:
                assert self.driven
                self._ahead.advance(passing)

    def hub(self, name: str) -> view.Look:
        """See one hub as `pool hubs` does."""
        with Project(self.root) as project:
            found = view.hubs(project.db, project.root, project.clock.now())
        return next(one for one in found if one.name == name)

    def guests(self) -> list[tuple[str, int, str]]:
        """List all pilots that are not forgotten, by hub and number, with their states."""
        with Project(self.root) as project:
            return list(project.db._connection.execute("SELECT hub, remote, state FROM guest"))

    def submitted(self) -> list[int]:
        """List which pilots were ever handed to the batch system, once for each time."""
        query = "SELECT pilot FROM submitted WHERE pilot IS NOT NULL"
        with Project(self.root) as project:
            return [row[0] for row in project.db._connection.execute(query)]
