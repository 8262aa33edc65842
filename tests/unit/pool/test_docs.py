"""The page on pools: every key is explained, and what is shown loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext import facts, tables
from pilotage.batch.pilot_request import PilotRequest
from pilotage.pool import files
from pilotage.pool.efficiency import Efficiency

PAGE = Path(__file__).parents[3] / "docs" / "pools.md"
_SHOWN = re.findall(r"^```toml pool\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "owner",
    [
        files.Pool,
        PilotRequest,
        files.Aimd,
        files.Even,
        files.Relative,
        files.SupplyStep,
        files.Outside,
        Efficiency,
    ],
)
def test_every_key_of_a_pool_is_on_the_page_of_pools(owner):
    told = tables.TABLES["pool-keys"]() + PAGE.read_text("utf-8")
    found = facts.all_fields(owner)
    assert [one.name for one in found if not one.about] == []
    wanted = {one.name for one in found} - {"pilot", "control", "efficiency"}
    assert [name for name in wanted if f"`{name}`" not in told] == []


@pytest.mark.parametrize("source", _SHOWN)
def test_a_pool_that_is_shown_loads(source):
    assert files.parse(source, "burst", Path("burst.toml")).maximum


def test_pools_are_shown():
    assert len(_SHOWN) >= 3
