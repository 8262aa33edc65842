"""Orders of pilots at an agent: who may order which, what starts, and who is next."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from pilotage.agent import admission, job_limits, pilots, records
from pilotage.agent.admission import Ingested, store_messages
from pilotage.agent.app import command, files
from pilotage.agent.app.model import Application, AppLimits
from pilotage.agent.model import Accepted, JudgedMessage, Rejected
from pilotage.agent.settings import DialledHub, RelaySettings, Settings, SiteBroker
from pilotage.agent.settings import RunningLimits as Caps
from pilotage.base import errors
from pilotage.batch.model import SiteSettings
from pilotage.bus.model import Job
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import State
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store

URL = "https://hub.example.org:8420"
SECRET = "pil_e_" + "s" * 43
ORDER = {"secret": SECRET, "name": "mira-7", "hub": URL, "vouch": "-----BEGIN\n", "idle": 60.0}
LIMITS = AppLimits(maximum=8, cpus=4, time="2h", queues=("batch",), projects=("p",), memory="8G")
PILOT = Application(takes="pilot", hubs=(URL,), limits=LIMITS)
SETTINGS = agent_parts.settings()
DIALS = agent_parts.settings(bus=SiteBroker(), hub=DialledHub(url="https://here:1", ca=""))


def body(number: int = 7, config: object = ORDER, **more: Any) -> bytes:
    """Return the order of a pilot as a hub sends it."""
    text = config if isinstance(config, str) else json.dumps(config)
    told = {"application": "pilot", "key": f"abcd.pilot.{number}", "config": text, **more}
    return agent_parts.body(**told)


def judged(
    sent: bytes, app: Application = PILOT, settings: Settings = SETTINGS, user: str = "hub"
) -> Accepted | Rejected:
    return admission.judge(sent, user, lambda _: app, settings)


def accepted(sent: bytes, **more: Any) -> Accepted:
    found = judged(sent, **more)
    assert isinstance(found, Accepted), found
    return found


def refused(sent: bytes, **more: Any) -> str:
    found = judged(sent, **more)
    assert isinstance(found, Rejected), found
    assert SECRET not in found.reason
    return found.reason


# -- the file of the application -------------------------------------------------------------------


def test_the_application_is_a_file_with_limits():
    source = 'takes = "pilot"\n[limits]\nmaximum = 64\n'
    app = files.parse(source, "pilot", Path("pilot.toml"))
    assert (app.limits.maximum, app.programs()) == (64, {})
    assert "maximum = 64" in files.text("pilot", app)
    assert "maximum" not in files.text("sim", agent_parts.app())


@pytest.mark.parametrize(
    "name, app, at",
    [
        ("pilots", PILOT, ("takes",)),
        ("pilot", agent_parts.app(), ("takes",)),
        ("pilot", Application(takes="pilot"), ("limits", "maximum")),
        ("pilot", Application(takes="pilot", limits=AppLimits(maximum=-1)), ("limits", "maximum")),
        (
            "pilot",
            Application(takes="pilot", limits=AppLimits(maximum=1, nodes=2)),
            ("limits", "nodes"),
        ),
        (
            "pilot",
            Application(takes="pilot", limits=AppLimits(maximum=1, pending=-1)),
            ("limits", "pending"),
        ),
        (
            "pilot",
            Application(takes="pilot", limits=LIMITS, user={"a": {"maximum": 0}}),
            ("user", "a", "maximum"),
        ),
        ("pilot", Application(takes="pilot", limits=LIMITS, executable="/bin/sh"), ("executable",)),
        ("pilot", Application(takes="pilot", limits=LIMITS, argv=("x",)), ("argv",)),
        (
            "pilot",
            Application(takes="pilot", limits=LIMITS, preprocess=("/bin/sh",)),
            ("preprocess",),
        ),
        ("pilot", Application(takes="pilot", limits=LIMITS, env_allow=("A",)), ("env_allow",)),
        ("pilot", Application(takes="pilot", limits=LIMITS, hubs=("--insecure",)), ("hubs",)),
        (
            "pilot",
            Application(takes="pilot", limits=LIMITS, hubs=("https://h/ --ca x",)),
            ("hubs",),
        ),
        ("sim", agent_parts.app(hubs=(URL,)), ("hubs",)),
        ("sim", agent_parts.app(limits=AppLimits(maximum=4)), ("limits", "maximum")),
    ],
)
def test_what_its_file_cannot_say(name: str, app: Application, at: tuple[str, ...]):
    with pytest.raises(files.Mistake) as caught:
        files.check(name, app)
    assert caught.value.keys == at


# -- orders ----------------------------------------------------------------------------------------


def test_an_order_within_its_limits_is_taken():
    found = accepted(body(resources={"cpus": 2}))
    assert (found.job.queue, found.job.project, found.job.wall_time) == ("batch", "p", 7200)
    assert found.spec.resources.cpus == 2


@pytest.mark.parametrize(
    "config",
    [
        "",
        "{}",
        "[]",
        "null",
        "not JSON",
        "[" * 100_000,
        {**ORDER, "secret": "short"},
        {**ORDER, "secret": SECRET + "\n"},
        {**ORDER, "secret": 5},
        {**ORDER, "name": "--insecure"},
        {**ORDER, "name": "a b"},
        {**ORDER, "name": "x\n"},
        {**ORDER, "hub": "--ca"},
        {**ORDER, "hub": "https://a b"},
        {**ORDER, "hub": "https://u:p@h:1"},
        {**ORDER, "hub": "file:///etc/passwd"},
        {**ORDER, "vouch": "x" * 70_000},
        {**ORDER, "vouch": "\0"},
        {**ORDER, "idle": -1},
        {**ORDER, "idle": "1h"},
        {**ORDER, "idle": 1e300},
        {**ORDER, "argv": ["/bin/sh"]},
    ],
)
def test_hostile_orders_are_refused(config: object):
    assert "the order of a pilot" in refused(body(config=config))


@pytest.mark.parametrize(
    "more, word",
    [
        ({"resources": {"cpus": 5}}, "resources.cpus"),
        ({"resources": {"cpus": 1, "memory": 9 << 30}}, "resources.memory"),
        ({"resources": {"cpus": 1, "gpus": 1}}, "resources.gpus"),
        ({"nodes": 2}, "nodes"),
        ({"wall_time": 7201}, "wall_time"),
        ({"queue": "other"}, "queue"),
        ({"project": "other"}, "project"),
        ({"options": ["--exclusive"]}, "options"),
        ({"env": {"LD_PRELOAD": "x"}}, "env"),
        ({"parameters": {"x": 1}}, "parameters"),
        ({"inputs": [{"url": "https://a.example.org/x"}]}, "inputs"),
        ({"config_file": "x"}, "config_file"),
        ({"key": "abcd.job.7.1"}, "key"),
        ({"key": "abcd.pilot.0"}, "key"),
        ({"key": "pilot.7"}, "key"),
        ({"key": ""}, "key"),
    ],
)
def test_an_order_beyond_its_limits_is_refused(more: dict[str, Any], word: str):
    assert f"`{word}" in refused(body(**more))


def test_no_pilot_is_larger_than_what_its_hub_may_have():
    app = Application(takes="pilot", hubs=(URL,), limits=AppLimits(maximum=2, cpus=4))
    assert "2 cores are all that this hub has" in refused(body(resources={"cpus": 3}), app=app)


def test_pilots_go_to_hubs_that_the_administrator_named():
    stranger = {**ORDER, "hub": "https://evil.example.org:8420"}
    assert "`hubs` in apps/pilot.toml" in refused(body(config=stranger))
    assert "`hubs` in apps/pilot.toml" in refused(
        body(), app=Application(takes="pilot", limits=LIMITS)
    )
    slurm = agent_parts.settings(batch=SiteSettings(batch="slurm"))
    plain = Application(takes="pilot", hubs=("http://h:1",), limits=LIMITS)
    order = body(config={**ORDER, "hub": "http://h:1"})
    assert "use https" in refused(order, app=plain, settings=slurm)
    accepted(order, app=plain)


def test_an_agent_that_dials_a_hub_has_its_pilots_go_there_alone():
    app = Application(takes="pilot", limits=LIMITS)
    stranger = body(config={**ORDER, "hub": "https://evil.example.org:8420"})
    job = accepted(stranger, app=app, settings=DIALS).job
    link = pilots.link(DIALS, pilots.hub(job, DIALS))
    argv = pilots.command(app, job, DIALS, "/s/p.pyz", link).argv
    assert argv[2:6] == ("--hub", "https://here:1", "--link", "direct")
    assert not any("evil" in word for word in argv)


def test_who_may_order_is_for_the_administrator_to_say():
    app = Application(takes="pilot", hubs=(URL,), limits=LIMITS, users=("hub",))
    assert "may not use `pilot`" in refused(body(), app=app, user="alice")


# -- what starts -----------------------------------------------------------------------------------


def order(**more: Any) -> Job:
    return accepted(body(**more)).job


def test_what_starts_is_the_pilot_of_the_agent_and_no_argument_is_secret():
    job = order(resources={"cpus": 2}, wall_time=600)
    batch = SiteSettings(
        batch="slurm", python="/usr/bin/python3", readable=("/cvmfs",), cache_folder="/scratch/c"
    )
    settings = agent_parts.settings(batch=batch)
    argv = pilots.command(PILOT, job, settings, "/s/bin/1.pyz", "direct").argv
    assert argv == (
        "/usr/bin/python3", "/s/bin/1.pyz", "--hub", URL, "--link", "direct", "--secret-file",
        "secret", "--name", "mira-7", "--cpus", "2", "--idle", "60", "--lifetime",
        "600", "--ca", "hub.pem", "--cache-folder", "/scratch/c", "--readable", "/cvmfs",
    )  # fmt: skip
    # They go to the folder that it runs in.
    assert pilots.files(job, settings) == {"secret": SECRET, "hub.pem": "-----BEGIN\n"}
    with pytest.raises(errors.UsageError):
        command.make(PILOT, job, {})


def test_pilots_go_through_the_relay_of_the_agent():
    through = agent_parts.settings(relay=RelaySettings(hub=f"{URL}/", listen="10.0.0.1:8421"))
    assert pilots.link(through, URL) == "relay:10.0.0.1:8421"
    assert pilots.link(through, "https://other:1") == "direct"
    batch = SiteSettings(batch="local", login="login1")
    anywhere = agent_parts.settings(
        relay=RelaySettings(hub=URL, listen="0.0.0.0:8421"), batch=batch
    )
    assert pilots.link(anywhere, URL) == "relay:login1:8421"
    own = agent_parts.settings(bus=SiteBroker(), hub=DialledHub(url=URL, relay="10.0.0.2:8421"))
    assert pilots.link(own, URL) == "relay:10.0.0.2:8421"


def test_a_pilot_is_started_once_and_only_while_it_may_be():
    job = order()
    pilots.check(PILOT, job, SETTINGS, 1)
    with pytest.raises(errors.Denied, match="started once"):
        pilots.check(PILOT, job, SETTINGS, 2)
    with pytest.raises(errors.Denied, match="hubs"):
        pilots.check(Application(takes="pilot", limits=LIMITS), job, SETTINGS, 1)


# -- who is next -----------------------------------------------------------------------------------


def post(store: Store, *sent: bytes, user: str = "hub", app: Application = PILOT) -> Ingested:
    arrivals = [JudgedMessage(user, "job.mira", one, judged(one, app, user=user)) for one in sent]
    return store.writer.do(lambda db: store_messages(db, arrivals, SETTINGS, 1.0))


def settle(
    store: Store,
    app: Application | None = PILOT,
    settings: Settings = SETTINGS,
    away: Collection[str] = (),
) -> int:
    def step(db: Any) -> int:
        going, _ = job_limits.settle(db, settings.limits, 2.0)
        return pilots.settle(db, app, settings, going, 2.0, away)

    return store.writer.do(step)


def states(store: Store) -> list[tuple[str, str]]:
    return [(one.state, one.reason) for one in sorted(store.jobs(), key=lambda one: one.id)]


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with agent_parts.store(tmp_path) as made:
        yield made


def test_an_order_waits_for_its_turn_and_then_goes_on(store: Store):
    assert post(store, body(1)).new == 1
    assert states(store) == [("waiting", pilots.WAITS)]
    assert settle(store) == 1
    assert states(store) == [("queued", "")]


def test_the_same_order_again_is_the_same_pilot_and_another_one_a_conflict(store: Store):
    post(store, body(1), body(1))
    assert len(store.jobs()) == 1
    other = {**ORDER, "secret": "t" * 40}
    assert post(store, body(1, config=other)).refused == 1
    assert post(store, body(1), user="other").new == 1, "keys belong to who sent them"
    (told,) = [one for one in store.said("status") if one["state"] == "rejected"]
    assert "asked for something else" in told["reason"]["text"]
    assert b"t" * 40 not in b"".join(one.body for one in records.refused(store.db, 10))


def test_what_is_beyond_the_maximum_waits_and_its_hub_hears_why(store: Store):
    post(store, *(body(one, resources={"cpus": 4}) for one in range(1, 4)))
    assert settle(store) == 2
    assert [state for state, _ in states(store)] == ["queued", "queued", "waiting"]
    assert states(store)[2][1] == "8 of 8 cores for this hub are taken"
    assert store.words()[-1].reason == "8 of 8 cores for this hub are taken"
    before = len(store.words())
    assert settle(store) == 0
    assert len(store.words()) == before, "it is said once"


def test_no_more_wait_in_the_batch_queue_than_may(store: Store):
    app = Application(takes="pilot", hubs=(URL,), limits=AppLimits(maximum=8, pending=1))
    post(store, body(1), body(2), app=app)
    assert settle(store, app) == 1
    assert states(store)[1] == ("waiting", "1 of its pilots wait already")


def test_a_flood_of_orders_is_refused(store: Store):
    assert accepted(body(1)).most == LIMITS.maximum + 1000
    app = Application(takes="pilot", hubs=(URL,), limits=AppLimits(maximum=8, jobs=2))
    assert post(store, *(body(one) for one in range(1, 6)), app=app).refused == 3


def test_limits_of_all_jobs_hold_for_pilots_too(store: Store):
    few = agent_parts.settings(limits=Caps(jobs=1))
    post(store, body(1), body(2))
    assert settle(store, settings=few) == 1
    assert states(store)[1][0] == "waiting"
    assert "as many pilots as it may" in states(store)[1][1]


def test_each_place_goes_to_the_hub_that_has_least_of_its_maximum(store: Store):
    own = {"large": {"maximum": 80}}
    app = Application(takes="pilot", hubs=(URL,), limits=LIMITS, user=own)
    post(store, *(body(one) for one in range(1, 5)), user="small", app=app)
    post(store, *(body(one) for one in range(1, 5)), user="large", app=app)
    settings = agent_parts.settings(limits=Caps(jobs=4))
    settle(store, app, settings)
    going = [one.owner for one in store.jobs() if one.state is State.QUEUED]
    assert (going.count("large"), going.count("small")) == (3, 1)


def test_a_hub_that_has_less_gets_the_place_of_one_that_only_waits(store: Store):
    settings = agent_parts.settings(limits=Caps(jobs=4))
    post(store, *(body(one) for one in range(1, 5)), user="first")
    assert settle(store, settings=settings) == 4
    post(store, body(1), user="second")
    settle(store, settings=settings)
    off = [one for one in store.jobs() if one.state is State.CANCELLED]
    assert [(one.owner, one.reason) for one in off] == [("first", pilots.ROOM)]
    assert settle(store, settings=settings) == 1


def test_what_is_over_keeps_no_secret(store: Store):
    post(store, body(1), body(2))
    assert records.message(store.db, 1).config
    store.writer.do(lambda db: moves.cancel(db, jobs.get(db, 1), now=2.0))
    assert records.message(store.db, 1).config == ""
    assert records.message(store.db, 2).config
    assert post(store, body(1)).again == 1, "it is known again all the same"


def test_orders_of_a_hub_that_is_away_wait_and_take_no_place(store: Store):
    settings = agent_parts.settings(limits=Caps(jobs=4))
    post(store, *(body(one) for one in range(1, 5)), user="lab")
    assert settle(store, settings=settings) == 4
    post(store, body(1), user="gone")
    assert settle(store, settings=settings, away={"gone"}) == 0
    assert states(store)[4] == ("waiting", "its hub is not connected")
    assert not [one for one in store.jobs() if one.state is State.CANCELLED]
    settle(store, settings=settings)
    assert [one.owner for one in store.jobs() if one.state is State.CANCELLED] == ["lab"]


def test_orders_wait_while_the_application_is_disabled_or_gone(store: Store):
    post(store, body(1))
    assert settle(store, None) == 0
    assert states(store) == [("waiting", "this site starts no pilots now")]

    def gone(_: str) -> Application:
        raise errors.NotFound("there is no application")

    assert pilots.found(gone) is None
    assert pilots.found(lambda _: Application(takes="pilot", limits=LIMITS, enabled=False)) is None
    assert pilots.found(lambda _: PILOT) is PILOT
    assert settle(store) == 1


def test_other_jobs_are_not_pilots(store: Store):
    arrival = JudgedMessage(
        "a", "job.mira", b"", judged(agent_parts.body(), agent_parts.app(), user="a")
    )
    store.writer.do(lambda db: store_messages(db, [arrival], SETTINGS, 1.0))
    assert settle(store) == 0
    assert jobs.get(store.db, 1).state is State.QUEUED
