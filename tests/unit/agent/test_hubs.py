"""An agent that dials several hubs: each has its own name, user, keys, messages and limits."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from pilotage.agent import admission, batch_system, connection, pilots, records, settings, status
from pilotage.agent.admission import Ingested, store_messages
from pilotage.agent.app.model import Application, AppLimits
from pilotage.agent.batch_system import RelayRoute, Relays
from pilotage.agent.controls import ControlResult, execute
from pilotage.agent.live_settings import LiveSettings
from pilotage.agent.model import Accepted, JudgedMessage, Rejected
from pilotage.agent.outbox import Outbox
from pilotage.agent.settings import DialledHub, Settings
from pilotage.base import errors
from pilotage.base.backoff import Backoff
from pilotage.base.supervise import Supervisor
from pilotage.batch import records as sites
from pilotage.batch.model import SiteSettings
from pilotage.bus.model import Heartbeat, Scheduler
from pilotage.bus.port import Message
from pilotage.cli import agent_status
from pilotage.cli.answer import Table
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.job import moves, retry
from pilotage.job import records as jobs
from pilotage.job.model import State
from pilotage.testing.clock import ManualClock
from tests.rigs.broker import agent_parts
from tests.rigs.broker.agent_parts import Store

HEAD = 'site = "mira"\n[batch]\nbatch = "slurm"\n'
BUS = '[bus]\nurl = "amqps://broker:5671/"\n'
HUB = '[hub]\nurl = "https://first:8420"\n'
LAB = '[hubs.lab]\nurl = "https://lab:8420"\n'
GROUP = '[hubs.group]\nurl = "https://group:8420"\nsite = "theirs"\n'
TWO = {
    "lab": DialledHub(url="https://lab:8420", user="lab"),
    "group": DialledHub(url="https://group:8420", user="group", site="theirs"),
}
SETTINGS = agent_parts.settings(hubs=TWO)


def parse(*tables: str, hub: str = "") -> Settings:
    return settings.parse(HEAD + "".join(tables), Path("agent.toml"), hub)


# -- the file --------------------------------------------------------------------------------------


def test_each_hub_has_a_name_a_token_and_a_user_of_its_own():
    made = parse(LAB, GROUP)
    assert made.carriers == ("lab", "group")
    lab, group = made.by("lab"), made.by("group")
    assert (lab.hub.user, lab.hub.token_file, lab.site) == ("lab", "lab-token", "mira")
    assert (group.hub.user, group.hub.token_file, group.site) == ("group", "group-token", "theirs")
    assert (group.here, group.carrier, group.source) == ("mira", "group", "https://group:8420")
    assert (group.job_topics, group.beat_topic) == ({"job.theirs": ""}, "heartbeat.theirs")
    assert made.by("") is made
    assert [made.carrier_of(user) for user in ("lab", "group", "alice")] == ["lab", "group", ""]


@pytest.mark.parametrize("first", [BUS, HUB])
def test_a_broker_or_one_hub_may_be_there_beside_further_ones(first: str):
    made = parse(first, LAB)
    assert made.carriers == ("", "lab")
    assert made.by("lab").bus == settings.SiteBroker()
    assert made.by("lab").batch == made.batch


def test_a_hub_may_take_the_place_and_the_user_of_another(tmp_path: Path):
    # So that it knows the jobs that it has here.
    moved = parse('[hubs.lab]\nurl = "https://first:8420"\nuser = "hub"\n')
    assert moved.carrier_of("hub") == "lab"


@pytest.mark.parametrize(
    "tables, words",
    [
        ((LAB, '[hubs.other]\nurl = "https://x:1"\nuser = "lab"\n'), "that is `hubs.lab.user`"),
        ((HUB, '[hubs.other]\nurl = "https://x:1"\nuser = "hub"\n'), "that is `hub.user`"),
        (('[hubs.lab]\nurl = "amqps://x:1"\n',), "`hubs.lab.url` must begin with"),
        (("[hubs.lab]\n",), "`hubs.lab.url` must begin with"),
        (('[hubs."a b"]\nurl = "https://x:1"\n',), "`hubs.a b` is not a valid name"),
        ((LAB + 'site = "a b"\n',), "`hubs.lab.site` must be"),
        ((LAB + 'relay = "8421"\n',), "`hubs.lab.relay` must be"),
        ((LAB + 'user = ""\n',), "`hubs.lab.user` cannot be empty"),
        ((LAB + "retry = 0\n",), "`hubs.lab.retry` cannot be below"),
        ((LAB + "nosuch = 1\n",), "nosuch"),
        (('hubs = "x"\n',), "hubs"),
        ((BUS, HUB, LAB), "cannot be set together with"),
    ],
)
def test_what_cannot_be_is_refused(tables: tuple[str, ...], words: str):
    with pytest.raises(errors.ConfigError, match=words):
        parse(*tables)


def test_files_of_hubs_are_found_from_the_folder_of_the_agent(tmp_path: Path):
    file = tmp_path / "agent.toml"
    file.write_text(HEAD + LAB + 'ca = "lab.pem"\n')
    found = settings.read(file).hubs["lab"]
    assert (found.ca, found.token_file) == (f"{tmp_path}/lab.pem", f"{tmp_path}/lab-token")


def test_a_token_that_is_renewed_is_told_to_its_own_hub(tmp_path: Path):
    file = tmp_path / "agent.toml"
    file.write_text(HEAD + LAB + GROUP)
    told: list[str] = []

    async def run() -> None:
        followed = LiveSettings(file)
        followed.on_renewal.append(told.append)
        (tmp_path / "lab-token").write_text("x")
        await followed.look()
        # One that is new is dialled with what it has.
        (tmp_path / "third-token").write_text("x")
        file.write_text(HEAD + LAB + GROUP + '[hubs.third]\nurl = "https://third:1"\n')
        await followed.look()
        await followed.look()

    anyio.run(run)
    assert told == ["lab"]


def test_each_hub_has_a_folder_for_its_keys(tmp_path: Path):
    made = parse(HUB, LAB)
    found = {name: connection.home(made.by(name), tmp_path, lambda: 0.0) for name in made.carriers}
    assert [one.url for one in found.values() if one] == ["https://first:8420", "https://lab:8420"]
    folder = tmp_path / "hubs" / "lab"
    folder.mkdir(parents=True)
    (folder / "hub-key.json").write_text('{"key": "of-the-lab"}')
    home: HubAddress | None = found["lab"]
    assert home is not None
    assert home.key() == "of-the-lab"
    assert found[""] is not None
    with pytest.raises(errors.NeedsCredential):
        found[""].key()


# -- messages --------------------------------------------------------------------------------------


def judged(
    carrier: str, user: str, made: Settings = SETTINGS, app: Application | None = None, **more: Any
) -> Accepted | Rejected:
    one = made.by(carrier)
    known = app or agent_parts.app()
    return admission.judge(
        agent_parts.body(**{"site": one.site, **more}), user, lambda _: known, one
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with agent_parts.store(tmp_path, sim=agent_parts.app()) as made:
        yield made


def post(store: Store, carrier: str, user: str, **more: Any) -> Ingested:
    one = SETTINGS.by(carrier)
    arrival = JudgedMessage(user, f"job.{one.site}", b"x", judged(carrier, user, **more))
    return store.writer.do(lambda db: store_messages(db, [arrival], one, 1.0))


def test_a_job_is_for_the_name_that_its_hub_knows_and_runs_at_the_one_site():
    found = judged("group", "group")
    assert isinstance(found, Accepted)
    assert (found.job.site, found.spec.site) == ("theirs", "mira")
    wrong = judged("group", "group", site="mira")
    assert isinstance(wrong, Rejected)
    assert wrong.code == "wrong_site"


def test_a_user_of_the_broker_cannot_pass_for_a_hub(store: Store):
    found = judged("", "lab")
    assert isinstance(found, Rejected)
    assert "a hub that this agent dials" in found.reason
    post(store, "", "lab", reply="status.eve")
    # What it is answered does not go to the hub that it passed for.
    assert {one.topic for one in sent(store, "")} == {"refused.mira", "status.eve"}
    assert sent(store, "lab") == []
    asked = control(store, "", "lab", "cancel", jobs=[1])
    assert "a hub that this agent dials" in json.loads(asked.answers[0])["text"]


def sent(store: Store, carrier: str) -> list[Any]:
    box = Outbox(None, None, None, lambda: SETTINGS.by(carrier), lambda: 1.0)  # type: ignore[arg-type]
    return records.unsent(store.db, 0, 100, box._receivers())


def control(store: Store, carrier: str, user: str, verb: str, **more: Any) -> ControlResult:
    one = SETTINGS.by(carrier)
    body = agent_parts.control(verb, **{"site": one.site, **more})
    said = Message(
        topic=f"control.{one.site}", body=body, tag=1, reply=agent_parts.nobody, user=user
    )
    return store.writer.do(lambda db: execute(db, said, one, 5.0))


def test_each_carrier_has_what_is_said_of_its_own_jobs(store: Store):
    post(store, "lab", "lab", key="a")
    post(store, "group", "group", key="a")
    post(store, "", "alice", key="a")
    assert [[one.job for one in sent(store, name)] for name in ("lab", "group", "")] == [
        [1],
        [2],
        [3],
    ]
    # Also later on, whoever changes it, and what is answered.
    store.writer.do(lambda db: moves.cancel(db, jobs.get(db, 2), now=2.0))
    store.writer.do(lambda db: records.tell(db, 1, 3.0))
    control(store, "group", "group", "query", keys=["a"], reply="status.g")
    assert [one.job for one in sent(store, "lab")] == [1, 1]
    assert [one.job for one in sent(store, "group")] == [2, 2, 0]
    assert [one.job for one in sent(store, "")] == [3]
    lab = records.Receivers(frozenset({"lab"}), among=True)
    assert (records.waiting(store.db, lab), records.newest(store.db, lab)) == (2, 5)


def test_a_hub_knows_its_own_jobs_alone(store: Store):
    post(store, "lab", "lab", key="a")
    post(store, "group", "group", key="b")
    (said,) = control(store, "lab", "lab", "cancel", jobs=[1, 2]).answers
    assert [one["ok"] for one in json.loads(said)["results"]] == [True, False]
    assert jobs.get(store.db, 2).state is State.QUEUED


def test_draining_is_of_the_one_site_whatever_a_hub_calls_it(store: Store):
    bosses = agent_parts.settings(hubs=TWO, admins=("group",)).by("group")
    body = agent_parts.control("drain", site="theirs")
    said = Message(topic="control.theirs", body=body, tag=1, reply=agent_parts.nobody, user="group")
    answer = json.loads(store.writer.do(lambda db: execute(db, said, bosses, 5.0)).answers[0])
    assert (answer["site"], answer["draining"]) == ("theirs", True)
    assert sites.asked(store.db, "mira") == "drain"


def test_old_messages_for_hubs_that_are_gone_are_forgotten(store: Store):
    post(store, "lab", "lab", key="a")
    post(store, "group", "group", key="b")
    store.writer.do(lambda db: records.forget_undeliverable(db, ["lab"], 0.5))
    assert len(store.words()) == 2
    store.writer.do(lambda db: records.forget_undeliverable(db, ["lab"], 2.0))
    assert [one.job for one in store.words()] == [1]


# -- pilots ----------------------------------------------------------------------------------------

PILOT = Application(takes="pilot", limits=AppLimits(maximum=8))
ORDER = {"secret": "s" * 40, "name": "p", "hub": "https://says:1"}


def order(store: Store, carrier: str, user: str, number: int = 1) -> None:
    post(
        store, carrier, user, app=PILOT, application="pilot", key=f"h.pilot.{number}",
        config=json.dumps(ORDER),
    )  # fmt: skip


def test_what_waits_for_a_hub_that_is_not_named_any_more_is_cancelled(store: Store):
    for number in (1, 2):
        order(store, "lab", "lab", number)
        order(store, "group", "group", number)
    store.writer.do(lambda db: db.run("job_say", rows="[]", reason=""))

    def runs(db: Any) -> None:
        db._connection.execute("UPDATE job SET state = 'running' WHERE id = 1")

    store.writer.do(runs)
    assert store.writer.do(lambda db: pilots.cancel_unserved(db, SETTINGS, 2.0)) == 0
    one = agent_parts.settings(hubs={"group": TWO["group"]})
    assert store.writer.do(lambda db: pilots.cancel_unserved(db, one, 2.0)) == 1
    found = {job.id: (job.owner, job.state) for job in store.jobs()}
    assert found == {
        1: ("lab", State.RUNNING), 2: ("group", State.WAITING), 3: ("lab", State.CANCELLED),
        4: ("group", State.WAITING),
    }  # fmt: skip


def test_a_pilot_goes_to_the_hub_that_ordered_it_and_to_no_other():
    for name, hub in TWO.items():
        found = judged(
            name, name, app=PILOT, application="pilot", key="h.pilot.1", config=json.dumps(ORDER)
        )
        assert isinstance(found, Accepted)
        assert pilots.hub(found.job, SETTINGS.by(name)) == hub.url


def test_pilots_of_each_hub_are_counted(store: Store):
    order(store, "lab", "lab")
    order(store, "group", "group")
    order(store, "group", "group", 2)

    def let(db: Any) -> None:
        moves.move(db, 2, 0, State.WAITING, retry.Next(State.QUEUED, ""), now=2.0)

    store.writer.do(let)
    found = pilots.held(store.db)
    assert (found["lab"].ordered, found["lab"].why) == (1, pilots.WAITS)
    assert (found["group"].ordered, found["group"].queued, found["group"].cores) == (1, 1, 1)


# -- a batch system behind SSH ---------------------------------------------------------------------

FAR = agent_parts.settings(hubs=TWO, batch=SiteSettings(batch="slurm", host="login"))


def test_behind_ssh_there_are_pilots_alone():
    found = judged("lab", "lab", FAR)
    assert isinstance(found, Rejected)
    assert "starts pilots there alone" in found.reason
    more: Any = {"application": "pilot", "key": "h.pilot.1", "config": json.dumps(ORDER)}
    assert isinstance(judged("lab", "lab", FAR, app=PILOT, **more), Accepted)


def test_pilots_come_through_the_login_node_that_the_agent_reaches_by_ssh():
    urls = [one.url for one in TWO.values()]
    assert batch_system.relay_routes(SETTINGS) == ()
    assert batch_system.relay_routes(FAR) == tuple(RelayRoute(one, "127.0.0.1:0") for one in urls)
    direct = agent_parts.settings(
        hubs=TWO, batch=SiteSettings(batch="slurm", host="login", link="direct")
    )
    assert batch_system.relay_routes(direct) == ()
    named = {
        **TWO,
        "lab": DialledHub(url=urls[0], user="lab", relay="10.0.0.1:8421", proxy="http://p:1"),
    }
    assert batch_system.relay_routes(agent_parts.settings(hubs=named)) == (
        RelayRoute(urls[0], "10.0.0.1:8421", "http://p:1"),
    )


class Doors:
    """The ports of a login node."""

    host = "login7"

    def __init__(self) -> None:
        self.opened: dict[str, int] = {}

    async def open(self, name: str, port: int) -> int:
        await anyio.lowlevel.checkpoint()
        self.opened[name] = port
        return 4000 + len(self.opened)


def test_each_hub_has_a_door_of_its_own_and_one_relay_that_fails_ends_no_other(tmp_path: Path):
    file = tmp_path / "agent.toml"
    taken = LAB + 'relay = "203.0.113.1:1"\n'
    file.write_text(HEAD + taken + GROUP + 'relay = "127.0.0.1:0"\n')

    async def run() -> None:
        followed, doors = LiveSettings(file), Doors()
        log = logging.getLogger("pilotage.edge")
        parts = Supervisor(ManualClock(0.0), log, Backoff(1.0, 60.0))
        out = Relays(followed, parts)
        link = followed().by("group"), "https://group:8420"
        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(out.run)
                while "https://group:8420" not in out._ports or not parts.troubles:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                assert [*parts.troubles] == ["the relay to https://lab:8420"]
                assert (await out.link(doors, *link)).startswith("relay:127.0.0.1:")  # type: ignore[arg-type]
                file.write_text(HEAD + 'host = "far"\n' + LAB + GROUP)
                await followed.look()
                far = followed().by("group")
                while len(out._ports) < 2:  # noqa: ASYNC110
                    await anyio.sleep(0.01)
                found = await out.link(doors, far, "https://group:8420")  # type: ignore[arg-type]
                assert found == "relay:login7:4001"
                assert doors.opened == {"hub-group": out._ports["https://group:8420"]}
                tasks.cancel_scope.cancel()

    anyio.run(run)


# -- what its administrator sees -------------------------------------------------------------------


def test_status_has_a_line_for_each_of_several_hubs(tmp_path: Path):
    (tmp_path / "agent.toml").write_text(HEAD + LAB + GROUP)
    (tmp_path / "apps").mkdir()
    limits = "[limits]\nmaximum = 8\n[user.lab]\nmaximum = 64\n"
    (tmp_path / "apps" / "pilot.toml").write_text(f'takes = "pilot"\n{limits}')
    state = tmp_path / ".pilotage"
    state.mkdir()
    beat = Heartbeat(site="mira", time=1.0, version="1", scheduler=Scheduler(well=True))
    links = (
        status.ConnectionStatus(name="lab", kind="hub", site="mira", user="lab", since=1.0),
        status.ConnectionStatus(
            name="group", kind="hub", site="theirs", user="group", trouble="refused"
        ),
    )
    status.write(state, status.AgentStatus(beat=beat, carriers=links))
    answer = agent_status.status(tmp_path)
    (table,) = [one for one in answer.shown if isinstance(one, Table)]
    lab, group = table.rows
    assert (lab[0], lab[7], group[0], group[2], group[7]) == ("lab", 64, "group", "theirs", 8)
    assert group[-1] == "refused"
    assert "connected" in str(lab[1])
    assert agent_status._word(status.read(state), runs=True)[0] == "has trouble"
    gone = status.AgentStatus(beat=beat, carriers=(links[1],))
    assert agent_status._word(gone, runs=True)[0] == "no hub"
