"""The page on factories: every key is explained, and what is shown loads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext import facts, tables
from pilotage.edge.factory import files
from pilotage.pool import files as pools

PAGE = (Path(__file__).parents[2] / "docs" / "factories.md").read_text("utf-8")


def shown(kind: str) -> list[str]:
    return re.findall(rf"^```toml {kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_key_of_a_hub_is_on_the_page_of_factories():
    found = facts.fields(files.Hub)
    assert [one.name for one in found if not one.about] == []
    told = tables.TABLES["hub-keys"]()
    assert [one.name for one in found if f"`{one.name}`" not in told] == []


@pytest.mark.parametrize("source", shown("hub"))
def test_a_hub_that_is_shown_loads(source: str):
    assert files.parse(source, "lab", Path("lab.toml")).sites


@pytest.mark.parametrize("source", shown("pool"))
def test_a_pool_that_is_shown_is_within_the_limits_of_the_hub_beside_it(source: str):
    pool = pools.parse(source, "burst", Path("burst.toml"))
    hub = files.parse(shown("hub")[0], "lab", Path("lab.toml"))
    assert hub.objection(pool.pilot.wish()) == ""


def test_two_hubs_are_shown():
    assert len(shown("hub")) == 2
