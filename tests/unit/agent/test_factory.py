"""Factories of earlier versions: what was kept is carried over, and each file says what follows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import apsw
import pytest

from pilotage.agent import settings
from pilotage.agent.app import files as apps
from pilotage.base import errors
from pilotage.batch import files
from pilotage.cli import main
from pilotage.cli.tree import app
from pilotage.store import Db, connect, sqlite

#: The change of the schema that ends factories.
LAST = 24
HUB = """
url = "https://lab:8420"
token_file = "lab.token"
ca = "lab.pem"
maximum = 64
pending = 4
accounts = ["beam"]
[sites]
grid = "cluster"
"""


# -- files and commands ----------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "hubs").mkdir()
    (tmp_path / "hubs" / "lab.toml").write_text(HUB)
    return tmp_path


def test_the_folder_of_a_factory_says_what_an_agent_is_told(root: Path):
    with pytest.raises(errors.NotFound, match="a factory is an agent now") as caught:
        settings.read(root / "agent.toml")
    # What is written so is what the agent reads.
    agent, _, app = caught.value.hint.partition("agent.toml:\n")[2].partition("apps/pilot.toml:\n")
    made = settings.parse(agent.replace("[batch]", '[batch]\nbatch = "slurm"'), root / "agent.toml")
    lab = made.by("lab")
    assert (made.site, lab.site, lab.hub.url) == ("cluster", "grid", "https://lab:8420")
    assert (lab.hub.ca, lab.hub.token_file) == ("hubs/lab.pem", "hubs/lab.token")
    limits = apps.parse(app, "pilot", root / "pilot.toml").limits_of("lab")
    assert (limits.maximum, limits.pending, limits.projects) == (64, 4, ("beam",))
    assert "pilotage token new agent --site grid" in agent


def test_another_folder_says_nothing_of_factories(tmp_path: Path):
    assert settings.settings_for_factory(tmp_path) == ""
    with pytest.raises(errors.NotFound, match="there is no"):
        settings.read(tmp_path / "agent.toml")


def test_a_bad_file_and_several_sites_are_told_of_too(root: Path):
    (root / "hubs" / "bad.toml").write_text("= no TOML")
    (root / "hubs" / "two.toml").write_text(HUB.replace("grid", 'theirs = "other"\ngrid'))
    told = settings.settings_for_factory(root)
    assert "[hubs.bad]" in told
    assert "other has an agent in a folder of its own" in told
    assert tomllib.loads(told.partition("[hubs.two]")[2].partition("\n\n")[0])["site"] == "grid"


def test_the_file_of_a_site_that_a_factory_fed_says_what_to_do(tmp_path: Path):
    with pytest.raises(errors.ConfigError, match="has an agent") as caught:
        files.parse('batch = "factory"\n', "grid", tmp_path / "grid.toml")
    assert "pilotage token new agent --site grid" in caught.value.hint


@pytest.mark.parametrize("word, meant", [("serve", "agent run"), ("hubs", "agent status")])
def test_commands_of_factories_name_those_of_agents(word: str, meant: str):
    with pytest.raises(Exception, match=word) as caught:
        app.parse_args(["pool", word], print_error=False, exit_on_error=False)
    said: Any = caught.value
    assert main.usage_error(said).hint == f"did you mean `pilotage {meant}`?"


# -- the store -------------------------------------------------------------------------------------


@pytest.fixture
def old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a store as the version before this one made it."""
    before = tuple(one for one in sqlite.migrations() if one[0] < LAST)
    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "migrations", lambda: before)
        connect(tmp_path / "store.db").close()
    return tmp_path / "store.db"


def write(file: Path, *lines: str) -> None:
    connection = apsw.Connection(str(file))
    for one in lines:
        connection.execute(one)
    connection.close()


def rows(db: Db, query: str) -> list[Any]:
    return list(db._connection.execute(query))


_PILOT = (
    "INSERT INTO pilot (id, name, site, pool, state, reason, digest, facts, enrolled, seen, wish)"
    " VALUES ({}, 'p', '{}', 'burst', '{}', '', '', '{{}}', 1, 1, '{{}}')"
)
_TOKEN = (
    "INSERT INTO token (digest, scope, owner, pool, site, label, created, expires, uses, pilot)"
    " VALUES ('{}', '{}', '', '', 'grid', '', 1, 9e9, {}, {})"
)


def test_what_a_hub_had_from_a_factory_is_over_or_stays_wanted(old: Path):
    states = {1: "requested", 2: "requested", 3: "submitted", 4: "available", 5: "down"}
    write(
        old,
        "INSERT INTO factory VALUES ('grid', '0123456789ab', 7, 100.0, 'well')",
        "INSERT INTO site (name, way) VALUES ('grid', 'batch'), ('own', 'batch')",
        *(_PILOT.format(number, "grid", state) for number, state in states.items()),
        _PILOT.format(6, "own", "submitted"),
        _TOKEN.format("f", "factory", "NULL", "NULL"),
        *(_TOKEN.format(f"e{number}", "enrol", 1, number) for number in (2, 3, 4, 6)),
        "INSERT INTO factory_end VALUES (4, 'over'), (6, 'over at its agent')",
        "INSERT INTO edge_attempt (job, number, site, key, created) VALUES (0, 6, 'own', 'k', 1)",
    )
    db = connect(old)
    found = dict(rows(db, "SELECT id, state FROM pilot"))
    # Those that nobody had enrolled for are ordered of the agent.
    assert found == {
        1: "requested", 2: "down", 3: "down", 4: "available", 5: "down", 6: "submitted"
    }  # fmt: skip
    good = "SELECT digest FROM token WHERE revoked IS NULL ORDER BY digest"
    assert rows(db, good) == [("e4",), ("e6",)]
    assert rows(db, "SELECT name, way FROM site ORDER BY name") == [("grid", ""), ("own", "batch")]
    assert rows(db, "SELECT pilot FROM pilot_end") == [(6,)]
    db.close()


def test_what_a_factory_had_in_the_batch_system_is_not_submitted_again(old: Path):
    submission = (
        "INSERT INTO submission (id, key, site, batch, body, state, created)"
        " VALUES ({0}, 'k{0}', 'cluster', 'slurm', '{{}}', 'known', 1)"
    )
    write(
        old,
        "INSERT INTO guest (id, hub, remote, site, theirs, wish, cores, state, taken)"
        " VALUES (1, 'lab', 5, 'cluster', 'grid', '{}', 1, 'running', 1)",
        submission.format(1),
        submission.format(2),
        "INSERT INTO submitted (submission, place, pilot) VALUES (1, 0, 1)",
        "INSERT INTO submitted (submission, place, job, attempt) VALUES (2, 0, 9, 1)",
        "INSERT INTO fed (hub) VALUES ('lab')",
    )
    db = connect(old)
    assert rows(db, "SELECT id, state FROM submission") == [(1, "over"), (2, "known")]
    assert rows(db, "SELECT state FROM submitted ORDER BY submission") == [("over",), ("out",)]
    tables = {name for (name,) in rows(db, "SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert not tables & {"guest", "fed", "factory", "factory_end"}
    db.close()
