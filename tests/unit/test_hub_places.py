"""Sites as commands and the page see them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pilotage.hub import places
from pilotage.hub.project import Project
from pilotage.job import bulk, moves
from pilotage.job.model import Command, JobSpec, NewJob, State
from pilotage.match.place import SITE
from pilotage.site import files, records
from pilotage.site.model import Site
from pilotage.site.wish import Wish

NOW = 1000.0


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "pilotage.toml").touch()
    files.write(tmp_path, "kit", Site(batch="slurm", host="login", about="the big one"))
    files.write(tmp_path, "here", Site(batch="local"))
    with Project(tmp_path) as made:
        yield made


def show(project: Project, name: str, trouble: str = "") -> None:
    with project.db.transaction() as db:
        records.number(db, name)
        records.show(db, site=name, trouble=trouble, since=NOW - 60, facts="{}", now=NOW)


def seen(project: Project, now: float = NOW) -> dict[str, places.Seen]:
    return {one.name: one for one in places.sites(project.db, project.root, now)}


def test_sites_are_known_by_their_files(project):
    found = seen(project)
    assert list(found) == ["here", "kit"]
    assert found["kit"] == places.Seen(name="kit", batch="slurm", host="login", about="the big one")


def test_what_the_hub_says_counts_while_it_is_fresh(project):
    show(project, "kit", "not answering")
    assert seen(project)["kit"].trouble == "not answering"
    assert seen(project)["kit"].since == NOW - 60
    assert seen(project)["kit"].kept
    late = seen(project, NOW + places.FRESH_S + 1)["kit"]
    assert (late.trouble, late.kept) == ("", False)
    show(project, "kit")
    assert seen(project)["kit"].trouble == ""


def test_a_site_that_has_no_file_any_more_is_not_shown(project):
    show(project, "gone")
    assert "gone" not in seen(project)


def test_a_file_that_cannot_be_read_is_told(project):
    files.file_of(project.root, "kit").write_text("batch = 1")
    assert "kit.toml" in seen(project)["kit"].trouble
    assert seen(project)["here"].trouble == ""


def test_jobs_and_pilots_are_counted_and_wishes_are_shown(project):
    spec = JobSpec(Command(("true",)), "fit", site="kit", via="batch")
    jobs = [project.submit(NewJob(spec)) for _ in range(3)]
    with project.db.transaction() as db:
        bulk.claim(db, dict.fromkeys(jobs[:2], f"{SITE}kit"), "/jobs", NOW)
        moves.progress(db, [(jobs[0], 1)], State.STAGING_OUT, "", NOW)
    project.want_pilots("kit", Wish(), 4, "")
    project.ask_site("kit", "drain")
    kit = seen(project)["kit"]
    assert kit.jobs == {"running": 1, "staging_out": 1}
    assert kit.pilots == 4
    assert kit.asked == "drain"
    assert seen(project)["here"].jobs == {}
    project.ask_site("kit", "")
    assert seen(project)["kit"].asked == ""
