"""The parts of an agent in this process: settings, an application, a store, and messages to it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from pilotage.agent import records
from pilotage.agent.app import files
from pilotage.agent.app.model import Application, AppLimits, Parameter, Staging
from pilotage.agent.model import OutboxEntry
from pilotage.agent.settings import Settings, SiteBroker
from pilotage.batch.model import SiteSettings
from pilotage.bus.port import Message
from pilotage.job import records as jobs
from pilotage.job.model import Job
from pilotage.store import Db, Writer, connect

SITE = "mira"
TRUE = "/usr/bin/true"


def app(**more: Any) -> Application:
    """Return an application that anybody may use."""
    facts: dict[str, Any] = {
        "executable": TRUE, "sha256": files.digest(TRUE), "argv": ("{events}",),
        "parameter": {"events": Parameter(kind="integer", default=1)},
        "limits": AppLimits(nodes=4, tasks=8, options=("--exclusive", "--comment")),
        "staging": Staging(hosts=("data.example.org",)),
    }  # fmt: skip
    return Application(**facts | more)


def settings(**more: Any) -> Settings:
    """Return settings of the site."""
    facts: dict[str, Any] = {
        "site": SITE, "bus": SiteBroker(url="amqps://broker.example.org/"), "admins": ("boss",),
        "batch": SiteSettings(batch="local", allow=("--exclusive",)),
    }  # fmt: skip
    return Settings(**facts | more)


def body(**more: Any) -> bytes:
    """Return the body of a job's message."""
    return json.dumps({"v": 1, "kind": "job", "site": SITE, "application": "sim"} | more).encode()


def control(verb: str, **more: Any) -> bytes:
    """Return the body of a control."""
    return json.dumps({"v": 1, "kind": "control", "site": SITE, "verb": verb} | more).encode()


async def nobody(_: bytes) -> None:
    """Answer to nobody."""


def message(sent: bytes, user: str = "alice", *, again: bool = False, tag: int = 1) -> Message:
    """Return a delivery."""
    return Message(topic=f"job.{SITE}", body=sent, tag=tag, reply=nobody, user=user, again=again)


class Store:
    """The store of an agent, written by one thread and read here."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.file = root / "store.db"
        self.writer = Writer(connect(self.file))
        self.db = self.reader()

    def reader(self) -> Db:
        return connect(self.file, readonly=True)

    def words(self) -> list[OutboxEntry]:
        return records.unsent(self.db, 0, 1_000_000)

    def said(self, topic: str = "") -> list[Any]:
        """Return what is written already and waits to be sent."""
        return [json.loads(one.body) for one in self.words() if one.body and topic in one.topic]

    def jobs(self) -> list[Job]:
        return jobs.find(self.db, jobs.Selection())


@contextlib.contextmanager
def store(root: Path, **apps: Application) -> Iterator[Store]:
    """Yield a store beside the files of applications."""
    for name, one in apps.items():
        files.write(root, name, one)
    made = Store(root)
    try:
        yield made
    finally:
        made.writer.close()
        made.db.close()


def plain(value: object) -> Any:
    """Return what a message is as JSON."""
    return msgspec.to_builtins(value)
