"""Files of pools: closed, checked, and mistakes told with their place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from pilotage.base import errors
from pilotage.batch.pilot_request import PilotRequest
from pilotage.pool import files
from pilotage.pool.controller import Linear, RelativeSupply
from pilotage.pool.model import Reading
from pilotage.pool.policy.aimd import Hinted
from pilotage.pool.service import Files, Pools

FULL = """
site = "cluster"
maximum = 64
minimum = 8
pending = 4
interval = "10s"
ask_above = 32

[pilot]
cpus = 8
memory = "16G"
time = "2h"
queue = "long"
idle = "5m"

[control]
patience = "2m"
hedge = 1.5
"""


def parse(source: str) -> files.Pool:
    return files.parse(source, "burst", Path("burst.toml"))


def test_a_pool_is_read():
    pool = parse(FULL)
    assert (pool.site, pool.minimum, pool.maximum, pool.pending) == ("cluster", 8, 64, 4)
    assert pool.seconds == 10
    assert pool.pilot == PilotRequest(8, "16G", 0, "2h", "long", "", "5m")
    assert isinstance(pool.control, files.Aimd)
    assert pool.control.policy() == Hinted(patience=120, hedge=1.5)
    assert pool.controller() is None


def test_our_law_decides_unless_another_is_asked_for():
    pool = parse('site = "a"\nmaximum = 4\n')
    assert pool.control == files.Aimd()
    assert files.Aimd().policy() == Hinted()


@pytest.mark.parametrize(
    "control,wanted",
    [
        ('kind = "linear"\nrate = 2.0', Linear(rate=2.0, interval=30.0)),
        ('kind = "relative"\nhigh_scale = 2.0', RelativeSupply(
            high_scale=2.0, interval=30.0, first=1.0)),
    ],
)  # fmt: skip
def test_controllers_of_cobald_are_there(control, wanted):
    assert parse(f'site = "a"\nmaximum = 4\n[control]\n{control}\n').controller() == wanted


def test_steps_are_ranges_of_the_supply():
    pool = parse("""
site = "a"
maximum = 100
[control]
kind = "stepwise"
[[control.step]]
demand = 10
[[control.step]]
supply = 10
rate = 2
""")
    made = pool.controller()
    assert made is not None
    assert made.decide(Reading(0, 0), 1.0).demand == 10
    assert made.decide(Reading(20, 20, 0.9, 0.9), 2.0).demand == 24
    assert made.decide(Reading(20, 20, 0.1, 0.1), 2.0).demand == 16
    assert made.decide(Reading(20, 20, 0.6, 0.5), 2.0).hold


@pytest.mark.parametrize(
    "source,line,words",
    [
        ('site = "a"\nmaximun = 4\n', 2, "maximun"),
        ('site = "a"\nmaximum = "x"\n', 2, "int"),
        ('site = "a"\nmaximum = 4\nminimum = 5\n', 3, "minimum"),
        ('site = "a"\nmaximum = 4\npending = 0\n', 3, "pending"),
        ('site = "a"\nmaximum = 4\n[pilot]\ncpu = 1\n', 4, "cpu"),
        ('site = "a"\nmaximum = 2\n[pilot]\ncpus = 4\n', 2, "one pilot has 4"),
        ('site = "a"\nmaximum = 4\n[control]\nkind = "pid"\n', 4, "pid"),
        ('site = "a"\nmaximum = 4\n[control]\nkind = "linear"\nspeed = 1\n', 5, "speed"),
        ('site = "a"\nmaximum = 4\n[control]\nhedge = 0\n', 4, "hedge"),
        ('site = "a"\nmaximum = 4\n[control]\npatience = "0s"\n', 4, "patience"),
        ('site = "a"\nmaximum = 4\n[control]\nlight = 0\n', 4, "light"),
        ('site = "a"\nmaximum = 4\n[control]\nski = nan\n', 4, "ski"),
    ],
)
def test_a_mistake_is_told_with_its_line(source, line, words):
    with pytest.raises(errors.ConfigError, match=words) as caught:
        parse(source)
    assert f"burst.toml:{line}:" in str(caught.value)


def test_a_pool_that_is_not_there_is_told(tmp_path):
    with pytest.raises(errors.NotFound, match="no pool `x`"):
        files.read(tmp_path, "x")
    assert files.names(tmp_path) == []


def test_files_are_followed_and_one_with_a_mistake_stays_as_it_was(tmp_path, caplog):
    known = Files(tmp_path)
    for folder in ("pools", "sites"):
        (tmp_path / folder).mkdir()
    file = files.file_of(tmp_path, "burst")
    file.write_text('site = "a"\nmaximum = 4\n')
    known.read()
    known.read()
    assert known.pools == {}
    assert len([one for one in caplog.records if "no site `a`" in one.getMessage()]) == 1
    (tmp_path / "sites/a.toml").write_text('batch = "local"\n')
    known.read()
    assert known.pools["burst"].maximum == 4
    file.write_text('site = "a"\nmaximun = 5\n')
    known.read()
    assert known.pools["burst"].maximum == 4
    assert set(known.marks) == {"burst"}
    file.unlink()
    known.read()
    assert not known.pools
    assert not known.marks


@pytest.mark.anyio
async def test_whatever_goes_wrong_with_pools_does_not_end_the_hub(tmp_path, caplog):
    (tmp_path / "pools").mkdir()
    (tmp_path / "pools/a.toml").write_text(FULL)
    nothing: Any = None
    with anyio.move_on_after(0.5) as scope:
        await Pools(tmp_path, nothing, nothing).run()
    assert scope.cancelled_caught
    assert "pools stay as they are" in caplog.text
