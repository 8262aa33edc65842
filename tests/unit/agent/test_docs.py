"""The page on the edge service: every key is explained, and what is shown works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs._ext import facts, tables
from pilotage.agent import settings
from pilotage.data.transfer.keys import Credentials

PAGE = (Path(__file__).parents[3] / "docs" / "edge.md").read_text("utf-8")
SHOWN = re.findall(r"^```toml agent\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "owner",
    [
        settings.Settings,
        settings.SiteBroker,
        settings.DialledHub,
        settings.RunningLimits,
        settings.KeepTimes,
        settings.RelaySettings,
        Credentials,
    ],
)
def test_every_key_of_an_agent_is_on_its_page(owner):
    told = tables.TABLES["agent-keys"]()
    found = facts.fields(owner)
    assert found
    assert [one.name for one in found if not one.about] == []
    assert [one.name for one in found if f"`{one.name}`" not in told] == []


@pytest.mark.parametrize("source", SHOWN)
def test_settings_that_are_shown_load(source):
    assert settings.parse(source, Path("agent.toml")).site == "mira"


def test_something_is_shown():
    assert SHOWN


def test_the_topics_of_an_agent_are_told():
    plain = settings.parse(
        'site = "SITE"\n[bus]\nurl = "amqps://b/"\n[batch]\nbatch = "local"\n', Path("agent.toml")
    )
    for topic in (
        *plain.job_topics, plain.control_topic, plain.status_topic, plain.beat_topic,
        plain.refused_topic, plain.bus.balsam_status,
    ):  # fmt: skip
        assert f"`{topic}`" in PAGE


def test_a_draft_is_what_was_asked_for(tmp_path):
    bus = settings.SiteBroker(url="amqps://b/", ca="/x/ca.pem", user='odd "name"')
    file = settings.write(tmp_path / "new" / "agent.toml", "mira", bus, "slurm", ("CN=a,O=b",))
    read = settings.parse(file.read_text("utf-8"), file)
    assert (read.site, read.bus, read.batch.batch) == ("mira", bus, "slurm")
    assert read.admins == ("CN=a,O=b",)
    assert {line.partition(" ")[0] for line in file.read_text().splitlines()} >= {"[keep]", "jobs"}
