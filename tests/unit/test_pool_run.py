"""Pools that are steered from outside: who is heard, what fails alone, and when things are done."""

from __future__ import annotations

import contextlib
import re
import threading
import types
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from pilotage import errors
from pilotage.client.rest import Session
from pilotage.client.where import Address
from pilotage.hub import pool_decide, pool_outside, pool_view
from pilotage.hub.pool_model import Row, Seen, Set, Step
from pilotage.hub.project import Project
from pilotage.pool import drive, files, outside
from pilotage.pool.compose.composite import weighted
from pilotage.pool.config import carry, document, service, tardis
from pilotage.pool.config.names import TAGS
from pilotage.pool.config.ours import Setup
from pilotage.pool.config.service import Services
from pilotage.pool.control.linear import Linear
from pilotage.pool.drive import Driver
from pilotage.pool.files import Outside, Pilot, Pool
from pilotage.pool.guarded import MOST_S, Guarded, pause
from pilotage.pool.law.model import Sight
from pilotage.pool.model import Reading
from pilotage.pool.outside import Told
from pilotage.pool.pipeline import Leaf
from pilotage.pool.remote import Hub, Remote, Sheet, Voice
from pilotage.pool.shape.buffer import Buffer
from pilotage.pool.shape.standardise import Standardiser

NOW = 1_000_000.0
MINUTE = 60.0


class Plain:
    """A pool as COBalD's are, which may be made to fail."""

    def __init__(self, name: str = "plain", demand: float = 10.0, supply: float = 10.0) -> None:
        self.name, self._demand, self._supply = name, demand, supply
        self.utilisation = self.allocation = 1.0
        self.asked: list[float] = []
        self.broken = ""

    @property
    def supply(self) -> float:
        if self.broken:
            raise OSError(self.broken)
        return self._supply

    @property
    def demand(self) -> float:
        return self._demand

    @demand.setter
    def demand(self, value: float) -> None:
        self.asked.append(value)
        self._demand = value


class Hands:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


# -- who is heard ----------------------------------------------------------------------------------


def test_what_one_asks_for_replaces_what_it_asked_for_before():
    told = Told(4.0, "why", "anna", NOW).then(5.0, "more", "anna", NOW + 1)
    assert told == Told(5.0, "more", "anna", NOW + 1)
    assert told.rival(10 * MINUTE, NOW + 2) == ""


def test_two_that_ask_are_told_of_each_other_until_one_is_silent():
    told = Told(4.0, "", "anna", NOW).then(9.0, "", "bert", NOW + 5)
    assert told.demand == 9.0
    assert "anna asks too, 25.0 s ago: the last one wins" in told.rival(10 * MINUTE, NOW + 25)
    back = told.then(4.0, "", "anna", NOW + 30)
    assert "bert asks too" in back.rival(10 * MINUTE, NOW + 31)
    alone = back.then(4.0, "", "anna", NOW + 11 * MINUTE)
    assert alone.rival(10 * MINUTE, NOW + 11 * MINUTE) == ""


def test_who_steers_is_said_in_words():
    told = Told(4.0, "", "anna", NOW)
    assert outside.words(None, MINUTE, NOW) == "nobody outside has asked for anything yet"
    assert outside.words(told, MINUTE, NOW + 5) == "anna wants 4 cores, heard of 5.0 s ago"


def pool(**facts: object) -> Pool:
    given = {"site": "a", "maximum": 64, "pilot": Pilot(cpus=4), "control": Outside()} | facts
    return msgspec.convert(given, Pool, from_attributes=True)


def decided(one: Pool, told: Told | None, *, ready: int = 0, demand: float = 0.0) -> Step:
    sight = Sight("p", "a", 4, 1e12, 0, 0, ready, 0, (ready, 0, 0, 0, 0), quota=64.0)
    look = Seen(sight, Reading(4.0 * ready, demand, 1.0, 1.0), group="p")
    row = Row("p", demand, looked=NOW - 30, told=told)
    steps, _ = pool_decide.decide({"p": one}, {"p": row}, {"p": look}, {}, NOW)
    return steps["p"]


def test_what_was_asked_for_is_carried_out():
    step = decided(pool(), Told(10.0, "three are full", "anna", NOW - 1), ready=1)
    assert (step.order, step.demand, step.reason) == (2, 10.0, "")
    assert "anna: three are full" in step.words


