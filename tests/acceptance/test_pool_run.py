"""`pilotage pool run`: controllers as processes of their own, beside a real hub."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pilotage.hub.project import Project
from pilotage.pool import view
from testbed.ports import free_port
from tests.rigs.cluster.batch_site import PATIENCE, SITE, SRC, SiteProject

#: As COBalD's documentation has it, but quick, and with a pool of ours at the end.
TAGS = """
pipeline:
    - !LinearController
        low_utilisation: 0.5
        high_allocation: 0.9
        rate: 1
        interval: 0.5
    - !Limiter
        minimum: 1
        maximum: 2
    - !Logger
        name: cobald.control
    - !PilotagePool
        name: a
logging:
    version: 1
    formatters:
        line:
            (): cobald.monitor.format_line.LineProtocolFormatter
    handlers:
        file:
            class: logging.FileHandler
            filename: {log}
            formatter: line
    loggers:
        cobald:
            level: INFO
            handlers: [file]
"""
#: The older way to write the same.
TYPES = """
pipeline:
    - __type__: cobald.controller.linear.LinearController
      low_utilisation: 0.5
      high_allocation: 0.9
      interval: 0.5
    - __type__: cobald.decorator.standardiser.Standardiser
      minimum: 1
      surplus: 1
    - __type__: pilotage.pool.Pilots
      __args__: [b]
"""
POOL = """
site = "{site}"
maximum = 2
interval = "0.5s"

[control]
kind = "outside"
"""


class Bench:
    """A farm whose pools are steered from outside."""

    def __init__(self, root: Path, *pools: str) -> None:
        self.farm = SiteProject(root, 'batch = "local"\n')
        (root / "pilotage.toml").write_text(
            f'[hub]\ntls = "on"\nport = {free_port()}\n'
            '[pilots]\nsandbox = "none"\nheartbeat = "0.5s"\nlease = "1m"\n'
        )
        (root / "pools").mkdir()
        self.pools = pools
        for name in pools:
            (root / "pools" / f"{name}.toml").write_text(POOL.format(site=SITE))

    @property
    def root(self) -> Path:
        return self.farm.root

    def file(self, name: str, text: str) -> Path:
        made = self.root / name
        made.write_text(text)
        return made

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self._command(*words), env=self._env(), capture_output=True, text=True,
            timeout=PATIENCE, check=False,
        )  # fmt: skip

    def start(self, file: Path) -> subprocess.Popen[bytes]:
        with (self.root / f"{file.stem}.told").open("a") as told:
            return subprocess.Popen(
                self._command("pool", "run", str(file), "--json"), env=self._env(), stdout=told,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    def told(self, file: Path) -> list[dict[str, Any]]:
        """Read what a controller printed; the last line may be half."""
        lines = (self.root / f"{file.stem}.told").read_text().splitlines()
        return [json.loads(one) for one in lines if one.startswith("{") and one.endswith("}")]

    def decides(self, file: Path, count: int) -> None:
        """Wait until a controller has told so many things."""
        self.farm.wait(lambda: len(self.told(file)) >= count)

    def submit(self, pool: str, count: int) -> list[int]:
        asked, more = f'pool == "{pool}"', self.farm.unhurried(0.5)
        return self.farm.submit(count, more=more, site="", requirements=asked)

    def look(self, name: str) -> view.PoolView:
        with Project(self.root) as project:
            return view.pool(project.db, project.root, name, project.clock.now())

    def live(self) -> collections.Counter[str]:
        """Count the pilots of each pool; there are never more than its maximum."""
        with Project(self.root) as project:
            rows = project.db._connection.execute(
                "SELECT pool FROM pilot WHERE state NOT IN ('down', 'failed', 'lost') AND id > 0"
            ).fetchall()
        found = collections.Counter(str(row[0]) for row in rows)
        assert all(count <= 2 for count in found.values()), found
        return found

    def empty(self) -> None:
        """Let all pilots go, so that none is left behind."""
        for file in (self.root / "pools").iterdir():
            file.unlink()
        self.farm.wait(lambda: not self.live())

    def none_twice(self) -> None:
        with Project(self.root) as project:
            rows = project.db._connection.execute(
                "SELECT pilot, count(*) FROM submitted WHERE pilot IS NOT NULL GROUP BY pilot"
            ).fetchall()
        assert [row for row in rows if row[1] != 1] == []

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pilotage", *words, "--project", str(self.root)]

    def _env(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(SRC)}


@contextmanager
def ended(*processes: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        for one in processes:
            one.kill()
            one.wait()


@pytest.mark.slow
def test_two_controllers_steer_two_pools_though_one_and_the_hub_are_killed(tmp_path: Path):
    bench = Bench(tmp_path / "p", "a", "b")
    first = bench.file("a.yaml", TAGS.replace("{log}", str(tmp_path / "lines")))
    second = bench.file("b.yaml", TYPES)
    jobs = bench.submit("a", 20) + bench.submit("b", 20)
    bench.farm.start()
    try:
        one, two = bench.start(first), bench.start(second)
        with ended(two):
            for kills in range(1, 6):
                before = len(bench.told(first))
                bench.decides(first, before + 2)
                bench.live()
                one.kill()
                one.wait()
                if kills == 2:
                    # Meanwhile nobody steers it, and it goes on.
                    bench.farm.wait(lambda: bench.live()["a"])
                if kills == 4:
                    bench.farm.kill()
                    bench.farm.start()
                one = bench.start(first)
            with ended(one):
                bench.farm.wait(lambda: bench.live() and bench.look("a").demand == 2)
                bench.farm.wait(lambda: any(x.get("taken") == 2 for x in bench.told(second)))
                bench.farm.haste.touch()
                bench.farm.wait(lambda: bench.live() and len(bench.farm.ran()) == len(jobs))
                bench.farm.wait(lambda: bench.live() == {"a": 1, "b": 1})
                bench.farm.wait(lambda: {bench.look(x).demand for x in "ab"} == {1})
                bench.farm.exactly_once(jobs)
                bench.none_twice()
                look = bench.look("a")
                assert look.state == "controlled"
                assert f":{first} wants 1 cores" in look.steered
                assert "the last one wins" not in look.steered
                one.send_signal(signal.SIGTERM)
                two.send_signal(signal.SIGINT)
                assert one.wait(timeout=PATIENCE) == 0
                assert two.wait(timeout=PATIENCE) == 130
                bench.empty()
    finally:
        bench.farm.kill()
    said = bench.told(second)
    assert said[-1]["stopped"] == "SIGINT"
    decisions = [one for one in said if "demand" in one]
    assert max(one["taken"] for one in decisions) == 2
    assert any("allocation 1.00 is above 0.90" in one["words"] for one in decisions)
    assert any("utilisation 0.00 is below 0.50" in one["words"] for one in decisions)
    # Line protocol, as COBalD's formatter writes it.
    lines = (tmp_path / "lines").read_text().splitlines()
    assert any("utilisation=1.0" in line and "allocation=1.0" in line for line in lines)


@pytest.mark.slow
def test_one_pool_is_planned_steered_once_by_hand_and_by_two_at_once(tmp_path: Path):
    bench = Bench(tmp_path / "p", "b")
    (bench.root / "pools/own.toml").write_text(f'site = "{SITE}"\nmaximum = 2\n')
    first = bench.file("first.yaml", TYPES)
    second = bench.file("second.yml", TYPES)
    assert bench.look("b").state == "not controlled"
    lost = bench.run("pool", "run", str(first), "--once")
    assert (lost.returncode, "nothing runs the project" in lost.stderr) == (6, True)
    with bench.farm.up():
        bench.farm.wait((bench.root / ".pilotage/hub.json").exists)
        planned = bench.run("pool", "run", str(first), "--dry-run")
        assert planned.returncode == 0, planned.stderr
        assert "Standardiser: 0.5 becomes 1: the minimum" in planned.stdout
        assert bench.look("b").asked is None
        once = bench.run("pool", "run", str(first), "--once")
        assert once.returncode == 0, once.stderr
        assert "demand 0.5: Linear: " in once.stdout
        assert bench.look("b").asked == 1
        by_hand = bench.run("pool", "set", "b", "--demand", "0")
        assert "0 cores are asked for" in by_hand.stdout
        assert "first.yaml asks too" in by_hand.stderr
        refused = bench.run("pool", "set", "own", "--demand", "1")
        assert (refused.returncode, 'kind = "outside"' in refused.stderr) == (7, True)
        one = bench.start(first)
        with ended(one):
            bench.decides(first, 1)
            again = bench.run("pool", "run", str(first))
            assert (again.returncode, "another process runs" in again.stderr) == (7, True)
            warned = bench.run("pool", "run", str(second), "--once")
            assert warned.returncode == 0, warned.stderr
            assert "first.yaml asks too" in warned.stderr
        shown = bench.run("pool", "show", "b")
        assert "controlled by" in shown.stdout
        assert "the last one wins" in shown.stdout
        bench.empty()


#: As TARDIS's own example has it, but quick and small.
TREE = """
pipeline:
    - __type__: cobald.controller.linear.LinearController
      low_utilisation: 0.50
      high_allocation: 0.90
      rate: 1
      interval: 0.5
    - __type__: cobald.decorator.limiter.Limiter
      minimum: 1
    - __type__: cobald.decorator.logger.Logger
      name: changes
    - __type__: tardis.resources.poolfactory.create_composite_pool
