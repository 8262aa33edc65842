"""One agent that starts pilots for several hubs, and hubs that reach no batch system but by it."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pilotage.agent import pilots, status
from pilotage.agent.pilots import HubPilots
from pilotage.agent.status import ConnectionStatus
from pilotage.hub import tls
from pilotage.hub.project import Project
from pilotage.job.model import State
from pilotage.project import tokens
from testbed.certificates import put
from testbed.ports import free_port
from testbed.user import User
from tests.rigs.broker import toml
from tests.rigs.cluster.batch_site import PATIENCE, SITE, SRC, SiteProject
from tests.rigs.project.moved_clock import MovedClock

POOL = "burst"
OVER = {"down", "failed", "lost"}
#: Quick, so that a test sees it grow and shrink.
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


class Frontend(SiteProject):
    """A hub with a pool at a site whose agent dials it."""

    def __init__(
        self, root: Path, *, maximum: int, place: Path | None = None, user: User | None = None
    ) -> None:
        super().__init__(root, "", place=place, user=user)
        # Its site is none of its files.
        (root / "sites" / f"{SITE}.toml").unlink()
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

    def pool(self, maximum: int, site: str = SITE) -> None:
        """Write the file of the pool."""
        file = self.root / "pools" / f"{POOL}.toml"
        file.write_text(f'site = "{site}"\nmaximum = {maximum}\npending = {maximum}\n{_QUICK}')

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
        """Make a token for an agent."""
        with Project(self.root) as project, project.change() as db:
            now = time.time()
            made = tokens.mint(db, tokens.TokenScope.AGENT, "", now=now, lifetime=3600, site=site)
        return made[0]

    def states(self) -> collections.Counter[str]:
        """Count the pilots that there ever were by state."""
        return collections.Counter(state for _, state in self.query("SELECT id, state FROM pilot"))

    def query(self, words: str) -> list[tuple[Any, ...]]:
        """Ask the store of the hub."""
        with Project(self.root) as project:
            return list(project.db._connection.execute(words))

    def live(self) -> int:
        """Count pilots that are not over."""
        return sum(count for state, count in self.states().items() if state not in OVER)

    def done(self, jobs: list[int]) -> bool:
        """Say whether jobs are done."""
        return all(self.job(one).state is State.DONE for one in jobs)

    def certificate(self) -> Path:
        """Return the certificate of the hub."""
        return self.root / ".pilotage" / "tls" / "certificate.pem"

    def told(self) -> str:
        """Say how things stand, for messages."""
        rows = self.query("SELECT id, site, state, reason FROM pilot")
        return "\n".join([super().told(), *map(str, rows)])


class Shared:
    """The process of an agent that several hubs share, which may be killed."""

    def __init__(
        self, root: Path, batch: Mapping[str, Any], *, site: str = SITE,
        env: Mapping[str, str] = {}, place: Path | None = None,
    ) -> None:  # fmt: skip
        """Take how its batch system is driven, and a folder that worker nodes see."""
        self.root, self.env = root, dict(env)
        for folder in (root / "apps", place or root / "there"):
            folder.mkdir(parents=True, exist_ok=True)
        quick = {"folder": str(place or root / "there"), "poll": "0.5s", "settle": "0.5s"}
        self._settings: dict[str, Any] = {
            "site": site, "heartbeat": "1s", "limits": {"free": "1M"}, "batch": {**quick, **batch}
        }  # fmt: skip
        self._users: dict[str, Any] = {}
        #: Whether it goes by a clock that `wait` moves.
        self.driven = False
        self._ahead = MovedClock(root / ".ahead")
        self._process: subprocess.Popen[bytes] | None = None

    # -- what it has -----------------------------------------------------------------------------

    def dial(self, hub: Frontend, *, maximum: int, theirs: str = SITE, **more: Any) -> None:
        """Name a hub, which calls the site by a name of its own, and let it order pilots."""
        self.give_token(hub.name, hub.token(theirs))
        put(self.root / f"{hub.name}.pem", hub.certificate().read_bytes())
        table = {
            "url": f"https://127.0.0.1:{hub.port}", "ca": f"{hub.name}.pem", "site": theirs,
            "heartbeat": 1.0, "patience": 10.0, "retry": 0.5, **more,
        }  # fmt: skip
        self.limit(hub.name, maximum)
        self.change({"hubs": {hub.name: table}})

    def give_token(self, name: str, secret: str) -> None:
        """Put the token of a hub where the agent looks for it."""
        token = self.root / f"{name}-token.new"
        token.write_text(f"{secret}\n")
        token.chmod(0o600)
        token.rename(self.root / f"{name}-token")

    def limit(self, user: str, maximum: int) -> None:
        """Let a hub have some cores."""
        self._users[user] = {"maximum": maximum, "pending": maximum}
        limits = {"maximum": 1, "cpus": 2, "time": "5m"}
        app = {"takes": "pilot", "users": [*self._users], "limits": limits, "user": self._users}
        put(self.root / "apps" / "pilot.toml", toml.write(app).encode())

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings, table by table; the file is replaced at once."""
        self._settings = toml.merged(self._settings, settings)
        put(self.root / "agent.toml", toml.write(self._settings).encode())

    def forget(self, name: str) -> None:
        """Dial a hub no more."""
        del self._settings["hubs"][name]
        self.change({})

    # -- its process -----------------------------------------------------------------------------

    def start(self, *, crash: str = "") -> subprocess.Popen[bytes]:
        """Start `pilotage agent run`; it kills itself at a crash point."""
        name = self._ahead.program() if self.driven else ["pilotage"]
        program = [sys.executable, "-m", *name, "agent", "run", str(self.root)]
        path = f"{SRC}:{SRC.parent}"
        env = {**os.environ, "PYTHONPATH": path, "PILOTAGE_DEBUG": "1", **self.env}
        env["PILOTAGE_CRASH_AT"] = crash
        with (self.root / ".said").open("a") as said:
            self._process = subprocess.Popen(
                program, env=env, stdout=said, stderr=subprocess.STDOUT
            )
        return self._process

    def stay(self) -> None:
        """Start it unless it runs."""
        if self._process is None:
            self.start()

    @property
    def said(self) -> str:
        """What all processes printed."""
        file = self.root / ".said"
        return file.read_text() if file.exists() else ""

    def kill(self) -> None:
        """End it as a power cut would; what it started goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def dies(self, crash: str) -> None:
        """Run until it kills itself at a point."""
        process = self.start(crash=crash)
        try:
            assert process.wait(timeout=PATIENCE) == -signal.SIGKILL, f"{crash}\n{self.told()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.told()}") from None
        finally:
            self.kill()

    def wait(
        self, condition: Callable[[], object], patience: float = PATIENCE, passing: float = 0.0
    ) -> None:
        """Wait until a condition holds; the agent must not end by itself meanwhile.

        After each look in vain so many seconds pass for the agent, if it is driven.
        """
        deadline = time.monotonic() + patience
        while not condition():
            assert self._process is None or self._process.poll() is None, self.told()
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.1)
            if passing:
                assert self.driven
                self._ahead.advance(passing)

    # -- what it says ----------------------------------------------------------------------------

    def connection(self, name: str) -> ConnectionStatus | None:
        """See how it goes with a hub as `agent status` does."""
        if not (self.root / ".pilotage" / status.FILE).exists():
            return None
        found = status.read(self.root / ".pilotage").carriers
        return next((one for one in found if one.name == name), None)

    def connected(self, name: str) -> bool:
        """Say whether there is a connection to a hub."""
        found = self.connection(name)
        return found is not None and not found.trouble

    def trouble(self, name: str) -> str:
        """Say what is wrong with the connection to a hub."""
        found = self.connection(name)
        return found.trouble if found else ""

    def held(self, name: str) -> HubPilots:
        """Count the pilots of a hub."""
        with Project(self.root) as project:
            return pilots.held(project.db).get(name, HubPilots())

    def live(self) -> list[tuple[str, str]]:
        """List pilots that are not over, by hub, with their states."""
        return self.query(
            "SELECT user, state FROM edge_job"
            " WHERE state NOT IN ('done', 'failed', 'cancelled', 'rejected')"
        )

    def query(self, words: str) -> list[tuple[Any, ...]]:
        """Ask the store of the agent."""
        with Project(self.root) as project:
            return list(project.db._connection.execute(words))

    def once(self) -> None:
        """Require that each order became one job, and each job one batch job."""
        orders = self.query("SELECT user, token FROM edge_job")
        assert len(orders) == len(set(orders))
        given = self.query("SELECT job FROM submitted WHERE job IS NOT NULL")
        assert len(given) == len(set(given)), self.told()

    def told(self) -> str:
        """Say how things stand, for messages."""
        rows = self.query("SELECT job.id, owner, job.state, reason, asked FROM job")
        seen = self.root / ".pilotage" / status.FILE
        told = msgspec.json.decode(seen.read_bytes())["carriers"] if seen.exists() else []
        return "\n".join([*map(str, rows), *map(str, told), self.said[-6000:]])
