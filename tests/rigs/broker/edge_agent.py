"""An edge agent in a process of its own, the broker that it dials, and an outsider who listens.

    with edge.at_local(tmp_path / "e", rabbit) as one:
        one.start()
        key = one.post("count")
        one.wait_ended(key)
        law.holds(one, [key])

Each has an exchange of its own, so that tests at one broker do not meet; the agent's line to the
broker is `proxy`, and its papers are copies that a test may replace.
"""

from __future__ import annotations

import collections
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pilotage.batch import commands
from pilotage.hub.project import Project
from pilotage.job.model import Job
from pilotage.job.records import Selection
from testbed import processes
from testbed.certificates import DAY_S, Authority, put
from testbed.condor import Condor
from testbed.fault_proxy import FaultProxy
from testbed.processes import Process
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from testbed.user import User
from tests.rigs.broker import toml
from tests.rigs.broker.amqp_client import AmqpClient, ReceivedMessage
from tests.rigs.broker.applications import Programs
from tests.rigs.project.moved_clock import MovedClock
from tests.suite import programs as started

SRC = Path(__file__).parents[3] / "src"
#: Generous: real schedulers on a busy machine take their time.
PATIENCE = 110.0
#: Who the agent is, who listens and rules there, and who sends jobs.
AGENT, ADMIN, USER = "site", "hub", "alice"
FINAL = ("done", "failed", "cancelled", "rejected")
_HEARS = (
    "status.#",
    "heartbeat.#",
    "refused.#",
    "answer.#",
    "balsam_job_status",
    "argo_job_status",
)


@dataclass(frozen=True)
class Where:
    """Where an agent runs."""

    #: Put before its command, such as what enters a network namespace.
    inside: tuple[str, ...] = ()
    #: Whose process it is; none means root's.
    user: User | None = None
    #: Whether its line to the broker is one that can be made a bad one.
    proxied: bool = True


HERE = Where()


