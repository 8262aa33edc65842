"""Batch systems by name: ours, and those of plug-ins."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.base import errors
from pilotage.batch import files
from pilotage.batch.system import known, plugin
from pilotage.batch.system.model import BatchItem, Output, Phase
from pilotage.node.discover import batch as systems
from pilotage.testing.batch.words import KEY, ORDER

PLUGIN = """
class Abacus:
    name = "abacus"
    arrays = False

    def __init__(self, settings):
        if unknown := settings.keys() - {"beads"}:
            raise ValueError(f"what is {unknown}?")
        self.beads = settings.get("beads", 10)

    submit = submitted = listing = listed = history = remembered = cancel = version = None


class Half:
    name = "half"
    arrays = False

    def __init__(self, settings):
        pass


BEADS = 12


class Loud:
    raise OSError("no beads")
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Install a distribution with a plug-in, as pip would."""
    (tmp_path / "abacus_plugin.py").write_text(PLUGIN.partition("class Loud")[0])
    (tmp_path / "loud_plugin.py").write_text(PLUGIN)
    facts = tmp_path / "abacus_plugin-1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus-plugin\nVersion: 1\n")
    (facts / "entry_points.txt").write_text(
        "[pilotage.batch]\nabacus = abacus_plugin:Abacus\nloud = loud_plugin:Loud\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    plugin.find.cache_clear()
    yield tmp_path
    plugin.find.cache_clear()
    for name in ("abacus_plugin", "loud_plugin"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", known.OURS)
def test_every_batch_system_of_a_site_has_an_adapter(name: str):
    assert known.adapter(name, program=("python3", "x.pyz"), folder="/q", settings={}).name == name


def test_others_have_none():
    with pytest.raises(errors.ConfigError, match="abacus"):
        known.adapter("abacus", program=(), folder="", settings={})


@pytest.mark.parametrize("name", ["abacus", "abacus_plugin:Abacus"])
def test_a_plug_in_is_found_and_told_its_settings(installed: Path, name: str):
    made = known.adapter(name, program=(), folder="", settings={"beads": 7})
    assert (made.name, made.beads) == ("abacus", 7)  # type: ignore[attr-defined]
    assert not known.arrays(name, {})


def test_the_plug_in_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    page = Path(__file__).parents[3] / "docs" / "how-to" / "write-a-provider.md"
    code = page.read_text().partition("```python\n")[2].partition("```")[0]
    (tmp_path / "abacus_provider.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    name, given = "abacus_provider:abacus", {"beads": 3}
    made = known.adapter(name, program=(), folder="", settings=given)
    assert "--beads=3" in made.submit(ORDER).argv
    assert made.submitted(Output(0, "job 7\n")) == "7"
    text = f"1 {KEY} running\n2 other queued\n\nend of listing\n"
    assert made.listed(Output(0, text)) == [BatchItem(key=KEY, id="1", phase=Phase.RUNNING)]
    assert not known.arrays(name, given)
    with pytest.raises(errors.ConfigError, match="unknown settings: pearls"):
        known.adapter(name, program=(), folder="", settings={"pearls": 7})


def test_what_a_plug_in_does_not_take_is_a_mistake_in_the_file(installed: Path):
    with pytest.raises(errors.ConfigError, match="does not take its settings: what is"):
        known.adapter("abacus", program=(), folder="", settings={"pearls": 7})


@pytest.mark.parametrize(
    "name, words",
    [
        ("loud", "cannot be loaded: OSError: no beads"),
        ("abacus_plugin:Half", "is not a batch system: it has no submit"),
        ("abacus_plugin:BEADS", "is not a batch system: it cannot be called"),
        ("abacus_plugin:Gone", "cannot be loaded"),
        ("nowhere.at_all:Gone", "cannot be loaded"),
    ],
)
def test_what_is_no_plug_in_is_said(installed: Path, name: str, words: str):
    with pytest.raises(errors.ConfigError, match=words):
        known.adapter(name, program=(), folder="", settings={})


def test_the_file_of_a_site_names_a_plug_in_that_is_there(installed: Path):
    found = files.parse('batch = "abacus"\n[plugin]\nbeads = 3\n', "far", Path("far.toml"))
    assert found.plugin == {"beads": 3}
    assert files.parse(files.text("far", found), "far", Path("far.toml")) == found
    files.parse('batch = "abacus_plugin:Abacus"\n', "far", Path("far.toml"))
    for text, words in (
        ('batch = "nope"\n', "far.toml:1: `batch` cannot be 'nope': there is none"),
        ('batch = "../x"\n', "`batch` cannot be"),
        ('batch = "os; import x:y"\n', "`batch` cannot be"),
        ('batch = "slurm"\n[plugin]\nbeads = 3\n', "slurm is none"),
    ):
        with pytest.raises(errors.ConfigError) as caught:
            files.parse(text, "far", Path("far.toml"))
        assert words in str(caught.value)


def test_the_table_of_worker_nodes_says_the_same_as_ours():
    ours = {one.name: (one.prefixes, one.indices) for one in known.SYSTEMS if one.prefixes}
    theirs = {one.name: (one.prefixes, one.indices) for one in systems.SYSTEMS}
    # Pilots run in jobs of OAR, for which there is no adapter.
    assert theirs.pop("oar") == (("OAR_",), ())
    assert theirs == ours
    assert set(systems.PREFIXES) == set(known.PREFIXES)
