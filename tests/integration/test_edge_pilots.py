"""Pools that order pilots at a site with an agent, by either carrier, with kills on the way."""

from __future__ import annotations

import functools
import json
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pilotage.job import records
from pilotage.job.model import Command, JobSpec, NewJob, State
from testbed.ports import free_port
from testbed.rabbit import Rabbit
from testbed.slurm import Slurm
from tests.rigs.broker import edge_agent, toml
from tests.rigs.broker.dialing_agent import OVER, DialingAgent, command, pair, serving
from tests.rigs.broker.edge_agent import ADMIN, PATIENCE, Edge
from tests.rigs.project.flow_hub import Hub

POOL = "burst"
#: Quick, so that a test sees it grow and shrink.
QUICK = """
interval = "0.5s"

[pilot]
cpus = 1

[control]
patience = "0.5s"
haste = "0.5s"
rest = "1s"
ski = 0.0
"""
_GONE = ("down", "failed", "lost")
_PILOTS = {"pilots": {"sandbox": "none", "heartbeat": "0.5s", "lease": "1m"}}
_COPY = "import sys; print(open(sys.argv[1]).read().upper(), end='', file=open(sys.argv[2], 'w'))"


def register(site: Edge, **facts: Any) -> None:
    """Let hubs order pilots at a site, as its administrator does."""
    limits = {"maximum": 2, "cpus": 2, "time": "5m", **facts.pop("limits", {})}
    file = site.root / "apps" / "pilot.toml"
    file.write_text(toml.write({"takes": "pilot", "limits": limits, **facts}))


class Ordered:
    """A hub with a pool, and the site that its pilots are ordered at."""

    def __init__(self, hub: Hub, site: Edge, *, maximum: int = 2) -> None:
        self.hub, self.site = hub, site
        folder = hub.root / "pools"
        folder.mkdir(exist_ok=True)
        text = f'site = "{site.site}"\nmaximum = {maximum}\n{QUICK}'
        (folder / f"{POOL}.toml").write_text(text)

    def submit(self, count: int = 1) -> list[int]:
        """Have files copied by jobs that run in pilots of the pool alone."""
        made = []
        with self.hub.change() as project, project.db.transaction() as db:
            for at in range(count):
                source, target = f"{self.hub.root}/in{at}.txt", f"{self.hub.root}/out{at}.txt"
                Path(source).write_text(f"file {at}\n")
                spec = JobSpec(
                    recipe=Command((sys.executable, "-c", _COPY, source, target)), name="copy",
                    inputs=(source,), outputs={"out": target}, requirements=f'pool == "{POOL}"',
                )  # fmt: skip
                job = records.add(db, NewJob(spec), project.clock.now())
                assert job is not None
                made.append(job)
        return made

    def states(self) -> dict[int, str]:
        """Return the pilots that were ever wanted, and how each is."""
        return dict(self.hub.query("SELECT id, state FROM pilot WHERE pool = ?", POOL))

    def live(self) -> int:
        return sum(state not in _GONE for state in self.states().values())

    def jobs_over(self, jobs: list[int]) -> bool:
        with self.hub._rig.project() as project:
            return all(project.job(one).state is State.DONE for one in jobs)

    def brought(self, count: int) -> None:
        """Require that all files are home."""
        for at in range(count):
            assert (self.hub.root / f"out{at}.txt").read_text() == f"FILE {at}\n"

    def gone(self) -> bool:
        """Whether no pilot is left, here and at the site."""
        jobs = self.site.jobs().values()
        return self.live() == 0 and all(one.state in OVER for one in jobs)

    def once(self) -> None:
        """Require that each pilot was ordered once, and that each that came has its batch job."""
        orders = self.hub.query("SELECT number, key FROM edge_attempt WHERE job = 0")
        taken = self.site.query("SELECT token FROM edge_job WHERE application = 'pilot'")
        assert len(taken) == len(set(taken))
        keys = {key for _, key in orders}
        assert {token.partition(".")[2] for (token,) in taken} <= keys
        named = self.hub.query("SELECT facts ->> 'batch' FROM pilot WHERE facts ->> 'batch' <> ''")
        assert len(named) == len(set(named))

    def beat_often(self) -> None:
        """Have the hub know, as it would after some heartbeats, how far these are apart."""
        gaps = json.dumps([1.0] * 5)
        with self.hub.change() as project, project.db.transaction() as db:
            db._connection.execute("UPDATE edge_site SET gaps = ?", (gaps,))

    def told(self) -> str:
        pilots = self.hub.query("SELECT id, state, reason, asked FROM pilot")
        sent = self.hub.query("SELECT job, number, state, reason, cancel, sent FROM edge_attempt")
        jobs = self.site.query("SELECT id, state, reason FROM job")
        rows = [*pilots, *sent, *jobs, *self.hub.query("SELECT words, reason FROM pool")]
        return "\n".join([*map(str, rows), self.hub.said[-5000:], "--", self.site.said[-5000:]])

    def wait(self, condition: Callable[[], object]) -> None:
        try:
            self.hub.wait(condition)
        except AssertionError:
            raise AssertionError(self.told()) from None

    def secrets(self) -> list[str]:
        """Return the secrets of pilots that are not over at the site."""
        query = "SELECT message ->> 'config' FROM edge_job WHERE message ->> 'config' <> ''"
        return [json.loads(config)["secret"] for (config,) in self.site.query(query)]

    def kept(self, secrets: list[str]) -> None:
        """Require that no secret of a pilot is in a log, or in what people are shown."""
        assert self.secrets() == []
        shown = [
            self.hub.said, self.site.said, command(self.hub, "pool", "show", POOL, "--json"),
            command(self.hub, "pilot", "ls", "--json"), self._there("agent", "status", "--json"),
            self._there("job", "show", "1", "--json"), self._there("story", "1"),
        ]  # fmt: skip
        assert not [one for one in secrets for text in shown if one in text]

    def _there(self, *words: str) -> str:
        return DialingAgent.command(self.site, *words)  # type: ignore[arg-type]