tardis:
    Plugins:
        SqliteRegistry:
            db_file: drone_registry.db
    BatchSystem:
        adapter: FakeBatchSystem
        allocation: 1.0
        utilisation: !TardisPeriodicValue {period: 3600, amplitude: 0.5, offset: 0.5, phase: 0.}
        machine_status: Available
    Sites:
        - name: Fake
          adapter: FakeSite
          quota: 2
          drone_heartbeat_interval: 1
    Fake:
        api_response_delay: !TardisRandomGauss {mu: 0.1, sigma: 0.01}
        MachineTypes:
            - m1.infinity
        MachineTypeConfiguration:
            m1.infinity:
        MachineMetaData:
            m1.infinity:
                Cores: 1
                Memory: 0.25
                Disk: 16
"""


@pytest.mark.slow
def test_a_file_of_tardis_is_imported_and_brings_pilots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    bench = Bench(tmp_path / "p")
    file = bench.file("tree.yml", TREE)
    told = bench.run("pool", "import", str(file))
    assert told.returncode == 0, told.stderr
    assert "wrote sites/Fake.toml" in told.stdout
    assert "not carried over: Fake: FakeSite: pilots are real" in told.stdout
    made = bench.root / "pools/Fake_m1_infinity.toml"
    made.write_text(made.read_text().replace("maximum = 2", 'maximum = 2\ninterval = "0.5s"'))
    jobs = bench.submit("Fake_m1_infinity", 12)
    with bench.farm.up():
        one = bench.start(file)
        with ended(one):
            bench.farm.wait(lambda: bench.live() and len(bench.farm.ran()) == len(jobs))
            bench.farm.wait(lambda: bench.look("Fake_m1_infinity").demand == 1)
            bench.farm.exactly_once(jobs)
        bench.empty()
    bench.none_twice()
    pools = [one["pools"] for one in bench.told(file)]
    assert {one["name"] for one in pools[-1]} == {"Fake_m1_infinity"}
    assert max(each["taken"] for one in pools for each in one) == 2