class Edge:
    """A site that takes its jobs from a broker."""

    #: Who hears all that is said at its exchange.
    admin: AmqpClient

    def __init__(
        self, root: Path, rabbit: Rabbit, batch: Mapping[str, Any], *, place: Path | None = None,
        where: Where = HERE, settings: Mapping[str, Any] = {}, beside: Edge | None = None,
    ) -> None:  # fmt: skip
        """Take the folder of the agent, one that worker nodes see, and further settings.

        One that is `beside` another shares its exchange and its outsider, and goes before it.
        """
        token = secrets.token_hex(4)
        self.root = root
        self.rabbit = rabbit
        self.where = where
        self.site = f"site-{token}"
        self.exchange: str = beside.exchange if beside else f"edge-{token}"
        self._beside = beside
        self._guests: list[Edge] = []
        #: What must be in no log.
        self.secrets: list[str] = []
        #: Whether the agent goes by a clock that `later` moves.
        self.driven = False
        #: How long a submit command may take then, in seconds.
        self.submit_s = commands.SUBMIT_S
        self._ahead = MovedClock(root / ".ahead")
        self.papers = root / "papers"
        self.papers.mkdir(parents=True)
        self.programs = Programs(root, place or root)
        self._stack = ExitStack()
        self._users: dict[str, AmqpClient] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._given = toml.merged({"batch": _quick(batch, self.programs.place)}, settings)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            port = self.rabbit.port
            if self.where.proxied:
                self.proxy = stack.enter_context(FaultProxy(port))
                port = self.proxy.port
            self._settings = toml.merged(self._own(port), self._given)
            self.renew()
            self.believe(self.rabbit.authority)
            self.change({})
            if self._beside:
                self.admin = self._beside.admin
                self._beside._guests.append(self)
            else:
                outsider = AmqpClient(self.rabbit, ADMIN, self.exchange, _HEARS)
                self.admin = stack.enter_context(outsider)
            self._users[ADMIN] = self.admin
            if self.where.user is not None:
                _give(self.root, self.where.user)
                _give(self.programs.place, self.where.user)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        processes.end(Process.of(pid) for pid in self.programs.running())
        if self._beside is None:
            self.admin.forget(*self.queues, *(name for one in self._guests for name in one.queues))
        self._stack.close()

    def _own(self, port: int) -> dict[str, Any]:
        names = {"ca": "ca.pem", "certificate": f"{AGENT}.pem", "key": f"{AGENT}.key"}
        return {
            "site": self.site,
            "admins": [ADMIN],
            "heartbeat": "1s",
            "limits": {"free": "1M"},
            "bus": {
                "url": f"amqps://{self.rabbit.address}:{port}/",
                **{key: str(self.papers / name) for key, name in names.items()},
                "user": AGENT,
                "exchange": self.exchange,
                "dead": f"{self.exchange}.dead",
                "heartbeat": 3,
                "patience": 10.0,
                "retry": 1.0,
            },
        }

    # -- what the agent has ----------------------------------------------------------------------

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings, table by table; the file is replaced at once."""
        self._settings = toml.merged(self._settings, settings)
        put(self.root / "agent.toml", toml.write(self._settings).encode())
        self._own_files()

    def renew(self, *, seconds: float = DAY_S, by: Authority | None = None) -> None:
        """Give the agent new papers, from now on for some time; below 0 they are over."""
        (by or self.rabbit.authority).issue(AGENT, seconds=seconds, into=self.papers)
        self._own_files()

    def believe(self, *authorities: Authority) -> None:
        """Have the agent believe authorities."""
        put(self.papers / "ca.pem", b"".join(one.certificate.read_bytes() for one in authorities))
        self._own_files()

    def _own_files(self) -> None:
        if self.where.user is not None:
            _give(self.root, self.where.user)

    @property
    def queues(self) -> list[str]:
        """The queues of the broker that are this agent's."""
        topics = self._settings["bus"].get("jobs", {f"job.{self.site}": ""})
        return [f"{self.exchange}:{topic}" for topic in (*topics, f"control.{self.site}")]

    # -- its process -----------------------------------------------------------------------------

    def start(self, *, crash: str = "", ready: bool = True, env: Mapping[str, str] = {}) -> None:
        """Start it; it kills itself at a crash point, such as `edge.committed:2`."""
        name = self._ahead.program(self.submit_s) if self.driven else ["pilotage"]
        program = [sys.executable, "-m", *name, "agent", "run", str(self.root)]
        path = f"{SRC}:{SRC.parent}" if self.driven else str(SRC)
        told = {**os.environ, "PYTHONPATH": path, "PILOTAGE_DEBUG": "1", **env}
        told["PILOTAGE_CRASH_AT"] = crash
        if (user := self.where.user) is not None:
            program = [*_become(user), *program]
            told |= {"HOME": str(user.home), "USER": user.name, "LOGNAME": user.name}
        with self._said.open("a") as said:
            self._process = subprocess.Popen(
                [*self.where.inside, *program], env=told, stdout=said, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, cwd=self.root,
            )  # fmt: skip
        if ready:
            started.until_ready(self._process, self.ready, lambda: self.said[-6000:], PATIENCE)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that runs, or ran last."""
        assert self._process is not None
        return self._process

    def ready(self) -> bool:
        """Say whether the process that was started last has got ready."""
        try:
            text = (self.root / ".pilotage" / "lock").read_text()
        except FileNotFoundError:
            return False
        return text.split(" ")[0] == str(self.process.pid) and text.rstrip().endswith("ready")

    def stop(self, by: int = signal.SIGTERM) -> int:
        """Have it end in good order; return its status."""
        return started.end(self.process, by, PATIENCE)

    def kill(self) -> None:
        """End it as a power cut would; what it started goes on."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def lives(self, seconds: float) -> None:
        """Let it run for some time; it must not end by itself."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        assert self.process.poll() is None, self.told()

    def dies(self, crash: str, **more: Any) -> None:
        """Run until it kills itself at a point."""
        self.start(crash=crash, ready=False, **more)
        try:
            assert self.process.wait(PATIENCE) == -signal.SIGKILL, f"{crash}\n{self.told()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.told()}") from None
        finally:
            self.kill()

    @contextmanager
    def up(self, **more: Any) -> Iterator[Self]:
        """Have it run while the block does; it must not end by itself meanwhile."""
        self.start(**more)
        try:
            yield self
            assert self.process.poll() is None, self.told()
        finally:
            self.kill()

    def introduce(self) -> str:
        """Run it until a job has come through: only then does the broker know where jobs go."""
        with self.up():
            key = self.post("count")
            self.wait_ended(key)
        return key

    @property
    def _said(self) -> Path:
        return self.root / ".said"

    @property
    def said(self) -> str:
        """What all processes printed."""
        return self._said.read_text(errors="replace") if self._said.exists() else ""

    # -- messages --------------------------------------------------------------------------------

    def known_as(self, user: str) -> AmqpClient:
        """Return somebody who posts under a name."""
        if user not in self._users:
            outsider = AmqpClient(self.rabbit, user, self.exchange)
            self._users[user] = self._stack.enter_context(outsider)
        return self._users[user]

    def job(self, application: str, key: str = "", **fields: Any) -> dict[str, Any]:
        """Write a message; one with no key gets one that nobody else has."""
        key = key or f"k-{secrets.token_hex(6)}"
        head = {"v": 1, "kind": "job", "site": self.site, "application": application, "key": key}
        return head | fields

    def post(self, application: str, *, user: str = USER, times: int = 1, **fields: Any) -> str:
        """Send a job, so many times; return its key."""
        made = self.job(application, **fields)
        self.send(*[made] * times, user=user)
        return str(made["key"])

    def post_many(
        self, application: str, count: int, *, user: str = USER, **fields: Any
    ) -> list[str]:
        """Send jobs; return their keys."""
        made = [self.job(application, **fields) for _ in range(count)]
        self.send(*made, user=user)
        return [str(one["key"]) for one in made]

    def send(
        self, *bodies: bytes | dict[str, Any], user: str = USER, topic: str = "", **more: Any
    ) -> None:
        """Send bodies to the site as they are."""
        self.known_as(user).post(topic or f"job.{self.site}", *bodies, **more)

    def control(self, verb: str, *, user: str = USER, **fields: Any) -> None:
        """Ask the site for something."""
        head = {"v": 1, "kind": "control", "site": self.site, "verb": verb}
        self.known_as(user).post(f"control.{self.site}", head | fields)

    def raw(self, topic: str = "") -> list[ReceivedMessage]:
        """Return all messages as they came, of one topic or of all."""
        return [one for one in list(self.admin.heard) if topic in ("", one.topic)]

    def heard(self, kind: str = "status") -> list[dict[str, Any]]:
        """Return what messages of our own form say, in the order in which they came."""
        return [one.said for one in self.raw() if one.said.get("kind") == kind]

    def said_of(self) -> dict[str, list[dict[str, Any]]]:
        """Return by key what was said of each job, each once and in order.

        Whoever hears drops what it has heard before.
        """
        found: dict[str, dict[int, dict[str, Any]]] = collections.defaultdict(dict)
        for one in self.heard():
            found[one["key"]].setdefault(one["seq"], one)
        return {key: [those[seq] for seq in sorted(those)] for key, those in found.items()}

    def statuses(self, key: str) -> list[dict[str, Any]]:
        """Return what was said of a job."""
        return self.said_of().get(key, [])

    def end(self, key: str) -> dict[str, Any] | None:
        """Return the last word on a job, once it is said."""
        found = [one for one in self.statuses(key) if one["state"] in FINAL]
        return found[-1] if found else None

    def states(self, keys: Iterable[str]) -> dict[str, str]:
        """Return by key the last state that was heard."""
        said = self.said_of()
        return {key: str(said[key][-1]["state"]) if key in said else "" for key in keys}

    # -- waiting ---------------------------------------------------------------------------------

    def later(self, seconds: float) -> None:
        """Let time pass for the agent, if it is driven."""
        assert self.driven
        self._ahead.advance(seconds)

    def wait(
        self, condition: Callable[[], object], patience: float = PATIENCE, passing: float = 0.0
    ) -> None:
        """Wait until a condition holds.

        After each look in vain so many seconds pass for the agent, if it is driven.
        """
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)
            if passing:
                self.later(passing)

    def wait_ended(self, *keys: str, patience: float = PATIENCE) -> None:
        """Wait until the end of jobs has been said."""

        def all_ended() -> bool:
            ended = {one["key"] for one in self.heard() if one["state"] in FINAL}
            return ended.issuperset(keys)

        self.wait(all_ended, patience)

    def wait_state(self, key: str, *states: str) -> dict[str, Any]:
        """Wait until it has been said that a job is in one of some states."""
        found: list[dict[str, Any]] = []

        def there() -> bool:
            found[:] = [one for one in self.statuses(key) if one["state"] in states]
            return bool(found)

        self.wait(there)
        return found[-1]

    # -- the store -------------------------------------------------------------------------------

    def jobs(self) -> dict[int, Job]:
        """Read the jobs of the agent by number, as its own commands would."""
        with Project(self.root) as project:
            return {job.id: job for job in project.jobs(Selection())}

    def query(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """Read what is in the agent's store."""
        with Project(self.root) as project:
            return [*project.db._connection.execute(query, values)]

    def told(self) -> str:
        """Say how things stand, for messages."""
        last = {one["key"]: one for one in self.heard()}
        words = [f"{one['key']} {one['state']} {one.get('reason')}" for one in last.values()]
        refused = [str(one.said)[:500] for one in self.raw(f"refused.{self.site}")]
        return "\n".join(["", *words[:20], *refused[:5], self.said[-6000:]])


