"""`pilotage pool add`, and curves as text."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.cli import curve, pool_add
from pilotage.cli.common import Common
from pilotage.cli.pool_add import PoolOptions
from pilotage.pool import files


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "sites").mkdir()
    (tmp_path / "sites/cluster.toml").write_text('batch = "slurm"\n')
    return Common(project=tmp_path)


def test_a_new_pool_is_a_file_that_reads_as_it_was_said(at: Common, tmp_path: Path):
    said = PoolOptions(
        site="cluster", maximum=64, ask_above=32, cpus=8, memory="16G", time="12h", queue="long",
        about='for "short" jobs',
    )  # fmt: skip
    pool_add.add("burst", described=said, at=at)
    found = files.read(tmp_path, "burst")
    assert found == said.pool()
    assert (found.pilot.cpus, found.pilot.memory, found.about) == (8, "16G", 'for "short" jobs')


def test_what_is_a_comment_in_the_new_file_may_be_made_use_of(at: Common, tmp_path: Path):
    pool_add.add("burst", described=PoolOptions(site="cluster", maximum=64), at=at)
    lines = files.file_of(tmp_path, "burst").read_text().splitlines()
    # A key without a space before it is one; a sentence has one.
    used = [one[1:] if one[:1] == "#" and one[1:2] not in {" ", ""} else one for one in lines]
    found = tomllib.loads("\n".join(used))
    assert {"minimum", "pending", "ask_above", "interval", "pilot", "control"} <= found.keys()
    assert files.parse("\n".join(used), "burst", tmp_path / "x").pilot.memory == "8G"


def test_a_pool_that_is_there_stays_as_it_is(at: Common, tmp_path: Path):
    pool_add.add("burst", described=PoolOptions(site="cluster", maximum=64), at=at)
    with pytest.raises(errors.Conflict, match="already"):
        pool_add.add("burst", described=PoolOptions(site="cluster", maximum=1), at=at)
    assert files.read(tmp_path, "burst").maximum == 64


def test_a_pool_needs_a_site_a_name_and_room_for_one_pilot(at: Common, tmp_path: Path):
    with pytest.raises(errors.NotFound) as caught:
        pool_add.add("burst", described=PoolOptions(site="moon", maximum=64), at=at)
    assert "site add moon" in caught.value.hint
    for name, said in (
        ("../x", PoolOptions(site="cluster", maximum=1)),
        ("burst", PoolOptions(site="cluster", maximum=1, cpus=2)),
        ("burst", PoolOptions(site="cluster", maximum=1, memory="much")),
    ):
        with pytest.raises(errors.UsageError):
            pool_add.add(name, described=said, at=at)
    assert files.names(tmp_path) == []


def test_curves_share_a_scale_and_show_where_nothing_is_known():
    (one, two) = curve.curves({"cores": [0.0, 4.0], "demand": [8.0, 8.0]})
    assert "·▄" in str(one)
    assert "██" in str(two)
