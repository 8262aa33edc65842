"""A real Slurm, a login node that is reached by SSH, and a project that runs jobs there."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import apsw
import msgspec

from bench.command import Command
from bench.remote.login import Login
from pilotage.client import Client, connect
from pilotage.hub.project import Project
from testbed.slurm import Slurm
from testbed.ssh import Sshd

#: The site where each job is a call of `sbatch` of its own, and the one where they are arrays;
#: so many jobs in one call.
SINGLE, ARRAYS = "single", "arrays"
SITES = {SINGLE: 1, ARRAYS: 500}
CORES = 4

_ALIAS = "key"
_GLANCE_S = 0.02
_SITE = """\
batch = "slurm"
host = "{alias}"
ssh_config = "{config}"
folder = ".pilotage-{name}"
path = ["{tools}"]
login = "127.0.0.1"
array = {array}
jobs = 2000
allow = ["--hold"]
per_second = 1000.0
poll = "{poll:g}s"
"""
_SETTINGS = """\
[hub]
tls = "on"
[pilots]
sandbox = "{sandbox}"
"""
#: The tools that tell how jobs are. Something stands before each, and leaves a letter for a call.
_TOOLS = ("squeue", "sacct")
_COUNTER = '#!/bin/sh\nprintf x >> "{file}"\nexec {real} "$@"\n'


class Bed(msgspec.Struct, frozen=True):
    """What jobs are run with."""

    root: Path
    client: Client
    login: Login
    cluster: Slurm
    #: By site, what grows by one byte with each status query.
    calls: dict[str, Path]
    #: Seconds between two looks at the queue.
    poll: float

    def queries(self, site: str) -> int:
        """Count the status queries of a site so far."""
        return self.calls[site].stat().st_size

    def times(self, query: str, jobs: Iterable[int]) -> list[float]:
        """Read times of jobs from the store; the query takes a list of them."""
        db = apsw.Connection(
            str(self.root / ".pilotage" / "store.db"), flags=apsw.SQLITE_OPEN_READONLY
        )
        db.set_busy_timeout(10_000)
        try:
            found = db.execute(query, {"jobs": msgspec.json.encode(list(jobs)).decode()})
            return [float(row[0]) for row in found]
        finally:
            db.close()

    def settle(self, *, pilots: bool = False) -> None:
        """Wait until the cluster has nothing to do."""
        while len(self.cluster.run("squeue", "--noheader", "--array").splitlines()) > pilots:
            time.sleep(_GLANCE_S)


@contextlib.contextmanager
def bed(scratch: Path, *, poll: float = 1.0, sandbox: str = "none") -> Iterator[Bed]:
    """Bring everything up; payloads on pilots are in such a sandbox."""
    root = scratch / "project"
    root.mkdir(parents=True)
    with Slurm() as cluster, Sshd(env=cluster.env) as server:
        calls = {name: _tools(server.folder / f"tools-{name}") for name in SITES}
        (root / "sites").mkdir()
        (root / "pilotage.toml").write_text(_SETTINGS.format(sandbox=sandbox))
        for name, array in SITES.items():
            (root / "sites" / f"{name}.toml").write_text(
                _SITE.format(
                    alias=_ALIAS, config=server.config, name=name, tools=calls[name].parent,
                    array=array, poll=poll,
                )
            )  # fmt: skip
        Project(root).close()
        with (
            contextlib.chdir(root),
            Command(root, ["up", "--cpus", str(CORES)]),
            connect() as client,
            Login(server.config, _ALIAS, server.user.home, scratch) as login,
        ):
            yield Bed(root, client, login, cluster, calls, poll)


def _tools(folder: Path) -> Path:
    """Make a folder with tools that count their calls; return what they count in."""
    folder.mkdir()
    calls = folder / "calls"
    calls.touch()
    calls.chmod(0o666)
    for name in _TOOLS:
        program = folder / name
        program.write_text(_COUNTER.format(file=calls, real=shutil.which(name)))
        program.chmod(0o755)
    return calls