def at_local(root: Path, rabbit: Rabbit, **more: Any) -> Edge:
    """Make a site whose jobs run on this machine at once."""
    return Edge(root, rabbit, {"batch": "local"}, **more)


def at_slurm(root: Path, rabbit: Rabbit, cluster: Slurm, **more: Any) -> Edge:
    """Make a site with Slurm."""
    return Edge(root, rabbit, {"batch": "slurm", "env": cluster.env}, **more)


def at_condor(root: Path, rabbit: Rabbit, pool: Condor, **more: Any) -> Edge:
    """Make a site with HTCondor, whose agent is not root's; `root` is below `pool.shared`."""
    where = Where(user=pool.user)
    path = [pool.env["PATH"].split(":")[0]]
    return Edge(root, rabbit, {"batch": "htcondor", "path": path}, where=where, **more)


def _quick(batch: Mapping[str, Any], place: Path) -> dict[str, Any]:
    return {"folder": str(place / "site"), "poll": "0.5s", "settle": "0.5s", **batch}


def _become(user: User) -> list[str]:
    return ["setpriv", f"--reuid={user.uid}", f"--regid={user.gid}", "--clear-groups"]


def _give(folder: Path, user: User) -> None:
    """Make a folder and what is in it somebody's."""
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):
            os.chown(path, user.uid, user.gid, follow_symlinks=False)
