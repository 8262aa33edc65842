"""Sites as commands and the page see them: one list, and what keeps each from taking jobs."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage import Flow
from pilotage.base import clock, errors
from pilotage.base.owner import me
from pilotage.batch import files, records
from pilotage.batch.model import SiteSettings
from pilotage.batch.pilot_request import PilotRequest
from pilotage.bus import wire
from pilotage.bus.model import Drain as Drained
from pilotage.bus.port import Message
from pilotage.cli import explain, rule, site, submit
from pilotage.cli.common import Common
from pilotage.cli.submit import SubmitOptions
from pilotage.edge import view
from pilotage.flow import accept, dispatch
from pilotage.hub.project import Project
from pilotage.job import moves, retry
from pilotage.job.model import App, Command, JobSpec, NewJob, State
from pilotage.job.records import Selection
from pilotage.match.place import SITE
from pilotage.match.sites import SiteCause, SiteView
from pilotage.project import settings as config
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from pilotage.status import sites
from pilotage.status.sites import Drain, SiteStatus
from pilotage.store import Writer
from pilotage.store.sqlite import connect
from tests.rigs.broker.site_messages import beat

NOW = 1000.0


class Still:
    """A clock that stands."""

    def now(self) -> float:
        return NOW


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    (tmp_path / "pilotage.toml").touch()
    files.write(tmp_path, "kit", SiteSettings(batch="slurm", host="login", about="the big one"))
    files.write(tmp_path, "here", SiteSettings(batch="local"))
    with Project(tmp_path, clock=Still()) as made:  # type: ignore[arg-type]
        yield made


def show(project: Project, name: str, trouble: str = "") -> None:
    with project.db.transaction() as db:
        records.number(db, name)
        records.show(db, site=name, trouble=trouble, since=NOW - 60, facts="{}", now=NOW)


def hear(project: Project, name: str, state: str = "well", **more: Any) -> None:
    """Have an agent be heard of, and the broker listened to since long."""
    body = wire.encode(beat(name, **more)).decode()
    with project.db.transaction() as db:
        db.run("edges_listen", trouble="", since=0.0, now=NOW)
        db.run(
            "edges_heard", name=name, speaker="agent", heard=NOW - 5, state=state,
            since=NOW - 50, gaps="[]", body=body,
        )  # fmt: skip
        records.stand(db, name, "agent")


def seen(project: Project, now: float = NOW) -> dict[str, SiteStatus]:
    found = sites.look(project.db, project.root, project.settings, now)
    return {one.name: one for one in found.sites}


def cause(project: Project, site: str, app: str = "") -> SiteCause | None:
    known = sites.standing(project.db, project.root, project.settings, NOW, [site])
    found = known.judge(JobSpec(App(app) if app else Command(("true",)), "job", site=site))
    return found.cause if found else None


def test_sites_are_known_by_their_files(project):
    found = seen(project)
    assert list(found) == ["here", "kit"]
    assert found["kit"] == SiteStatus(
        name="kit", kind="batch", state="not connected", batch="slurm", host="login",
        about="the big one",
    )  # fmt: skip
    assert found["here"].state == "here"


def test_what_the_hub_says_counts_while_it_is_fresh(project):
    show(project, "kit", "not answering")
    assert (seen(project)["kit"].state, seen(project)["kit"].words) == ("not answering",) * 2
    assert seen(project)["kit"].since == NOW - 60
    assert seen(project)["kit"].kept
    late = seen(project, NOW + view.FRESH_S + 1)["kit"]
    assert (late.state, late.words, late.kept) == ("not connected", "", False)
    show(project, "kit")
    assert seen(project)["kit"].state == "connected"


def test_a_site_that_has_no_file_any_more_is_not_shown(project):
    show(project, "gone")
    assert "gone" not in seen(project)


def test_a_file_that_cannot_be_read_is_told(project):
    files.file_of(project.root, "kit").write_text("batch = 1")
    assert seen(project)["kit"].state == "bad file"
    assert "kit.toml" in seen(project)["kit"].words
    assert seen(project)["here"].words == ""


def test_jobs_and_pilots_are_counted_and_wishes_are_shown(project):
    spec = JobSpec(Command(("true",)), "fit", site="kit", via="batch")
    jobs = [project.submit(NewJob(spec)) for _ in range(3)]
    with project.db.transaction() as db:
        moves.claim(db, dict.fromkeys(jobs[:2], f"{SITE}kit"), "/jobs", NOW)
        moves.progress(db, [(jobs[0], 1)], State.STAGING_OUT, "", NOW)
    project.want_pilots("kit", PilotRequest(), 4, "")
    project.ask_site("kit", "drain", "new disks")
    kit = seen(project)["kit"]
    assert kit.jobs == {"running": 1, "staging_out": 1}
    assert kit.pilots == 4
    assert (kit.state, kit.drain) == ("drained", Drain(me(), NOW, "new disks"))
    assert seen(project)["here"].jobs == {}
    project.ask_site("kit", "drain", "asked again")
    assert seen(project)["kit"].drain == Drain(me(), NOW, "new disks")
    project.ask_site("kit", "")
    assert seen(project)["kit"].drain is None


def test_all_kinds_of_sites_are_one_list(project):
    hear(project, "mira", applications=("sim",))
    project.want_pilots("desy", PilotRequest(), 1, "")
    with project.db.transaction() as db:
        tokens.mint(db, TokenScope.ENROL, "me", now=NOW, lifetime=60.0, site="cern")
        tokens.mint(db, TokenScope.AGENT, "me", now=NOW, lifetime=60.0, site="cori")
    found = {name: (one.kind, one.state) for name, one in seen(project).items()}
    assert found == {
        "cern": ("pilots", "unheard"),
        "cori": ("agent", "unheard"),
        "desy": ("pilots", "not served"),
        "here": ("batch", "here"),
        "kit": ("batch", "not connected"),
        "mira": ("agent", "well"),
    }


def test_a_name_stands_for_what_came_first(project):
    with project.db.transaction() as db:
        assert records.stand(db, "kit", "batch")
        assert not records.stand(db, "kit", "agent")
    hear(project, "kit")
    assert seen(project)["kit"].kind == "batch"
    assert "the file is used" in seen(project)["kit"].conflict
    hear(project, "mira")
    files.write(project.root, "mira", SiteSettings(batch="local"))
    with project.db.transaction() as db:
        assert not records.stand(db, "mira", "batch")
    assert seen(project)["mira"].kind == "agent"
    assert "the agent is used" in seen(project)["mira"].conflict


def test_a_name_is_free_again_when_its_owner_is_gone_and_holds_no_jobs(project):
    hear(project, "mira")
    job = project.submit(NewJob(JobSpec(App("sim"), "job", site="mira")))
    with project.db.transaction() as db:
        moves.claim(db, {job: f"{SITE}mira"}, "/jobs", NOW)
        db.value("edges_forget", name="mira")
        records.begin(db, ["kit", "here", "mira"])
        assert not records.stand(db, "mira", "batch")
        spec = project.job(job).spec
        end = retry.AttemptEnd(ok=True, message="")
        moves.finish(db, job, 1, spec, end, now=NOW, dice=clock.dice())
        records.begin(db, ["kit", "here", "mira"])
        assert records.stand(db, "mira", "batch")


def test_what_keeps_a_site_from_taking_a_job(project):
    assert cause(project, "kti") is SiteCause.UNKNOWN
    assert cause(project, "kit") is None
    assert cause(project, "local") is None
    with project.db.transaction() as db:
        tokens.mint(db, TokenScope.AGENT, "me", now=NOW, lifetime=60.0, site="cori")
    assert cause(project, "cori") is SiteCause.UNHEARD
    show(project, "kit", "no route")
    assert cause(project, "kit") is SiteCause.TROUBLE
    project.ask_site("kit", "drain")
    assert cause(project, "kit") is SiteCause.DRAINED
    hear(project, "mira", applications=("sim",))
    assert cause(project, "mira") is SiteCause.COMMAND
    assert cause(project, "mira", "sin") is SiteCause.APPLICATION
    assert cause(project, "mira", "sim") is None
    hear(project, "mira", "silent", applications=("sim",))
    assert cause(project, "mira", "sim") is SiteCause.SILENT
    drained = Drained(by="eve", why="upgrade", since=NOW - 9)
    hear(project, "mira", "draining", applications=("sim",), draining=True, drain=drained)
    known = sites.standing(project.db, project.root, project.settings, NOW, ["mira"])
    found = known.judge(JobSpec(App("sim"), "job", site="mira"))
    assert found is not None
    assert (found.cause, found.by, found.words, found.since) == (
        SiteCause.DRAINED, "eve", "upgrade", NOW - 9,
    )  # fmt: skip


def test_pilots_of_a_site_with_an_agent_run_anything(project):
    hear(project, "mira", applications=("sim",))
    project.want_pilots("mira", PilotRequest(), 1, "")
    assert cause(project, "mira") is None
    assert cause(project, "mira", "other") is None


def test_while_the_broker_is_away_there_may_be_other_sites(project):
    hear(project, "mira", applications=())
    with project.db.transaction() as db:
        db.run("edges_listen", trouble="refused", since=NOW - 500, now=NOW)
    assert cause(project, "theta") is SiteCause.UNHEARD
    with project.db.transaction() as db:
        db.run("edges_listen", trouble="", since=NOW - 5, now=NOW)
    assert cause(project, "theta") is SiteCause.UNHEARD
    with project.db.transaction() as db:
        db.run("edges_listen", trouble="", since=NOW - 500, now=NOW)
    assert cause(project, "theta") is SiteCause.UNKNOWN


def test_each_source_refuses_a_site_that_is_not_known(project: Project):
    at = Common(project=project.root)
    with pytest.raises(errors.NotFound, match="there is no site `kti`") as caught:
        submit.submit(("true",), options=SubmitOptions(site="kti"), at=at)
    assert "did you mean `kit`?" in caught.value.hint
    book = project.root / "book.toml"
    book.write_text('[rule.far]\nfiles = "x/*"\nrun = ["true"]\nsite = "kti"\n')
    for command in (rule.check, rule.add):
        with pytest.raises(errors.BadRule, match="there is no site `kti`") as wrong:
            command(book, at=at)
        assert (wrong.value.at, wrong.value.line) == ("rule.far.site", 1)
    flow = Flow("f")
    flow.step("a", site="kti", run=["true"])
    with pytest.raises(errors.BadFlow, match="there is no site `kti`"):
        flow.submit(project)
    assert project.jobs(Selection()) == []


def test_each_source_says_that_a_site_is_drained_and_explain_says_it_too(project: Project):
    at = Common(project=project.root)
    project.ask_site("kit", "drain", "new disks")
    said = f"site `kit` is drained by {me()} since"
    made = submit.submit(("true",), options=SubmitOptions(site="kit"), at=at)
    assert said in " ".join(made.notes)
    book = project.root / "book.toml"
    book.write_text('[rule.far]\nfiles = "x/*"\nrun = ["true"]\nsite = "kit"\n')
    assert said in " ".join(rule.check(book, at=at).notes)
    (job,) = made.ids
    told = explain.explain((str(job),), at=at).data["jobs"][0]
    assert any(said in one["text"] for one in told["reasons"])
    assert "`pilotage site resume kit`" in told["suggestion"]
    shown = "".join(str(one) for one in site.show("kit", at=at).shown)
    assert f"by {me()} since" in shown
    assert f"drained by {me()}" not in shown


ASKED = {"site": "mira", "application": "coutn"}
#: The same in messages of ours, of Balsam and of Argo.
MESSAGES: tuple[dict[str, Any], ...] = (
    {"v": 1, "kind": "job", "key": "k", **ASKED},
    {"v": 1, "kind": "flow", "key": "f", "flow": {"name": "f", "step": {"a": ASKED}}},
    {"name": "old", "job_id": 3, **ASKED},
    {"name": "chain", "job_id": 4, "job_status_routing_key": "r", "subjobs": [ASKED]},
)


async def post(project: Project) -> None:
    """Have the messages arrive as the broker hands them over."""
    settings = msgspec.structs.replace(
        project.settings, flows=config.FlowSettings(users=("alice",))
    )

    async def reply(_: bytes) -> None:
        raise AssertionError

    def standing(named: Collection[str]) -> SiteView:
        return sites.standing(project.db, project.root, settings, NOW, named)

    writer = Writer(connect(project.db.path))
    try:
        bodies = [json.dumps(one).encode() for one in MESSAGES]
        messages = [
            Message(topic="flow", body=one, tag=tag, reply=reply, user="alice")
            for tag, one in enumerate(bodies)
        ]
        await accept.take(messages, settings, writer, standing, NOW)
    finally:
        writer.close()


async def test_each_source_refuses_an_application_in_the_same_words(project: Project):
    hear(project, "mira", applications=("count",))
    at = Common(project=project.root)
    (project.root / "f.toml").write_text('name = "f"\n[step.a]\nsite="mira"\napplication="coutn"')
    book = project.root / "book.toml"
    said, meant = "site `mira` has no application `coutn`", "did you mean `count`? it has `count`"
    for written in ('app = "coutn"\nsite = "mira"', f'flow = "{project.root}/f.toml"'):
        book.write_text(f'[rule.far]\nfiles = "x/*"\n{written}\n')
        with pytest.raises(errors.BadRule, match=said) as wrong:
            rule.check(book, at=at)
        assert wrong.value.hint == meant
        assert wrong.value.at.startswith("rule.far.s")
    flow = Flow("f")
    flow.step("a", **ASKED)
    with pytest.raises(errors.BadFlow, match=said) as wrong:
        flow.submit(project)
    assert wrong.value.hint == meant
    spec = JobSpec(App("coutn"), "job", site="mira")
    with pytest.raises(errors.NotFound, match=said) as refused:
        sites.check(project.db, project.root, project.settings, [spec], NOW)
    assert refused.value.hint == meant
    await post(project)
    told = [row[3] for row in project.db.rows("flows_refusals", most=9)]
    assert told == [f"{said}; {meant}"] * len(MESSAGES)
    # What is known only when a step is sent is refused then.
    flow = Flow("late", params={"app": "coutn"})
    flow.step("a", site="mira", application="{app}")
    number = flow.submit(project)
    with project.db.transaction() as db:
        dispatch.look(db, dispatch.HubCapabilities(), (), NOW)
    (one,) = project.jobs(Selection())
    assert (one.state, one.reason) == (State.REJECTED, f"{said}; {meant}")
    assert number