@contextmanager
def by_broker(root: Path, rabbit: Rabbit, slurm: Slurm) -> Iterator[Ordered]:
    """Have a hub and an agent at a broker; pilots run in Slurm."""
    port = free_port()
    url = f"https://127.0.0.1:{port}"
    # Pilots go through the agent, as where nodes have no way out of their own.
    relay = {"hub": url, "listen": f"127.0.0.1:{free_port()}"}
    with edge_agent.at_slurm(root / "site", rabbit, slurm, settings={"relay": relay}) as site:
        register(site, hubs=[url], users=[ADMIN])
        served = {"hub": {"host": "127.0.0.1", "port": port, "tls": "on"}, **_PILOTS}
        hub = Hub(root / "hub", site, settings=served)
        with hub.up(), site.up():
            yield Ordered(hub, site)


def grows_and_shrinks(pool: Ordered, jobs: list[int]) -> None:
    secrets: list[str] = []

    def caught() -> bool:
        secrets[:] = pool.secrets()
        return bool(secrets)

    pool.wait(caught)
    pool.wait(lambda: pool.jobs_over(jobs))
    pool.brought(len(jobs))
    pool.wait(pool.gone)
    assert set(pool.states().values()) == {"down"}, pool.told()
    pool.once()
    pool.kept(secrets)


@pytest.mark.slow
def test_a_pool_at_a_site_that_dials_the_hub_grows_works_and_shrinks(tmp_path: Path):
    with pair(tmp_path, settings=_PILOTS) as (hub, site):
        site.wait(lambda: site.state() == "well")
        pool = Ordered(hub, site)
        jobs = pool.submit(6)
        # Each command says what the administrator has to do first.
        told = f"site {site.site} starts no pilots: its administrator has to register"
        for words in (
            ("pool", "show", POOL),
            ("explain", str(jobs[0])),
            ("site", "show", site.site),
        ):
            shown = functools.partial(command, hub, *words)
            pool.wait(lambda shown=shown: told in " ".join(shown().split()))  # type: ignore[misc]
        assert pool.states() == {}
        register(site)
        grows_and_shrinks(pool, jobs)


@pytest.mark.slow
def test_a_pool_at_a_site_behind_a_broker_grows_works_and_shrinks(
    tmp_path: Path, rabbit: Rabbit, slurm: Slurm
):
    with by_broker(tmp_path, rabbit, slurm) as pool:
        grows_and_shrinks(pool, pool.submit(6))


@pytest.mark.slow
def test_one_pilot_comes_though_hub_and_agent_are_killed_between_its_order_and_its_start(
    tmp_path: Path,
):
    hub, port = serving(tmp_path / "hub", _PILOTS)
    with DialingAgent(tmp_path / "site", hub, port) as site:
        register(site, limits={"maximum": 1})
        pool = Ordered(hub, site, maximum=1)
        try:
            hub.start("pilot.ordered", ready=False)
            site.wait((hub.root / ".pilotage" / "hub.json").exists)
            site.enrol()
            site.start()
            (job,) = pool.submit()
            assert hub.process.wait(PATIENCE) == -signal.SIGKILL, hub.told()
            site.kill()
            assert pool.states() == {1: "requested"}
            pool.beat_often()
            # Its site is silent: commands say so, nothing is given up, and nothing new is wanted.
            hub.start()
            pool.wait(lambda: "is silent" in command(hub, "pool", "show", POOL))
            pool.wait(lambda: f"site {site.site} is silent" in command(hub, "explain", str(job)))
            assert pool.states() == {1: "requested"}
            for point in ("edge.committed", "site.intent", "site.submitted"):
                site.dies(point)
                hub.kill()
                hub.start()
            site.start()
            pool.wait(lambda: pool.jobs_over([job]))
            pool.wait(pool.gone)
        finally:
            hub.kill()
        assert pool.states() == {1: "down"}
        assert len(site.query("SELECT job FROM edge_job")) == 1
        assert len(site.query("SELECT submission FROM submitted")) == 1
        pool.brought(1)
        pool.once()


@pytest.mark.slow
def test_pilots_that_are_not_wanted_any_more_are_cancelled_at_their_site(tmp_path: Path):
    with pair(tmp_path, register, settings=_PILOTS) as (hub, site):
        # The site accepts its orders, and has no room for what they start.
        site.change({"batch": {"python": "/bin/false"}})
        pool = Ordered(hub, site, maximum=1)
        (job,) = pool.submit()
        pool.wait(lambda: pool.live() and hub.query("SELECT 1 FROM edge_attempt WHERE heard > 0"))
        command(hub, "cancel", str(job))
        (hub.root / "pools" / f"{POOL}.toml").unlink()
        pool.wait(pool.gone)
