"""Configurations that are run: what they may name, what is refused, and what runs beside."""

from __future__ import annotations

import re
import threading
import types
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import backoff, errors
from pilotage.compat.cobald import carry, document, ours, tardis
from pilotage.compat.cobald.names import TAGS
from pilotage.compat.cobald.ours import Services, Setup
from pilotage.pool import files
from pilotage.pool.files import Outside
from pilotage.pool.remote import Voice

# -- files -----------------------------------------------------------------------------------------


def setup(tmp_path: Path, text: str, name: str = "c.yaml", **more: Any) -> Setup:
    file = tmp_path / name
    file.write_text(text)
    return Setup(file, Voice("me"), start=tmp_path, **more)


def test_configurations_in_python_are_refused_with_a_hint(tmp_path):
    with pytest.raises(errors.UsageError, match="in Python are not run") as found:
        setup(tmp_path, "", "c.py")
    assert "__type__" in found.value.hint
    with pytest.raises(errors.UsageError, match="neither"):
        setup(tmp_path, "", "c.toml")


@pytest.mark.parametrize(
    "text, said",
    [
        ("pipeline: [!PilotagePool {name: a}]", "no controller"),
        ("pipeline: [!LinearController , !PilotagePool {nane: a}]", "there is no `nane`"),
        ("pipeline: [!LinearController , !PilotagePool ]", "missing required"),
        ("pipeline: [!LinearController , !TardisPoolFactory ]", "which sites there are"),
        ("pipeline: [!LinearController , !TardisPoolFactory {configuration: x.yml}]", "x.yml"),
        ("pipeline: [!LinearController , {__type__: other.Pool}]", "not one of ours"),
    ],
)
def test_mistakes_are_found_before_anything_is_done(tmp_path, text, said):
    with pytest.raises(errors.ConfigError, match=said):
        setup(tmp_path, text).load()


def found(made: Setup) -> Any:
    made.load()
    (hub,) = made._hubs.values()
    return hub._find()


@pytest.mark.parametrize("start", [True, False])
def test_a_token_goes_to_no_hub_that_it_is_not_for(tmp_path, monkeypatch, start):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PILOTAGE_HUB", "https://hub.example.org:1")
    monkeypatch.setenv("PILOTAGE_TOKEN", "pil_a_mine")
    text = "pipeline: [!LinearController , !PilotagePool {name: a, hub: 'https://HOST:1'}]"
    made = setup(tmp_path, text.replace("HOST", "other.example.org"))
    made._start = tmp_path if start else None
    with pytest.raises(errors.Denied, match="there is no token for the hub at other"):
        found(made)
    made = setup(tmp_path, text.replace("HOST", "hub.example.org"))
    made._start = None
    assert found(made).token == "pil_a_mine"


def test_what_is_no_token_is_sent_to_nobody(tmp_path):
    (tmp_path / "key").write_text("-----BEGIN KEY-----\nabc\n")
    text = "{name: a, hub: 'https://other.example.org', token_file: key}"
    made = setup(tmp_path, f"pipeline: [!LinearController , !PilotagePool {text}]")
    with pytest.raises(errors.ConfigError, match="there is no token in") as caught:
        found(made)
    assert "BEGIN" not in str(caught.value)


def test_a_pool_whose_hub_is_not_there_is_known_and_says_so(tmp_path):
    (tmp_path / ".pilotage").mkdir()
    made = setup(tmp_path, "pipeline: [!LinearController , !PilotagePool {name: a}]")
    made.load().pipeline.view()
    (leaf,) = made.leaves
    assert leaf.name == "a"
    assert isinstance(leaf.error, errors.NoRunner)


def test_a_token_is_not_sent_in_the_clear(tmp_path):
    (tmp_path / "token").write_text("pil_p_x\n")
    text = "{name: a, hub: 'http://hub.example.org:1', token_file: token}"
    made = setup(tmp_path, f"pipeline: [!LinearController , !PilotagePool {text}]")
    made.load().pipeline.view()
    assert "not encrypted" in str(made.leaves[0].error)


