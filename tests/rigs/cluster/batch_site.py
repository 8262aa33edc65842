"""A project with a site whose jobs each leave one line in a ledger, and a hub that may be killed.

The ledger is outside of everything that Pilotage writes, and only ever appended to: it tells what
ran, whatever anybody believes.
"""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from pilotage.hub.project import Project
from pilotage.job import machine, records
from pilotage.job.model import Command, Job, JobSpec, NewJob, State
from pilotage.job.records import Selection
from testbed.condor import Condor
from testbed.slurm import Slurm
from testbed.ssh import Sshd
from testbed.user import User
from tests.rigs.project.moved_clock import MovedClock

SITE = "cluster"
SRC = Path(__file__).parents[3] / "src"
#: Generous: real schedulers on a busy machine take their time.
PATIENCE = 110.0
#: What a job does: it says that it ran, waits until it may go on, and writes its output.
_RUN = """
echo "$0 $PILOTAGE_KEY" >> '{ledger}'
if [ -n "{gate}" ]; then
    echo $$ > '{gate}.'"$0"; n=0
    while [ ! -e '{gate}' ] && [ $n -lt 3000 ]; do sleep 0.1; n=$((n+1)); done
fi
{more}
"""


class SiteProject:
    """A project, its hub, and the one site that its jobs go to."""

    def __init__(
        self, root: Path, site: str, *, place: Path | None = None, user: User | None = None,
        env: Mapping[str, str] = {},
    ) -> None:  # fmt: skip
        """Take where the site's folder and the ledger are, and whose they are."""
        self.root = root
        self.env = dict(env)
        self.place = place or root
        self.ledger = self.place / "ledger"
        self.gate = self.place / "gate"
        #: Once it is there, jobs that take their time need not.
        self.haste = self.place / "haste"
        self.folder = self.place / "site"
        for folder in (root / "rules", root / "sites", self.folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.ledger.touch()
        (root / "pilotage.toml").touch()
        self.settings(site)
        if user is not None:
            for path in (self.place, self.folder, self.ledger):
                os.chown(path, user.uid, user.gid)
        #: Whether the hub goes by a clock that `later` moves.
        self.driven = False
        self._ahead = MovedClock(root / ".ahead")
        self._hub: subprocess.Popen[bytes] | None = None

    def settings(self, site: str, *, folder: str = "") -> None:
        """Write the file of the site."""
        head = f'folder = "{folder or self.folder}"\npoll = "0.5s"\nsettle = "0.5s"\n'
        (self.root / "sites" / f"{SITE}.toml").write_text(head + site)

    # -- jobs ------------------------------------------------------------------------------------

    def submit(
        self, count: int, *, more: str = "", gate: bool = False, alone: bool = False,
        **facts: object,
    ) -> list[int]:  # fmt: skip
        """Queue jobs; `more` is what each does beside its line in the ledger.

        Those that are `alone` are submitted one by one, not as arrays.
        """
        script = _RUN.format(ledger=self.ledger, gate=self.gate if gate else "", more=more)
        facts = {"site": SITE, "name": "line"} | facts
        with Project(self.root) as project, project.change() as db:
            now, made = project.clock.now(), []
            for number in range(count):
                facts |= {"priority": number} if alone else {}
                spec = JobSpec(Command(("sh", "-c", script, "{job}")), **facts)  # type: ignore[arg-type]
                made.append(records.add(db, NewJob(spec), now))
        return [one for one in made if one is not None]

    def unhurried(self, seconds: float) -> str:
        """Return what has a job take some time, until there is haste."""
        return f"[ -e '{self.haste}' ] || sleep {seconds}"

    def jobs(self) -> dict[int, Job]:
        """Read all jobs by number."""
        with Project(self.root) as project:
            return {job.id: job for job in project.jobs(Selection())}

    def job(self, number: int) -> Job:
        """Read a job."""
        with Project(self.root) as project:
            return project.job(number)

    def change(self, act: Callable[[Project], object]) -> None:
        """Do something as a person would by a command."""
        with Project(self.root) as project:
            act(project)

    def ran(self) -> collections.Counter[int]:
        """Count how often each job ran."""
        return collections.Counter(int(line.split()[0]) for line in self._lines())

    def _lines(self) -> list[str]:
        return self.ledger.read_text().splitlines()

    def exactly_once(self, jobs: Sequence[int]) -> None:
        """Require that each job ran once, and counts as done."""
        states = collections.Counter(job.state for job in self.jobs().values())
        assert set(states) == {State.DONE}, self.told()
        assert self.ran() == dict.fromkeys(jobs, 1), self.told()

    def told(self) -> str:
        """Say how things stand, for messages."""
        twice = [line for line in self._lines() if self.ran()[int(line.split()[0])] != 1]
        jobs = [
            f"{job.id} {job.state} try {job.attempt}: {job.reason}"
            for job in self.jobs().values()
            if job.state is not State.DONE or job.attempt > 1
        ]
        return "\n".join(["", *twice[:20], *jobs[:20], self.said[-6000:]])

    # -- the hub ---------------------------------------------------------------------------------

    def start(self, *words: str, crash: str = "") -> subprocess.Popen[bytes]:
        """Start `pilotage up`; it kills itself at a crash point."""
        name = self._ahead.program() if self.driven else ["pilotage"]
        program = [sys.executable, "-m", *name, "up", "--project", str(self.root), *words]
        path = f"{SRC}:{SRC.parent}"
        env = {**os.environ, "PYTHONPATH": path, "PILOTAGE_DEBUG": "1", **self.env}
        if crash:
            env["PILOTAGE_CRASH_AT"] = crash
        with (self.root / ".said").open("a") as said:
            self._hub = subprocess.Popen(program, env=env, stdout=said, stderr=subprocess.STDOUT)
        return self._hub

    @property
    def said(self) -> str:
        """What all processes printed."""
        return (self.root / ".said").read_text()

    def finish(self, patience: float = PATIENCE, passing: float = 0.0) -> None:
        """Run until nothing is left to do; as `wait`."""
        hub = self.start("--until-idle")
        try:
            self._until(lambda: hub.poll() is not None, patience, passing)
            assert hub.returncode == 0, self.told()
        finally:
            self.kill()

    def dies(self, crash: str, patience: float = PATIENCE) -> None:
        """Run until it kills itself at a point."""
        hub = self.start("--until-idle", crash=crash)
        try:
            assert hub.wait(timeout=patience) == -signal.SIGKILL, f"{crash}\n{self.told()}"
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{crash} was not passed\n{self.told()}") from None
        finally:
            self.kill()

    def kill(self) -> None:
        """End the hub as a power cut would."""
        if self._hub is not None:
            self._hub.kill()
            self._hub.wait()
            self._hub = None

    @contextmanager
    def up(self) -> Iterator[subprocess.Popen[bytes]]:
        """Have the hub run while the block does."""
        hub = self.start()
        try:
            yield hub
            assert hub.poll() is None, self.told()
        finally:
            self.kill()

    def later(self, seconds: float) -> None:
        """Let time pass for the hub, if it is driven."""
        assert self.driven
        self._ahead.advance(seconds)

    def wait(
        self, condition: Callable[[], object], patience: float = PATIENCE, passing: float = 0.0
    ) -> None:
        """Wait until a condition holds; the hub must not end by itself meanwhile.

        After each look in vain so many seconds pass for the hub, if it is driven.
        """

        def holds() -> bool:
            held = bool(condition())
            assert held or self._hub is None or self._hub.poll() is None, self.told()
            return held

        self._until(holds, patience, passing)

    def _until(self, condition: Callable[[], bool], patience: float, passing: float) -> None:
        deadline = time.monotonic() + patience
        while not condition():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.1)
            if passing:
                self.later(passing)

    def wait_state(self, *states: State, jobs: Sequence[int] = (), passing: float = 0.0) -> None:
        """Wait until jobs, or all, are in one of some states; as `wait`."""

        def there() -> bool:
            found = self.jobs()
            return all(job.state in states for job in found.values() if not jobs or job.id in jobs)

        self.wait(there, passing=passing)

    def wait_ended(self, *jobs: int, passing: float = 0.0) -> None:
        """Wait until jobs have ended, whatever way; as `wait`."""
        self.wait_state(*machine.FINAL, jobs=jobs, passing=passing)

    def batch_job(self, job: int) -> str:
        """Return the id that the batch system gave a job, once it is known."""
        query = (
            "SELECT number FROM submission JOIN submitted ON submission.id = submission"
            " WHERE job = ? AND number <> '' ORDER BY submission.id DESC"
        )
        found: list[str] = []

        def look() -> bool:
            with Project(self.root) as project:
                found.extend(row[0] for row in project.db._connection.execute(query, (job,)))
            return bool(found)

        self.wait(look)
        return found[0]

    def site(self) -> Mapping[str, object]:
        """Read how the site is, as the store has it."""
        with Project(self.root) as project:
            rows = project.db.rows("site_all")
        names = ("id", "name", "trouble", "since", "seen", "facts")
        return dict(zip(names, rows[0] if rows else (0, "", "", 0, 0, "{}"), strict=False))


