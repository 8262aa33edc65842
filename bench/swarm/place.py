"""A project for a measurement: its settings, its tokens, its jobs, and its hub."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import apsw
import msgspec

from bench.command import Command
from pilotage.hub.project import Project
from pilotage.job.model import Command as Program
from pilotage.job.model import JobSpec, NewJob
from pilotage.project import tokens
from testbed.ports import free_port

_DAY_S = 86400.0
_BATCH = 100_000
_SETTINGS = """
[hub]
port = {port}
tls = "{word}"
[pilots]
heartbeat = "{beat}s"
lease = "{lease}s"
idle = ""
sandbox = "none"
"""
_SPEC = JobSpec(Program(("true",)), name="nothing")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A project with a hub, and how to reach it."""

    root: Path
    port: int
    #: Tokens for pilots and for a user.
    enrol: str
    user: str
    tls: ssl.SSLContext | None = None

    @classmethod
    def make(cls, scratch: Path, *, tls: bool = False, lease: int = 300) -> Self:
        """Make a project; nothing runs yet. A lease has so many seconds."""
        # Not removed until all is over: ext4 is slow to make files where many were just deleted.
        root = Path(tempfile.mkdtemp(dir=scratch, prefix="hub-"))
        port = free_port()
        word = "on" if tls else "off"
        (root / "pilotage.toml").write_text(
            _SETTINGS.format(port=port, word=word, lease=lease, beat=lease / 10)
        )
        with Project(root) as project, project.db.transaction() as db:
            now = project.clock.now()
            enrol, _ = tokens.mint(
                db, tokens.TokenScope.ENROL, "", now=now, lifetime=_DAY_S, site="bench"
            )
            user, _ = tokens.mint(db, tokens.TokenScope.USER, "bench", now=now, lifetime=_DAY_S)
        return cls(root=root, port=port, enrol=enrol, user=user, tls=_trusting() if tls else None)

    def fill(self, jobs: int) -> None:
        """Queue so many jobs that do nothing; no hub runs yet."""
        with Project(self.root) as project:
            first = project.submit(NewJob(_SPEC, owner="bench"))
        db = apsw.Connection(str(self.root / ".pilotage" / "store.db"))
        for done in range(1, jobs, _BATCH):
            with db:
                _copy(db, "job", "id", f"id = {first}", min(_BATCH, jobs - done))
        with db:
            names = ", ".join(_columns(db, "journal", {"seq", "job"}))
            db.execute(
                f"INSERT INTO journal (job, {names}) SELECT other.id, {names} "  # noqa: S608 - ours
                f"FROM journal JOIN (SELECT id FROM job WHERE id > {first}) AS other "
                f"WHERE journal.job = {first}"
            )
        db.close()

    @contextmanager
    def hub(self) -> Iterator[Command]:
        """Run its hub."""
        with Command(self.root, ["hub"]) as one:
            yield one


def _copy(db: apsw.Connection, table: str, key: str, which: str, times: int) -> None:
    """Add the same row again and again, whatever its columns are."""
    names = ", ".join(_columns(db, table, {key}))
    db.execute(
        f"WITH RECURSIVE many (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM many WHERE i < {times}) "  # noqa: S608 - ours
        f"INSERT INTO {table} ({names}) SELECT {names} FROM {table} JOIN many WHERE {which}"
    )


def _columns(db: apsw.Connection, table: str, but: set[str]) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in but]


def _trusting() -> ssl.SSLContext:
    """Encrypt, and trust whoever answers: the hub's certificate is of its own making."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