TARDIS = """
pipeline:
    - !LinearController
    - __type__: tardis.resources.poolfactory.create_composite_pool
tardis:
    Sites:
        - {name: one, adapter: Slurm, quota: 100}
        - {name: two, adapter: FakeSite, quota: -1}
    one:
        executor: !TardisSSHExecutor {host: login}
        MachineTypes: [big.node, small]
        MachineMetaData: {big.node: {Cores: 16}, small: {Cores: 4}}
    two:
        MachineTypes: [fake]
        MachineMetaData: {fake: {Cores: 1, Memory: 2.5}}
"""


def test_the_section_of_tardis_becomes_its_tree(tmp_path):
    (tmp_path / ".pilotage").mkdir()
    made = setup(tmp_path, TARDIS)
    pipeline = made.load().pipeline
    assert [one.name for one in made.leaves] == ["one_big_node", "one_small", "two_fake"]
    first, second = pipeline.target.children
    assert (first.decorator.maximum, second.decorator.maximum) == (100, float("inf"))
    loggers = [one.decorator.name for one in first.target.children]
    assert loggers == ["one_big.node", "one_small"]
    assert first.target.policy.weight == pipeline.target.policy.weight == "utilisation"


def test_a_file_of_tardis_is_found_beside_the_configuration(tmp_path):
    _, _, section = TARDIS.partition("tardis:\n")
    (tmp_path / "tardis.yml").write_text(section)
    (tmp_path / ".pilotage").mkdir()
    text = "pipeline: [!LinearController , !TardisPoolFactory {configuration: tardis.yml}]"
    made = setup(tmp_path, text)
    made.load()
    assert len(made.leaves) == 3


# -- services of others ----------------------------------------------------------------------------


class Lively:
    """A service as COBalD's are."""

    def __init__(self, flavour: str, fails: int = 0) -> None:
        self.__service_unit__ = types.SimpleNamespace(flavour=types.ModuleType(flavour))
        self.fails = fails
        self.lives = 0
        self.done = threading.Event()
        self.run = self._later if flavour == "asyncio" else self._now

    def _now(self) -> None:
        self.lives += 1
        if self.lives <= self.fails:
            raise OSError("died")
        self.done.set()

    async def _later(self) -> None:
        self._now()


@pytest.mark.parametrize("flavour", ["threading", "asyncio"])
def test_a_service_that_fails_is_started_again(flavour, monkeypatch):
    monkeypatch.setattr(ours, "RETRY", backoff.fixed(0.01))
    services, one = Services(), Lively(flavour, fails=2)
    services.adopt(one)
    services.adopt("what is no service")
    assert one.lives == 0
    services.start()
    assert one.done.wait(30)
    assert one.lives == 3
    late = Lively(flavour)
    services.adopt(late)
    assert late.done.wait(30)


def test_services_that_were_made_for_nothing_do_not_run():
    services, one = Services(), Lively("threading")
    services.adopt(one)
    services.forget()
    services.start()
    assert not one.done.wait(0.1)


# -- the page --------------------------------------------------------------------------------------

_PAGE = (Path(__file__).parents[3] / "docs/cobald.md").read_text("utf-8")
_SHOWN = re.findall(r"^```yaml\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("text", [one for one in _SHOWN if one.startswith("pipeline")])
def test_a_configuration_that_is_shown_loads(tmp_path, text):
    (tmp_path / ".pilotage").mkdir()
    found = setup(tmp_path, text).load()
    assert found.advice == ()


def test_a_file_of_tardis_that_is_shown_is_carried_over():
    (text,) = (one for one in _SHOWN if one.startswith("Sites"))
    (place,) = tardis.read(document.read(text)).places
    moved = carry.carry(place)
    assert moved.reach.far
    assert [one.pilot.cpus for one in moved.pools.values()] == [42]


def test_every_adapter_and_tag_is_on_the_page():
    tags = [f"!{name}" for name in TAGS] + ["!PilotagePool", "!TardisPoolFactory"]
    assert [one for one in [*carry.ADAPTERS, *tags] if f"`{one}`" not in _PAGE] == []


def test_pools_that_are_shown_load():
    (text,) = re.findall(r"^```toml pool\n(.*?)^```$", _PAGE, re.MULTILINE | re.DOTALL)
    assert isinstance(files.parse(text, "burst", Path("burst.toml")).control, Outside)