def on_slurm(root: Path, cluster: Slurm, more: str = "") -> SiteProject:
    """Make a project whose site is a Slurm of this machine."""
    return SiteProject(root, slurm_site(cluster, more), env=cluster.env)


def slurm_site(cluster: Slurm, more: str = "") -> str:
    """Write the file of a site with Slurm, but for its folder."""
    return f'batch = "slurm"\n{more}\n[env]\nSLURM_CONF = "{cluster.env["SLURM_CONF"]}"\n'


def on_condor(root: Path, place: Path, pool: Condor, sshd: Sshd, more: str = "") -> SiteProject:
    """Make a project whose site is an HTCondor, where a user logs in who is not root.

    `place` must be a folder that jobs see.
    """
    return SiteProject(root, condor_site(pool, sshd, more), place=place, user=sshd.user)


def condor_site(pool: Condor, sshd: Sshd, more: str = "") -> str:
    """Write the file of a site with HTCondor that is reached by SSH, but for its folder."""
    path = pool.env["PATH"].split(":")[0]
    return ssh_site(sshd, f'batch = "htcondor"\npath = ["{path}"]\n{more}\n')


def ssh_site(sshd: Sshd, more: str) -> str:
    """Write the file of a site that is reached by a real SSH."""
    return f'host = "key"\nssh_config = "{sshd.config}"\npython = "/usr/bin/python3"\n{more}'


def on_double(root: Path, path: Path, more: str = "") -> SiteProject:
    """Make a project whose site is a Slurm that misbehaves."""
    return SiteProject(root, f'batch = "slurm"\npath = ["{path}"]\n{more}\n')
