"""What a hub makes of what sites say of the pilots that it ordered there."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.base import errors, text
from pilotage.batch import records as sites
from pilotage.batch.pilot_request import PilotRequest
from pilotage.bus.model import Answer, Control, Heartbeat, Job, Result, Status
from pilotage.edge import message, order, pilots, records, silence, statuses, view
from pilotage.edge.message import HubIdentity
from pilotage.edge.silence import SilenceLimits
from pilotage.job.model import App, Binding, JobSpec
from pilotage.pool import site as pool_site
from pilotage.pool.providers import EdgePilots, HubEndpoint
from pilotage.project import tokens
from pilotage.store import sqlite
from pilotage.store.sqlite import Db
from pilotage.testing.clock import ManualClock

MINE = HubIdentity("abcd1234")
HOME = HubEndpoint("hub", "https://hub.example.org:8420", "PEM", 8420)
PATIENCE = SilenceLimits(ask=10.0, silence=600.0)


def beat(db: Db, now: float = 10.0, site: str = "mira", **more: Any) -> None:
    """Have a heartbeat of a site heard."""
    told: Any = {"applications": ("pilot",), "epoch": 1, "version": "1", **more}
    body = msgspec.json.encode(Heartbeat(site=site, time=now, **told)).decode()
    sites.stand(db, site, "agent")
    db.run("edges_listen", trouble="", since=0.0, now=now)
    db.run(
        "edges_heard", name=site, speaker="", heard=now, state=more.get("state", "well"), since=now,
        gaps="[]", body=body,
    )  # fmt: skip


@pytest.fixture
def db() -> Db:
    """Have pilot 1 wanted at the site `mira`, whose agent takes pilots."""
    made = sqlite.connect(Path(":memory:"))
    beat(made)
    want(made)
    return made


def want(db: Db, site: str = "mira", **wish: Any) -> int:
    body = text.dump(PilotRequest(cpus=2, time=3600.0, idle=60.0, **wish))
    return int(db.value("pool_want", site=site, pool="burst", wish=body, now=10.0))


def look(db: Db, home: HubEndpoint | str = HOME, now: float = 10.0) -> int:
    """Order what is wanted, as the hub does in one transaction."""
    service = EdgePilots(None, None, MINE, Path("x"), ManualClock(now))  # type: ignore[arg-type]
    return service._order(db, home, now)


def pilot(db: Db, number: int = 1) -> tuple[str, str]:
    row = db.rows("pilot_get", id=number)[0]
    return row[4], row[5]


def bodies(db: Db, kind: str = "job") -> list[str]:
    return [one.body for one in records.due(db, 199.0, 0, 10) if one.kind == kind]


def said(state: str, seq: int = 1, *, site: str = "mira", text: str = "", **more: Any) -> Status:
    told: Any = {"site": site, "job": 7, "key": MINE.key("pilot.1"), "seq": seq, "state": state}
    reason = {"class": "", "code": "", "text": text}
    return msgspec.convert({**told, "time": 100.0, "reason": reason, **more}, Status)


def heard(db: Db, *words: Status | Answer, now: float = 20.0) -> None:
    assert statuses.hear(db, words, MINE, now) == [], "no job has ended"


def test_a_pilot_is_ordered_once_with_a_secret_of_its_own(db: Db):
    assert look(db) == 1
    assert look(db) == 0
    (body,) = bodies(db)
    job = msgspec.json.decode(body, type=Job)
    assert (job.application, job.key, job.site) == ("pilot", "abcd1234.pilot.1", "mira")
    assert (job.resources.cpus, job.wall_time, job.name) == (2, 3600, "mira-1")
    asked = order.pilot(job.config)
    assert (asked.hub, asked.vouch, asked.idle) == (HOME.url, "PEM", 60.0)
    grant = tokens.look(db, asked.secret, 11.0)
    assert (grant.scope, grant.pool, grant.site, grant.pilot) == ("enrol", "burst", "mira", 1)
    assert pilot(db) == ("requested", "on its way to mira")


@pytest.mark.parametrize(
    "more, words",
    [
        ({"applications": ("sim",)}, "has to register the application `pilot`"),
        ({"draining": True}, "drained by its administrator"),
    ],
)
def test_nothing_is_ordered_where_it_would_not_be_taken(db: Db, more: Any, words: str):
    beat(db, **more)
    assert look(db) == 0
    assert words in pilot(db)[1]
    assert bodies(db) == []
    beat(db)
    assert look(db) == 1


def test_a_silent_or_drained_site_gets_no_order(db: Db):
    db.run("edges_became", name="mira", state="silent", since=1.0)
    assert look(db) == 0
    assert "is silent" in pilot(db)[1]
    beat(db)
    sites.ask(db, "mira", "drain", by="me", why="", now=1.0)
    assert look(db) == 0
    assert pilot(db) == ("requested", "site mira is drained")


def test_nothing_is_ordered_while_no_hub_could_be_reached(db: Db):
    assert look(db, "the hub has no port open for pilots") == 0
    assert pilot(db) == ("requested", "the hub has no port open for pilots")


def test_a_pilot_that_is_called_off_before_its_order_is_over(db: Db):
    db.run("pool_call_off", ids="[1]")
    assert look(db) == 0
    assert pilot(db) == ("down", "cancelled before it was ordered")


def test_one_that_is_called_off_at_a_site_that_was_forgotten_is_over(db: Db):
    db.run("pool_call_off", ids="[1]")
    want(db, "cluster")
    sites.stand(db, "cluster", "batch")
    db.run("pool_call_off", ids="[2]")
    db.value("edges_forget", name="mira")
    assert look(db) == 0
    assert (pilot(db, 1)[0], pilot(db, 2)[0]) == ("down", "requested")


def test_what_no_site_could_read_is_refused_at_once(db: Db):
    bad = want(db, queue="no queue")
    assert look(db) == 1
    state, words = pilot(db, bad)
    assert (state, "no site would accept it" in words) == ("failed", True)


def test_what_becomes_of_an_order_is_what_becomes_of_its_pilot(db: Db):
    look(db)
    heard(db, said("waiting", 1, text="8 of 8 cores for this hub are taken"))
    assert pilot(db) == ("requested", "mira has it waiting: 8 of 8 cores for this hub are taken")
    heard(db, said("ready", 2))
    assert pilot(db) == ("requested", "is being submitted at mira")
    assert bodies(db) == [], "its site has it, and the secret is kept no longer"
    heard(db, said("submitted", 3, text="PENDING: Resources"))
    assert pilot(db) == ("submitted", "waits at mira: PENDING: Resources")
    heard(db, said("queued", 2))
    assert pilot(db)[0] == "submitted", "what is older counts for nothing"
    heard(db, said("running", 4))
    assert pilot(db) == ("submitted", "its batch job runs at mira")


@pytest.mark.parametrize(
    "state, text, became",
    [
        ("rejected", "`queue` is `x`", ("failed", "mira refused it: `queue` is `x`")),
        ("failed", "exit 2", ("failed", "its batch job failed at mira: exit 2: no route")),
        ("done", "", ("failed", "its program ended at mira: no route")),
        ("cancelled", "another hub has less", ("down", "another hub has less")),
    ],
)
def test_a_pilot_that_never_came_ends_as_its_order_did(db: Db, state: str, text: str, became: Any):
    look(db)
    log = base64.b64encode(b"it begins\nno route\n").decode()
    heard(db, said(state, 1, text=text, stderr=log))
    assert pilot(db) == became
    heard(db, said("done", 2))
    assert pilot(db) == became


def test_a_pilot_that_had_come_is_left_to_who_looks_after_it(db: Db):
    look(db)
    db.run("pilot_come", id=1, name="x", digest="", facts='{"cpus": 2}', now=20.0)
    heard(db, said("done", 1))
    assert pilot(db) == ("booting", "")
    assert db.rows("edge_pilots_ended") == [(1, "its program ended at mira")]


def test_a_pilot_that_has_come_outlives_an_agent_that_forgot_it(db: Db):
    look(db)
    heard(db, said("running", 1))
    db.run("pilot_come", id=1, name="x", digest="", facts='{"cpus": 2}', now=21.0)
    silence.ask(db, MINE, PATIENCE, 60.0, lambda _: True)
    unknown = msgspec.convert({"job": 0, "key": MINE.key("pilot.1"), "ok": False}, Result)
    heard(db, Answer(site="mira", time=1.0, verb="query", results=(unknown,)), now=61.0)
    assert pilot(db)[0] == "booting"
    assert db.rows("edge_pilots_ended") == []


def test_only_its_own_site_speaks_of_a_pilot(db: Db):
    look(db)
    heard(db, said("failed", 1, site="other"))
    foreign = msgspec.structs.replace(said("failed"), key="ffff.pilot.1")
    heard(db, foreign, msgspec.structs.replace(said("failed"), key=MINE.key("pilot.99")))
    assert pilot(db)[0] == "requested"


def test_what_is_not_wanted_any_more_is_cancelled_once(db: Db):
    look(db)
    records.sent(db, records.due(db, 11.0, 0, 10), 11.0)
    db.run("pool_call_off", ids="[1]")
    pilots.cancel_unwanted(db, MINE, 20.0)
    pilots.cancel_unwanted(db, MINE, 20.0)
    (body,) = bodies(db, "control")
    control = msgspec.json.decode(body, type=Control)
    assert (control.verb, control.keys) == ("cancel", ("abcd1234.pilot.1",))
    assert pilot(db)[0] == "requested", "it may still come"
    heard(db, said("cancelled", 2))
    assert pilot(db)[0] == "down"


def test_a_batch_job_that_outlives_its_pilot_is_cancelled(db: Db):
    look(db)
    heard(db, said("running", 1))
    db.run("pilot_come", id=1, name="x", digest="", facts='{"cpus": 2}', now=20.0)
    db.run("pilot_move", id=1, state="down", reason="it has left", now=30.0, ended=30.0)
    pilots.cancel_unwanted(db, MINE, 80.0)
    assert bodies(db, "control") == []
    pilots.cancel_unwanted(db, MINE, 100.0)
    assert len(bodies(db, "control")) == 1


def test_a_site_that_says_nothing_is_asked_and_nothing_is_given_up(db: Db):
    look(db)
    records.sent(db, records.due(db, 11.0, 0, 10), 11.0)
    assert silence.ask(db, MINE, PATIENCE, 30.0, lambda _: True) == 1
    (body,) = bodies(db, "control")
    assert msgspec.json.decode(body, type=Control).keys == ("abcd1234.pilot.1",)
    assert silence.give_up(db, PATIENCE, 0.0, 9000.0, lambda _: True) == []
    state, words = pilot(db)
    assert (state, "mira has been silent for" in words) == ("requested", True)
    # One that is to be cancelled is given up, late.
    db.run("pool_call_off", ids="[1]")
    pilots.cancel_unwanted(db, MINE, 9001.0)
    assert silence.give_up(db, PATIENCE, 0.0, 9002.0, lambda _: True) == []
    assert pilot(db)[0] == "down"


def test_a_site_that_never_got_an_order_gets_it_again(db: Db):
    look(db)
    records.sent(db, records.due(db, 11.0, 0, 10), 11.0)
    silence.ask(db, MINE, PATIENCE, 30.0, lambda _: True)
    unknown = msgspec.convert({"job": 0, "key": MINE.key("pilot.1"), "ok": False}, Result)
    heard(db, Answer(site="mira", time=1.0, verb="query", results=(unknown,)), now=31.0)
    assert len(bodies(db)) == 1
    assert pilot(db)[0] == "requested"


def test_no_job_of_a_user_is_an_order_of_a_pilot():
    spec = JobSpec(recipe=App("pilot"), name="x", site="mira")
    with pytest.raises(errors.UsageError, match="for pools"):
        message.remote(spec, Binding(), "/p", 1)


def test_the_site_of_a_pool_is_a_file_or_an_agents(tmp_path: Path, db: Db):
    agents = view.pilot_sites(db, 10.0)
    assert pool_site.read(tmp_path, "mira", agents).batch == pool_site.AGENT
    with pytest.raises(errors.NotFound, match="there is no site `nosuch`"):
        pool_site.read(tmp_path, "nosuch", agents)
    tokens.mint(db, tokens.TokenScope.AGENT, "", now=1.0, lifetime=99.0, site="new")
    assert view.pilot_sites(db, 10.0)["new"].closed == "the agent of new has not come yet"
