"""One hub with every place to run: what all cells of the matrix share.

All see the yard, where payloads say that they begin and end, and wait for their gates. Only this
machine sees the project: pilots and nodes have a mount namespace that hides it.
"""

from __future__ import annotations

import collections
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pilotage
from pilotage.base.owner import me
from pilotage.client.sync import Client
from pilotage.hub.project import Project
from pilotage.job.model import Command, Job, JobSpec, NewJob, Resources
from pilotage.match.explain import explain
from pilotage.match.facts import JobFacts
from pilotage.project import tokens
from pilotage.status.explain import JobExplainer
from testbed.condor import Condor
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from tests.rigs.broker import edge_agent as edges
from tests.rigs.broker import toml
from tests.rigs.broker.amqp_client import AmqpClient
from tests.rigs.broker.dialing_agent import DialingAgent
from tests.rigs.broker.edge_agent import Edge
from tests.rigs.cluster import batch_site
from tests.rigs.cluster.web import serving
from tests.rigs.project.flow_hub import Hub

SRC = Path(__file__).parents[3] / "src"
PATIENCE = 120.0
#: Cores of this machine and of the pilot, as far as the hub knows.
CORES = 32
#: The site that the pilot belongs to, and the pool.
FAR, POOL = "far", "burst"
#: Where a job runs that fills a place.
_FILLED = {"here": "site == 'local'", "pilot": f"site == '{FAR}'"}
#: Which places get no work while the queue of Slurm is down.
_AT_SLURM = ("slurm", "ssh", "edge", "dialled", "pool")
#: Says that it begins, waits for its gate, joins its inputs to its output, says that it ends.
_WORK = """\
set -eu
name=$1 out=$2; shift 2
echo "began $name"
echo "began $name $$" >> '{yard}/ledger'
while [ ! -e "{yard}/gates/$name" ] && [ -d '{yard}/gates' ]; do sleep 0.05; done
mkdir -p "$(dirname "$out")"
cat "$@" > "$out"
echo "ended $name"
echo "ended $name $$" >> '{yard}/ledger'
"""
#: Python on a node that does not see the project; it stays the process that was started.
_BLIND = """\
#!/bin/sh
exec unshare --mount sh -c 'mount -t tmpfs none "$0" && exec {python} "$@"' '{root}' "$@"
"""
#: The parameters of the application that does the work, as a program takes them.
PARAMETERS = ("name", "target", "one", "two", "three")
_APP = {
    "argv": [f"{{{one}}}" for one in PARAMETERS],
    "parameter": {
        one: {"kind": "path"} if one != "name" else {"kind": "text", "pattern": "[a-z0-9-]+"}
        for one in PARAMETERS
    },
}
_POOL = """
site = "slurm"
maximum = 12
interval = "0.5s"
[pilot]
cpus = 4
time = "8m"
[control]
patience = "0.5s"
haste = "0.5s"
rest = "1s"
ski = 0.0
"""
_QUICK = 'poll = "0.5s"\nsettle = "0.5s"\n'


