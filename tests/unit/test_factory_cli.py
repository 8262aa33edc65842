"""Commands on factories and on the sites that they feed: what they say, and what they refuse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pilotage.agent.share import Claim
from pilotage.base import errors, text
from pilotage.batch import records
from pilotage.batch.wish import Wish
from pilotage.cli import pool, pool_serve, site, site_check, submit, token
from pilotage.cli.common import Common
from pilotage.cli.spec import Wishes
from pilotage.edge.factory import book
from pilotage.edge.factory.book import Wanted
from pilotage.project.tokens import Scope
from pilotage.store import Db

HUB = 'url = "https://h:1"\ntoken_file = "t"\nmaximum = 8\n[sites]\ngrid = "batch"\n'


@pytest.fixture
def at(tmp_path: Path) -> Common:
    (tmp_path / "pilotage.toml").touch()
    for name in ("hubs", "sites", "pools"):
        (tmp_path / name).mkdir()
    return Common(project=tmp_path)


def write(at: Common, name: str, source: str) -> None:
    assert at.project is not None
    (at.project / name).write_text(source)


def data(answer: Any) -> Any:
    return answer.data


# -- the factory ---------------------------------------------------------------------------------


def test_a_factory_needs_sites_and_hubs(at: Common):
    with pytest.raises(errors.ConfigError, match="no site to start pilots at"):
        pool_serve.serve(at=at)
    write(at, "sites/grid.toml", 'batch = "factory"\n')
    with pytest.raises(errors.ConfigError, match="no site to start pilots at"):
        pool_serve.serve(at=at)
    write(at, "sites/batch.toml", 'batch = "local"\n')
    with pytest.raises(errors.ConfigError, match="no hub to start pilots for") as caught:
        pool_serve.serve(at=at)
    assert "hubs/NAME.toml" in caught.value.hint


def taken(db: Db, *stages: str) -> None:
    for number, state in enumerate(stages, 1):
        claim = Claim("lab", number, "batch", 2)
        book.take(db, [Wanted(claim, "grid", Wish(cpus=2), "")], 1.0)
        db.run("guest_end", id=number, state=state, reason="")


def test_hubs_are_listed_with_what_they_have_and_may_have(at: Common):
    assert "no hubs" in pool_serve.hubs(at=at).notes[0]
    write(at, "hubs/lab.toml", HUB)
    write(at, "hubs/bad.toml", "maximum = 0")
    with at.open() as project, project.db.transaction() as db:
        taken(db, "waits", "submitted", "running", "ended")
        db.value("fed_turn", hub="lab", least=1)
        db.run("fed_heard", hub="lab", now=project.clock.now())
        db.run("fed_show", hub="lab", wanted=5, words="8 of 8 cores for this hub are taken")
    answer = pool_serve.hubs(at=at)
    bad, lab = data(answer)["hubs"]
    assert (bad["name"], bad["state"]) == ("bad", "bad file")
    assert (lab["state"], lab["wanted"], lab["waiting"], lab["running"]) == ("fed", 5, 2, 1)
    assert (lab["untold"], lab["cores"], lab["maximum"]) == (1, 6, 8)
    assert lab["trouble"] == "8 of 8 cores for this hub are taken"
    assert "pool serve" in answer.notes[0]
    with at.open() as project, project.db.transaction() as db:
        db.run("fed_trouble", hub="lab", trouble="lab: the token is wrong or revoked")
    assert data(pool_serve.hubs(at=at))["hubs"][1]["state"] == "away"


def test_a_folder_with_pilots_of_others_is_no_hub(at: Common):
    with at.open() as project:
        with project.db.transaction() as db:
            taken(db, "running")
        with pytest.raises(errors.Conflict, match="started for other hubs") as caught:
            records.refuse_guests(project.db)
        assert "pool serve" in caught.value.hint
        with project.db.transaction() as db:
            db.run("guest_end", id=1, state="ended", reason="")
        records.refuse_guests(project.db)


def test_a_folder_with_pilots_of_its_own_is_no_factory(at: Common):
    write(at, "sites/batch.toml", 'batch = "local"\n')
    write(at, "hubs/lab.toml", HUB)
    with at.open() as project, project.db.transaction() as db:
        number = project.db.value(
            "pilot_want", name="x", site="batch", pool="", wish="{}", now=1.0
        )  # fmt: skip
        row = db.value("submission_add", key="k", site="batch", batch="local", body="{}", now=1.0)
        db.run("submitted_add", rows=text.dump([(row, 0, None, None, number)]))
    with pytest.raises(errors.Conflict, match="pilots of its own"):
        pool_serve.serve(at=at)


# -- the hub -------------------------------------------------------------------------------------


def heard(at: Common, ago: float, words: str = "") -> None:
    with at.open() as project, project.db.transaction() as db:
        db.run(
            "factory_put", site="grid", name="0" * 12, turn=1, now=project.clock.now() - ago,
            words=words,
        )  # fmt: skip


def test_sites_and_pools_say_when_their_factory_was_heard_of(at: Common):
    write(at, "sites/grid.toml", 'batch = "factory"\n')
    write(at, "pools/burst.toml", 'site = "grid"\nmaximum = 8\n')
    (row,) = data(site.ls(at=at))["sites"]
    assert (row["state"], row["heard"]) == ("not fed", None)
    assert "pilotage pool serve" in row["words"]
    heard(at, 1.0, "8 of 8 cores for this hub are taken")
    (row,) = data(site.ls(at=at))["sites"]
    assert (row["state"], row["words"]) == ("fed", "8 of 8 cores for this hub are taken")
    assert "heard of at" in str(site.show("grid", at=at).shown)
    assert "heard of just now: 8 of 8 cores" in str(pool.show("burst", at=at).shown)
    heard(at, 600.0)
    (row,) = data(site.ls(at=at))["sites"]
    assert (row["state"], row["words"]) == ("silent", "its factory was not heard of for 10 m")
    assert "was not heard of" in str(pool.show("burst", at=at).shown)


def test_only_pilots_get_to_a_site_that_a_factory_feeds(at: Common):
    write(at, "sites/grid.toml", 'batch = "factory"\n')
    for wishes in (Wishes(site="grid", via="sbatch"), Wishes(site="grid", nodes=2)):
        with pytest.raises(errors.UsageError, match="grid is fed by a factory") as caught:
            submit.submit(("true",), wishes=wishes, at=at)
        assert "runs in a pilot" in caught.value.hint
    assert data(submit.submit(("true",), wishes=Wishes(site="grid"), at=at))["id"] == 1


def test_a_rule_whose_jobs_would_never_run_is_refused_with_its_place(at: Common):
    write(at, "sites/grid.toml", 'batch = "factory"\n')
    assert at.project is not None
    (at.project / "rules").mkdir()
    rule = '[rule.fit]\nfiles = "in/*"\nrun = ["true"]\nsite = "grid"\nvia = "sbatch"\n'
    write(at, "rules/a.toml", rule)
    with at.open() as project:
        (error,) = project.read_books().failed.values()
    assert "rule.fit.via: grid is fed by a factory" in str(error)


def test_of_such_a_site_only_its_factory_is_looked_at(at: Common):
    write(at, "sites/grid.toml", 'batch = "factory"\n')
    (check,) = data(site_check.check("grid", at=at))["checks"]
    assert (check["name"], check["verdict"]) == ("factory", "bad")
    with pytest.raises(errors.UsageError, match="does not reach grid itself"):
        site_check.check("grid", run=True, at=at)
    write(at, "sites/grid.toml", 'batch = "factory"\nhost = "login"\n')
    with pytest.raises(errors.ConfigError, match="nobody logs in"):
        site_check.check("grid", at=at)


def test_a_token_for_a_factory_names_its_sites(at: Common):
    with pytest.raises(errors.UsageError, match="none is named"):
        token.new(Scope.FACTORY, at=at)
    made = data(token.new(Scope.FACTORY, site="grid,cloud", at=at))
    assert made["token"].startswith("pil_f_")
