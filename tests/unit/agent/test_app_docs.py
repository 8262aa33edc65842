"""The pages on applications and messages: every key is explained, and what is shown works."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from docs._ext import facts, tables
from pilotage.agent.app import command, files
from pilotage.agent.app import model as apps
from pilotage.bus import balsam, model

DOCS = Path(__file__).parents[3] / "docs"
APPS = (DOCS / "apps.md").read_text("utf-8")
BUS = (DOCS / "reference" / "messages.md").read_text("utf-8")


def fences(text: str, info: str) -> list[str]:
    return re.findall(rf"^```{info}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(
    "owner", [apps.Application, apps.Parameter, apps.Config, apps.AppLimits, apps.Staging]
)
def test_every_key_of_an_application_is_on_its_page(owner):
    told = tables.TABLES["app-keys"]() + APPS
    found = facts.fields(owner)
    assert [one.name for one in found if not one.about] == []
    assert [one.name for one in found if f"`{one.name}`" not in told and one.name not in told] == []


@pytest.mark.parametrize("source", fences(APPS, "toml app"))
def test_an_application_that_is_shown_loads(source):
    assert files.parse(source, "sim", Path("sim.toml")).executable


@pytest.mark.parametrize("name", ["commands", "functions", "pilot"])
def test_an_application_that_takes_what_others_bring_is_shown(name):
    (source,) = fences(APPS, f"toml app {name}")
    assert files.parse(source, name, Path(f"{name}.toml")).takes == name


def test_every_word_of_a_template_is_explained():
    told = tables.TABLES["app-words"]()
    assert [word for word in command.KNOWN if f"`{{{word}}}`" not in told] == []


@pytest.mark.parametrize("source", fences(BUS, "json"))
def test_a_message_that_is_shown_is_understood(source):
    found = balsam.read_message(source.encode()).message
    assert isinstance(found, model.Job)
    assert json.loads(source)["application"] == found.application


@pytest.mark.parametrize(
    "owner", [model.Job, model.Chain, model.Control, model.Status, model.Heartbeat, model.Reason]
)
def test_every_field_of_a_message_is_on_its_page(owner: type[msgspec.Struct]):
    told = tables.TABLES["messages"]()
    assert [one.name for one in facts.fields(owner) if not one.about] == []
    names = owner.__struct_encode_fields__
    assert [name for name in names if f"| `{name}` |" not in told] == []