class Bed:
    """The hub, its places, and what happens there."""

    def __init__(
        self, stack: ExitStack, slurm: Slurm, sshd: Sshd, rabbit: Rabbit, condor: Condor | None
    ) -> None:
        """Bring up all but the hub and the pilot; the stack ends it all."""
        self.slurm, self.rabbit, self._condor = slurm, rabbit, condor
        self._top = _below(Path(tempfile.gettempdir()), stack)
        self.root = _folder(self._top / "project")
        self.root.chmod(0o700)
        #: What nodes of all batch systems see.
        self._shared = self._top if condor is None else _below(condor.shared, stack)
        self.yard = self._make_yard()
        self.script = _WORK.format(yard=self.yard)
        blind = _BLIND.format(python="/usr/bin/python3", root=self.root)
        self._python = _executable(self._top / "python", blind)
        #: What the transfer server has, and where it is.
        self.web = _folder(self._top / "web")
        server = stack.enter_context(serving(self.web))
        self.url, host = server.url, f"127.0.0.1:{server.port}"
        where = {"batch": {"python": str(self._python)}}
        edge = edges.at_slurm(self._top / "edge", rabbit, slurm, settings=where)
        self.edge = stack.enter_context(edge)
        staging = {"protocols": ["http"], "hosts": [host], "private": ["127.0.0.0/8"]}
        self.hub = Hub(self.root, self.edge, settings=self._settings(host))
        batch = {"batch": "slurm", "env": slurm.env}
        ported = DialingAgent(self._top / "dialled", self.hub, self._port, batch, settings=where)
        self.dialled = stack.enter_context(ported)
        #: By place, the sites with an agent.
        self.agents: dict[str, Edge] = {"edge": self.edge, "dialled": self.dialled}
        if condor is not None:
            there = edges.at_condor(self._shared / "agent", rabbit, condor, beside=self.edge)
            self.agents["htcondor-edge"] = stack.enter_context(there)
        for one in self.agents.values():
            self._register(one, staging)
        self._write_sites(sshd, stack)
        self._client: Client | None = None
        self._pilot: subprocess.Popen[bytes] | None = None
        stack.callback(self._end)
        #: Somebody who sends messages.
        self.alice = stack.enter_context(AmqpClient(rabbit, "alice", self.edge.exchange))

    def _register(self, edge: Edge, staging: dict[str, Any]) -> None:
        """Register an application for each source at an edge site: its own, or what it brings."""
        there = edge.programs
        there.add("work", self.script, staging=staging, **_APP)
        # Nodes may have another Python than this machine.
        python = _executable(there.folder / "python", '#!/bin/sh\nexec /usr/bin/python3 "$@"\n')
        file = there.offer("functions", python, takes="functions", staging=staging)
        # The queue of the site takes no job for longer.
        told = {"takes": "commands", "staging": staging, "limits": {"time": "5m"}}
        file.with_name("commands.toml").write_text(toml.write(told))

    def _make_yard(self) -> Path:
        yard = self._shared / "yard"
        _folder(yard / "gates")
        (yard / "ledger").touch()
        for path in (yard, yard / "gates", yard / "ledger"):
            path.chmod(0o777)
        return yard

    def _settings(self, host: str) -> dict[str, Any]:
        self._port = free_port()
        words = " ".join(f'"${one}"' for one in PARAMETERS)
        return {
            "hub": {"port": self._port, "tls": "on"},
            "site": {"cpus": CORES, "on_exit": "linger"},
            "pilots": {"sandbox": "none", "heartbeat": "1s", "lease": "20s", "idle": "1h"},
            "flows": {"data": f"{self.url}/data", "hosts": [host], "users": ["alice"]},
            "bus": {"jobs": {"job.hub": ""}},
            "app": {"work": {"argv": ["sh", "-c", f"set -- {words}\n{self.script}"]}},
        }  # fmt: skip

    def _write_sites(self, sshd: Sshd, stack: ExitStack) -> None:
        folder = _folder(self.root / "sites")
        here = f'folder = "{self._top}/slurm"\npython = "{self._python}"\n{_QUICK}'
        (folder / "slurm.toml").write_text(batch_site.slurm_site(self.slurm, here))
        name = f"matrix-{secrets.token_hex(4)}"
        stack.callback(shutil.rmtree, sshd.user.home / name, ignore_errors=True)
        there = batch_site.slurm_site(self.slurm, f'folder = "{name}"\n{_QUICK}')
        (folder / "ssh.toml").write_text(batch_site.ssh_site(sshd, there))
        if self._condor is not None:
            place = _folder(self._shared / "htcondor")
            os.chown(place, sshd.user.uid, sshd.user.gid)
            there = f'folder = "{place}"\n{_QUICK}'
            (folder / "htcondor.toml").write_text(batch_site.condor_site(self._condor, sshd, there))
        (_folder(self.root / "pools") / f"{POOL}.toml").write_text(_POOL)

    def _end(self) -> None:
        # Whoever waits for a gate goes on when there is none.
        shutil.rmtree(self.yard / "gates")
        if self._client is not None:
            self._client.close()
        self.kill_pilot()
        self.hub.kill()
        self.slurm.run("scancel", "--full", "--user=root")

    # -- processes -------------------------------------------------------------------------------

    def up(self) -> None:
        """Start all, and wait until the hub has heard of the pilot and the edge sites."""
        brokered = [one for one in self.agents.values() if one is not self.dialled]
        for one in brokered:
            one.start()
        self.start_hub()
        self.start_pilot()
        ca = json.loads(self._address.read_bytes())["ca"]
        self.dialled.change(
            {"hub": {"url": f"https://127.0.0.1:{self.dialled.proxy.port}", "ca": ca}}
        )
        self.dialled.enrol()
        self.dialled.start()
        for one in self.agents.values():
            self._heard(one.site)

    def _heard(self, site: str) -> None:
        self.wait(lambda: self.query("SELECT 1 FROM edge_site WHERE name = ?", site))

    def start_hub(self) -> None:
        """Start the hub and wait until it serves."""
        self._address.unlink(missing_ok=True)
        self.hub.start()
        self.wait(self._address.exists)

    @property
    def _address(self) -> Path:
        return self.root / ".pilotage" / "hub.json"

    def start_pilot(self) -> None:
        """Start the pilot that does not see the project, and wait until it has enrolled."""
        base = _folder(self._top / f"pilot-{secrets.token_hex(4)}")
        token = base / "token"
        token.write_text(self._mint(tokens.TokenScope.ENROL, uses=1, site=FAR))
        known = json.loads(self._address.read_bytes())
        blind = _BLIND.format(python=sys.executable, root=self.root)
        words = [
            "--hub", known["url"], "--ca", shutil.copy(known["ca"], base), "--cpus", str(CORES),
            "--secret-file", str(token), "--work", str(base / "work"),
        ]  # fmt: skip
        with (base / "log").open("wb") as log:
            self._pilot = subprocess.Popen(
                [_executable(base / "python", blind), "-m", "pilotage.node", *words],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_environment(),
            )  # fmt: skip
        self.wait(lambda: not token.exists())

    def kill_pilot(self) -> None:
        """End the pilot as a power cut would."""
        if self._pilot is not None:
            self._pilot.kill()
            self._pilot.wait()

    def _mint(self, scope: tokens.TokenScope, **facts: Any) -> str:
        with self.project() as project, project.change() as db:
            return tokens.mint(db, scope, me(), now=time.time(), lifetime=86400, **facts)[0]

    def address(self) -> tuple[str, str, str]:
        """Return where the hub is, a token of a user, and what vouches for it."""
        known = json.loads(self._address.read_bytes())
        return known["url"], self._mint(tokens.TokenScope.USER), known["ca"]

    def client(self) -> Client:
        """Return the Python client of the hub; it outlives the process of the hub."""
        if self._client is None:
            self._client = pilotage.connect(*self.address())
        return self._client

    def say(self, *words: str, cwd: Path | None = None) -> str:
        """Run a command as a person would; return what it prints."""
        done = subprocess.run(
            [sys.executable, "-m", "pilotage", *words], cwd=cwd or self.root, env=_environment(),
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
            check=False,
        )  # fmt: skip
        return done.stdout

    @contextmanager
    def follow(self, jobs: Sequence[int]) -> Iterator[Callable[[], str]]:
        """Have `logs -f` run; it must end with the block by itself. What it printed is given."""
        if not jobs:
            yield lambda: ""
            return
        file = self._top / f"followed-{secrets.token_hex(4)}"
        with file.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "pilotage", "logs", "-f", *map(str, jobs)], cwd=self.root,
                env=_environment(), stdout=out, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield file.read_text
            self.wait(lambda: process.poll() is not None)
        finally:
            process.kill()
            process.wait()

    # -- what is there ---------------------------------------------------------------------------

    def project(self) -> Project:
        """Open the project as a command would."""
        return Project(self.root)

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read what is in the store."""
        return self.hub.query(query, *values)

    def job(self, number: int) -> Job:
        """Read a job."""
        with self.project() as project:
            return project.job(number)

    def explained(self, job: int) -> str:
        """Say what `pilotage explain` does."""
        found = explain(self._facts(job))
        reasons = "; ".join(f"{one.text}: {one.detail}" for one in found.reasons)
        return f"{found.headline}; {reasons}; {found.suggestion}"

    def where(self, job: int) -> str:
        """Say where the last attempt of a job ran."""
        return self._facts(job).where

    def _facts(self, job: int) -> JobFacts:
        with self.project() as project:
            now, root = project.clock.now(), project.root
            witness = JobExplainer(project.db, project.settings, now=now, running=True, root=root)
            return witness.facts(job)

    def log(self, job: int) -> str:
        """Read what the last attempt of a job wrote, as far as the hub has it."""
        with self.project() as project:
            tries = project.attempts(job)
        file = Path(tries[-1].dir, "stdout") if tries else None
        return file.read_text() if file and file.exists() else ""

    def ran(self, job: int) -> float:
        """Return the seconds from a job's making to its end."""
        found = self.job(job)
        return (found.ended or 0.0) - found.created

    def wait(self, condition: Callable[[], object], *, step: float = 0.05) -> None:
        """Wait until a condition holds; look again after so many seconds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(step)

    def told(self) -> str:
        """Say how things stand, for messages."""
        jobs = self.query("SELECT id, name, state, reason FROM job ORDER BY id DESC LIMIT 25")
        return "\n".join(map(str, ["", *jobs, self.hub.told()[-3000:], self.edge.said[-2000:]]))

    # -- works -----------------------------------------------------------------------------------

    def lines(self, name: str) -> collections.Counter[str]:
        """Count how often a work has begun and ended, as its payloads say."""
        return collections.Counter(word for word, whose, _ in self._ledger() if whose == name)

    def alive(self, name: str) -> list[int]:
        """Return the payloads of a work that there are."""
        pids = {int(pid) for _, whose, pid in self._ledger() if whose == name}
        return [pid for pid in pids if _is_alive(pid)]

    def pilot_of(self, name: str) -> int:
        """Return the pilot that runs a work: the program that the batch system has started."""
        (pid,) = self.alive(name)
        found = 0
        while pid > 1 and b"slurmstepd" not in _words(pid):
            if b"pilot" in _words(pid):
                found = pid
            pid = _parent(pid)
        return found

    def _ledger(self) -> list[list[str]]:
        return [line.split() for line in (self.yard / "ledger").read_text().splitlines()]

    def open(self, name: str) -> None:
        """Let a work go on."""
        (self.yard / "gates" / name).touch()

    @contextmanager
    def only(self, place: str) -> Iterator[Callable[[], None]]:
        """Have all places begin no work: they are full, or their queue is down.

        What is given opens one of them; the others open after the block.
        """
        with ExitStack() as others:
            mine = ExitStack()
            others.enter_context(mine)
            for one in _FILLED:
                (mine if one == place else others).enter_context(self._full(one))
            if place.startswith("htcondor") and self._condor is not None:
                mine.enter_context(self._condor.paused())
            slurm = mine if place in _AT_SLURM else others
            slurm.enter_context(self._queue_down())
            yield mine.close

    def has(self, place: str) -> bool:
        """Say whether a place is there: HTCondor may not be."""
        return self._condor is not None or not place.startswith("htcondor")

    @contextmanager
    def _full(self, place: str) -> Iterator[None]:
        name = f"full-{place}-{secrets.token_hex(4)}"
        words = ("sh", "-c", braced(self.script), "sh", name, "/dev/null", "/dev/null")
        spec = JobSpec(
            Command(words), name, requirements=_FILLED[place], resources=Resources(cpus=CORES)
        )
        with self.project() as project:
            project.submit(NewJob(spec))
        self.wait(lambda: self.lines(name)["began"])
        try:
            yield
        finally:
            self.open(name)

    @contextmanager
    def _queue_down(self) -> Iterator[None]:
        self.wait(lambda: not self.query("SELECT 1 FROM pilot WHERE pool <> '' AND ended IS NULL"))
        self.slurm.run("scontrol", "update", "partitionname=debug", "state=down")
        try:
            yield
        finally:
            self.slurm.run("scontrol", "update", "partitionname=debug", "state=up")


def braced(text: str) -> str:
    """Write text so that a template says just that."""
    return text.replace("{", "{{").replace("}", "}}")


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SRC), "NO_COLOR": "1"}


def _words(pid: int) -> bytes:
    return Path(f"/proc/{pid}/cmdline").read_bytes()


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def _is_alive(pid: int) -> bool:
    """Say whether a process is there, and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _folder(path: Path) -> Path:
    path.mkdir(parents=True)
    return path


def _below(folder: Path, stack: ExitStack) -> Path:
    """Make a folder that everyone sees, and that goes with the stack."""
    made = Path(tempfile.mkdtemp(prefix="pilotage-matrix-", dir=folder))
    stack.callback(shutil.rmtree, made, ignore_errors=True)
    made.chmod(0o755)
    return made


def _executable(file: Path, text: str) -> Path:
    file.write_text(text)
    file.chmod(0o755)
    return file