def test_less_than_there_is_drains():
    step = decided(pool(), Told(4.0, "", "anna", NOW - 1), ready=3)
    assert (step.order, step.drain) == (0, 2)
    assert "anna wants 4 cores" in step.words


def test_all_guards_hold_for_what_is_asked_for_from_outside():
    told = Told(1000.0, "", "anna", NOW - 1)
    assert decided(pool(maximum=12, pending=50), told).order == 3
    assert decided(pool(pending=2), told).order == 2
    assert "--allow" in decided(pool(ask_above=4, pending=50), told).reason


def test_silence_holds_or_goes_to_the_minimum_and_is_told():
    old = Told(8.0, "", "anna", NOW - 11 * MINUTE)
    held = decided(pool(), old, ready=2, demand=8.0)
    assert (held.order, held.drain, held.demand) == (0, 0, 8.0)
    assert "nothing was heard of anna for 11 m" in held.reason
    low = decided(pool(minimum=4, control=Outside(after="minimum")), old, ready=2, demand=8.0)
    assert (low.drain, low.demand) == (1, 4.0)
    patient = decided(pool(control=Outside(silence="1h")), old, ready=2)
    assert patient.reason == ""


def test_before_anybody_asks_a_pool_stays_as_it_is():
    step = decided(pool(), None, ready=2, demand=8.0)
    assert (step.order, step.drain, step.demand) == (0, 0, 8.0)
    assert step.reason == "nobody outside has asked for anything yet"


@pytest.mark.parametrize("control", ['silence = "0s"', 'after = "never"', 'silense = "1m"'])
def test_mistakes_in_the_table_of_control_are_found(control):
    source = f'site = "a"\nmaximum = 8\n[control]\nkind = "outside"\n{control}\n'
    with pytest.raises(errors.ConfigError, match=r"p.toml:5"):
        files.parse(source, "p", Path("p.toml"))


@pytest.fixture
def project(tmp_path: Path):
    (tmp_path / "pilotage.toml").touch()
    (tmp_path / "pools").mkdir()
    head = 'site = "a"\nmaximum = 8\nminimum = 2\n'
    (tmp_path / "pools/out.toml").write_text(head + '[control]\nkind = "outside"\n')
    (tmp_path / "pools/own.toml").write_text(head)
    with Project(tmp_path) as found:
        yield found


def tell(project: Project, name: str, demand: float, by: str = "anna") -> pool_outside.Taken:
    with project.db.transaction():
        return pool_outside.tell(project.db, project.root, name, demand, "", by, NOW)


def test_a_demand_is_kept_within_bounds_those_that_a_person_has_set_too(project):
    assert tell(project, "out", 100.0).demand == 8.0
    assert tell(project, "out", 0.5).demand == 2.0
    with project.db.transaction():
        pool_view.change(project.db, project.root, "out", Set(maximum=4))
    assert tell(project, "out", 100.0).demand == 4.0
    look = pool_view.pool(project.db, project.root, "out", NOW + 1)
    assert (look.asked, look.by, look.heard, look.silence) == (4.0, "anna", NOW, 600.0)
    assert look.steered == "anna wants 4 cores, heard of 1.0 s ago"
    assert "anna asks too" in tell(project, "out", 3.0, "bert").words


def test_pools_that_steer_themselves_are_not_steered_from_outside(project):
    with pytest.raises(errors.Conflict, match="`aimd` decides") as found:
        tell(project, "own", 4.0)
    assert 'kind = "outside"' in found.value.hint
    with pytest.raises(errors.NotFound):
        tell(project, "none", 4.0)
    assert pool_view.pool(project.db, project.root, "own", NOW).steered == ""


# -- what fails alone ------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute():
    assert [pause(count) for count in (1, 2, 3, 4)] == [1, 2, 4, 8]
    assert pause(1000) == MOST_S


def test_a_pool_that_fails_is_left_alone_and_what_it_does_not_take_goes_to_others():
    clock, bad, good = Hands(), Plain("bad"), Plain("good")
    both = weighted(Guarded(Leaf(bad), clock), Leaf(good))
    pipeline = Linear(rate=10) >> Standardiser(maximum=100) >> both
    pipeline.tick(1.0)
    assert (bad.demand, good.demand) == (15.0, 15.0)
    bad.broken = "the disk is full"
    plan = pipeline.tick(1.0)
    assert "left as it is: the disk is full" in drive.said(plan)
    assert bad.demand == 15.0
    assert good.demand == 25.0


def test_a_pool_that_failed_is_asked_again_later_and_not_sooner():
    clock, bad = Hands(), Plain()
    guarded = Guarded(Leaf(bad), clock)
    bad.broken = "away"
    assert guarded.view().reading.supply == 0
    bad.broken = ""
    assert guarded.view().reading.supply == 0
    clock.now = 1.5
    assert guarded.view().reading.supply == 10.0
    assert guarded.error is None


def test_a_pool_that_cannot_be_asked_is_asked_less_and_less_often():
    class Deaf(Plain):
        tries = 0

        @property
        def demand(self) -> float:
            return 1.0

        @demand.setter
        def demand(self, _: float) -> None:
            self.tries += 1
            raise OSError("no")

        def __init__(self) -> None:
            self.name, self._supply, self.broken = "deaf", 1.0, ""
            self.utilisation = self.allocation = 1.0

    clock, deaf = Hands(), Deaf()
    guarded = Guarded(Leaf(deaf), clock)
    for second in range(31):
        clock.now = float(second)
        guarded.act(guarded.plan(guarded.view(), 5.0, 1.0))
    # At 0, 1, 3, 7 and 15 s.
    assert deaf.tries == 5


def test_guards_stand_before_each_pool_of_a_tree():
    tree = weighted(Leaf(Plain()), Standardiser() >> weighted(Leaf(Plain())))
    drive.guard(tree)
    first, second = tree.children
    assert isinstance(first, Guarded)
    (below,) = drive.under(second)
    assert isinstance(drive.under(below)[0], Guarded)


# -- when things are done --------------------------------------------------------------------------


def test_a_driver_decides_at_once_and_then_at_each_interval():
    clock, one = Hands(), Plain(demand=0.0)
    driver = Driver(Linear(rate=1, interval=10) >> one, Voice("me"), clock)
    assert driver.wait() == 0
    assert driver.step() is not None
    assert (one.demand, driver.wait()) == (10.0, 10.0)
    clock.now = 10.0
    assert driver.step() is not None
    assert one.demand == 20.0


def test_what_was_missed_is_made_up_for_by_two_intervals_at_most():
    clock, one = Hands(), Plain(demand=0.0)
    driver = Driver(Linear(rate=1, interval=10) >> one, Voice("me"), clock)
    driver.step()
    clock.now = 1000.0
    driver.step()
    assert one.demand == 30.0


def test_time_passes_for_a_buffer_between_decisions():
    clock, one = Hands(), Plain(demand=0.0)
    buffered = Buffer(4) >> one
    driver = Driver(Linear(rate=1, interval=10) >> buffered, Voice("me"), clock)
    driver.step()
    assert one.asked == [10.0]
    assert driver.wait() == 4.0
    clock.now = 10.0
    assert driver.step() is not None
    assert one.asked == [10.0, 20.0]
    # The next demand waits for the window, not for the next decision.
    clock.now = 12.0
    buffered.demand = 33.0
    assert driver.step() is None
    assert one.asked == [10.0, 20.0]
    clock.now = 14.0
    assert driver.step() is None
    assert one.asked == [10.0, 20.0, 33.0]


def test_the_voice_says_what_was_decided():
    voice = Voice("me")
    Driver(Linear() >> Standardiser(maximum=3) >> Plain(), voice, Hands()).step()
    assert "allocation 1.00 is above 0.50" in voice.words
    assert "the maximum" in voice.words


# -- a pool of a hub -------------------------------------------------------------------------------


def test_a_demand_counts_as_the_hub_made_it_once_the_hub_has_looked():
    sheet = Sheet("steered", demand=6.0, asked=40.0, heard=NOW, looked=NOW - 1)
    assert sheet.reading().demand == 40.0
    assert msgspec.structs.replace(sheet, looked=NOW + 1).reading().demand == 6.0
    assert Sheet("steered", demand=6.0, looked=NOW).reading().demand == 6.0


def test_a_pool_takes_what_its_hub_allows():
    sheet = Sheet("steered", minimum=2.0, maximum=8.0, supply=4.0, queued=1.0, pending=9)
    assert sheet.takes(5.0) == (5.0, "")
    assert sheet.takes(50.0) == (8.0, "its maximum in the hub is 8")
    assert sheet.takes(1.0)[0] == 2.0
    paused = msgspec.structs.replace(sheet, state="paused")
    assert paused.takes(50.0)[0] == 5.0
    slow = msgspec.structs.replace(sheet, pending=1, cpus=2)
    assert slow.takes(8.0) == (7.0, "only 1 of its pilots may wait at once")


def test_an_empty_pool_is_neither_well_nor_badly_used():
    assert Sheet("steered", utilisation=0.0, allocation=0.0).reading().utilisation is None


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
    assert (first.shape.maximum, second.shape.maximum) == (100, float("inf"))
    loggers = [one.shape.name for one in first.target.children]
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
    monkeypatch.setattr(service, "pause", lambda _: 0.01)
    services, one, plain = Services(), Lively(flavour, fails=2), Plain()
    services.adopt(one)
    services.adopt(plain)
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

_PAGE = (Path(__file__).parents[2] / "docs/cobald.md").read_text("utf-8")
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


# -- a hub of many pools ---------------------------------------------------------------------------


class Desk(BaseHTTPRequestHandler):
    """Answers as a hub does, and counts."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[str]] = []
    #: Whether it hangs up after each answer without a word.
    rude = False

    def do_GET(self) -> None:
        rows = [{"name": name, "state": "steered", "control": "outside"} for name in "abc"]
        self._answer({"pools": rows})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._answer({"demand": 1.0, "words": ""})

    def _answer(self, found: dict[str, Any]) -> None:
        self.asked.append(f"{self.command} {self.path}")
        body = msgspec.json.encode(found)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = self.rude

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def desk():
    Desk.asked.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Desk) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Address("127.0.0.1", server.server_address[1], "token")
        server.shutdown()
        thread.join()


@pytest.fixture
def hubs(desk):
    """Return what makes hubs; the desk closes after its guests have left."""
    made: list[Hub] = []

    def make(find: Callable[[], Address], clock: Hands) -> Hub:
        made.append(Hub(find, clock))
        return made[-1]

    yield make
    for one in made:
        one.close()


def test_pools_of_a_hub_are_asked_about_once_and_told_one_by_one(desk, hubs):
    clock = Hands()
    hub = hubs(lambda: desk, clock)
    leaves = [Remote(name, hub, Voice("me"), clock) for name in "abc"]
    for leaf in leaves:
        leaf.act(leaf.plan(leaf.view(), None, 1.0))
    assert Desk.asked[0] == "GET /api/v1/pools"
    with pytest.raises(errors.NotFound, match="no pool `d`"):
        Remote("d", hub, Voice("me"), clock).view()
    Desk.asked.clear()
    for leaf in leaves:
        leaf.view()
    assert Desk.asked == []
    clock.now = 1.0
    for leaf in leaves:
        leaf.view()
    assert Desk.asked == ["GET /api/v1/pools"]


def test_a_demand_that_stays_is_told_again_before_it_counts_as_silence(desk, hubs):
    clock = Hands()
    hub = hubs(lambda: desk, clock)
    leaf = Remote("a", hub, Voice("me"), clock)
    sheet = Sheet("steered", "outside", silence=600.0, maximum=9.0, pending=9)
    for second in range(0, 400, 50):
        clock.now = float(second)
        hub._seen, hub._when = {"a": sheet}, clock.now
        leaf.act(leaf.plan(leaf.view(), 3.0, 1.0))
    assert Desk.asked == ["PUT /api/v1/pools/a/demand"] * 3


def test_a_connection_that_was_closed_meanwhile_is_opened_anew(desk, monkeypatch):
    monkeypatch.setattr(Desk, "rude", True)
    with contextlib.closing(Session(desk, 10.0)) as session:
        for _ in range(3):
            assert session.ask("GET", "/pools")["pools"]
    assert len(Desk.asked) == 3


def test_a_hub_that_is_away_is_asked_once_for_all_of_its_pools():
    tries = []

    def find() -> Address:
        tries.append(1)
        return Address("127.0.0.1", 9, "token")

    clock = Hands()
    hub = Hub(find, clock)
    for name in "abc":
        with pytest.raises(errors.Unavailable):
            Remote(name, hub, Voice("me"), clock).view()
    assert len(tries) == 1
