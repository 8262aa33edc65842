"""What a hub makes of the reports of factories: each pilot once, and only those of its sites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pilotage.base import errors, text
from pilotage.batch import records as sites
from pilotage.batch.wish import Wish
from pilotage.edge.factory import desk
from pilotage.edge.factory.wire import (
    MOST_WANTED,
    FactoryEnrol,
    FactoryOrder,
    FactoryPilot,
    FactoryReport,
    FactorySite,
    Stage,
)
from pilotage.project import tokens
from pilotage.project.tokens import Grant, Scope
from pilotage.store import Db, connect

GRANT = Grant(1, Scope.FACTORY, "", site="grid,cloud")
ME, OTHER = "0123456789ab", "ba9876543210"
FACTS = '{"host": "n1", "work": "/w", "cpus": 4, "memory": 100}'


class Desk:
    """A hub with a store and two sites that factories feed, at a time of our choice."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.now = 1000.0
        self.turn = 0
        (root / "sites").mkdir()
        for name, batch in (("grid", "factory"), ("cloud", "factory"), ("own", "local")):
            (root / "sites" / f"{name}.toml").write_text(f'batch = "{batch}"\n')
        self.db: Db = connect(root / "store.db")

    def want(self, count: int = 1, site: str = "grid") -> list[int]:
        body = text.dump(Wish(cpus=2))
        with self.db.transaction():
            return [
                self.db.value("pool_want", site=site, pool="burst", wish=body, now=self.now)
                for _ in range(count)
            ]

    def sync(
        self, *pilots: tuple[int, Stage] | tuple[int, Stage, str], site: str = "grid",
        factory: str = ME, grant: Grant = GRANT, words: str = "",
    ) -> FactoryOrder:  # fmt: skip
        self.turn += 1
        held = tuple(FactoryPilot(*one) for one in pilots)
        report = FactoryReport(factory, self.turn, (FactorySite(site, words, held),))
        with self.db.transaction():
            return desk.sync(self.db, self.root, grant, report, self.now).sites[0]

    def enrol(self, *pilots: int, site: str = "grid") -> dict[int, str]:
        with self.db.transaction():
            found = desk.enrol(self.db, self.root, GRANT, FactoryEnrol(site, pilots), self.now)
        return {one.pilot: one.secret for one in found.secrets}

    def come(self, number: int, state: str = "available") -> None:
        with self.db.transaction():
            self.db.value(
                "pilot_come", id=number, name="n", digest=f"d{number}", facts=FACTS, now=self.now
            )
            self.db.run(
                "pilot_move", id=number, state=state, reason="", now=self.now, ended=None
            )  # fmt: skip

    def ask(self, number: int) -> None:
        with self.db.transaction():
            self.db.run("pool_call_off", ids=text.dump([number]))

    def pilot(self, number: int) -> tuple[str, str]:
        row = self.db.rows("pilot_get", id=number)[0]
        return row[4], row[5]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.db.close()


def numbers(order: FactoryOrder) -> list[int]:
    return [one.pilot for one in order.wanted]


def test_what_is_wanted_is_told_again_until_it_is_reported(hub: Desk):
    one, two = hub.want(2)
    assert numbers(hub.sync()) == numbers(hub.sync()) == [one, two]
    assert hub.sync((one, "waits")).wanted[0].wish == Wish(cpus=2)
    assert numbers(hub.sync((one, "waits"), (two, "submitted"))) == []
    assert hub.pilot(one)[0] == "requested"


def test_the_stages_of_a_pilot_are_written_down_with_words(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "waits", "the site is away"))
    assert hub.pilot(one) == ("requested", "the site is away")
    hub.sync((one, "submitted", "slurm job 7: Priority"))
    assert hub.pilot(one) == ("submitted", "slurm job 7: Priority")
    hub.sync((one, "running", "its batch job runs"))
    assert hub.pilot(one) == ("submitted", "its batch job runs")
    hub.come(one)
    hub.sync((one, "running", "its batch job runs"))
    assert hub.pilot(one) == ("available", "")


@pytest.mark.parametrize("stage,state", [("ended", "failed"), ("off", "down")])
def test_one_that_never_came_ends_once(hub: Desk, stage: Stage, state: str):
    (one,) = hub.want()
    hub.sync((one, "submitted"))
    for _ in range(2):
        assert hub.sync((one, stage, "node failure")).heard == (one,)
        assert hub.pilot(one) == (state, "node failure")


def test_the_end_of_one_that_came_is_kept_until_it_is_acted_on(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "running"))
    hub.come(one)
    for _ in range(2):
        assert hub.sync((one, "ended", "node failure")).heard == (one,)
    assert hub.pilot(one)[0] == "available"
    assert hub.db.rows("factory_ends", site="grid") == [(one, "node failure")]
    assert hub.db.rows("factory_ends", site="cloud") == []


def test_one_that_nobody_wants_is_called_off_and_ends(hub: Desk):
    one, two = hub.want(2)
    hub.sync((one, "submitted"))
    hub.ask(one)
    hub.ask(two)
    order = hub.sync((one, "submitted"))
    assert (order.off, order.wanted) == ((one,), ())
    assert hub.pilot(two) == ("down", "called off before it was submitted")
    hub.sync((one, "off", "called off"))
    assert hub.pilot(one)[0] == "down"


def test_one_that_never_came_is_called_off_at_once_whoever_ended_it(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "waits"))
    with hub.db.transaction():
        hub.db.run("pilot_never", id=one, state="down", reason="", now=hub.now)
    assert hub.sync((one, "submitted")).off == (one,)


def test_one_that_came_before_it_heard_of_this_is_left_to_drain(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "running"))
    hub.ask(one)
    hub.come(one)
    assert hub.sync((one, "running")).off == ()


def test_what_a_factory_forgot_has_failed_and_is_not_asked_for_anew(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "submitted"))
    assert numbers(hub.sync()) == []
    assert hub.pilot(one) == ("failed", "its factory does not know it any more")
    hub.now += 100
    assert hub.sync((one, "submitted")).off == (one,)


def test_one_that_left_has_time_to_tidy_and_one_that_is_lost_may_come_back(hub: Desk):
    left, lost = hub.want(2)
    both: list[tuple[int, Stage]] = [(left, "running"), (lost, "running")]
    hub.sync(*both)
    for number, state in ((left, "down"), (lost, "lost")):
        hub.come(number)
        with hub.db.transaction():
            hub.db.run(
                "pilot_move", id=number, state=state, reason="", now=hub.now, ended=hub.now
            )  # fmt: skip
    assert hub.sync(*both).off == ()
    hub.now += 100
    assert hub.sync(*both).off == (left,)


def test_pilots_of_other_sites_and_of_nobody_are_never_touched(hub: Desk):
    (mine,), (other,), (own,) = hub.want(), hub.want(site="cloud"), hub.want(site="own")
    order = hub.sync((other, "ended", "x"), (own, "ended", "x"), (999, "running"))
    assert (order.off, order.heard) == ((999,), (other, own))
    assert numbers(order) == [mine]
    assert hub.pilot(other)[0] == hub.pilot(own)[0] == "requested"
    assert hub.sync((own, "submitted")).off == (own,)
    assert hub.pilot(own)[0] == "requested"


@pytest.mark.parametrize(
    "site,grant,error",
    [
        ("grid", Grant(1, Scope.FACTORY, "", site="cloud"), errors.Denied),
        ("grid", Grant(1, Scope.SITE, "", site="grid"), errors.Denied),
        ("own", Grant(1, Scope.FACTORY, "", site="own"), errors.NotFound),
        ("none", Grant(1, Scope.FACTORY, "", site="none"), errors.NotFound),
    ],
)
def test_only_sites_of_the_token_that_factories_feed_are_fed(
    hub: Desk, site: str, grant: Grant, error: type[errors.PilotageError]
):
    with pytest.raises(error) as caught:
        hub.sync(site=site, grant=grant)
    assert caught.value.hint


def test_a_report_that_comes_late_counts_for_nothing(hub: Desk):
    (one,) = hub.want()
    hub.sync()
    hub.sync((one, "submitted"))
    hub.turn -= 2
    with pytest.raises(errors.Conflict, match="came before"):
        hub.sync()
    assert hub.pilot(one)[0] == "submitted"


def test_two_factories_do_not_feed_one_site_unless_the_first_is_gone_for_long(hub: Desk):
    hub.sync()
    hub.now += 100
    with pytest.raises(errors.Conflict, match="another factory feeds the site grid"):
        hub.sync(factory=OTHER)
    hub.sync(factory=OTHER, site="cloud")
    hub.now += desk.ALONE_S
    hub.sync(factory=OTHER)
    with pytest.raises(errors.Conflict):
        hub.sync(factory=ME)


def test_clocks_that_jump_and_stores_that_are_put_back_stop_nobody_for_long(hub: Desk):
    hub.turn = 5000
    hub.sync()
    hub.now -= 10 * desk.ALONE_S
    hub.sync(factory=OTHER)
    hub.turn = 0
    with pytest.raises(errors.Conflict, match="report 5002 came before"):
        hub.sync(factory=OTHER)
    hub.now += desk.ALONE_S
    hub.sync(factory=OTHER)


@pytest.mark.parametrize("now", [None, 'batch = "local"\n'])
def test_what_is_left_at_a_site_that_is_no_more_is_ended_and_forgotten(hub: Desk, now: str | None):
    lasting, waits, ended = hub.want(3)
    hub.sync((lasting, "running"), (waits, "submitted"), (ended, "submitted"))
    hub.come(lasting)
    file = hub.root / "sites" / "grid.toml"
    file.write_text(now) if now else file.unlink()
    order = hub.sync((lasting, "running"), (waits, "submitted"), (ended, "ended"), (999, "waits"))
    assert (order.wanted, order.off, order.heard) == ((), (waits, 999), (ended,))
    assert hub.pilot(lasting)[0] == "available"
    with pytest.raises(errors.Denied):
        hub.sync((waits, "submitted"), grant=Grant(1, Scope.FACTORY, "", site="cloud"))
    with pytest.raises(errors.NotFound):
        hub.sync()
    with pytest.raises(errors.NotFound):
        hub.enrol(waits)


def test_one_report_has_each_site_once(hub: Desk):
    report = FactoryReport(ME, 1, (FactorySite("grid"), FactorySite("grid")))
    with pytest.raises(errors.Conflict, match="twice"):
        desk.sync(hub.db, hub.root, GRANT, report, 1.0)


def test_a_drained_site_wants_nothing_and_answers_are_bounded(hub: Desk):
    hub.want(MOST_WANTED + 5)
    assert len(hub.sync().wanted) == MOST_WANTED
    with hub.db.transaction():
        sites.ask(hub.db, "grid", "drain", by="me", why="", now=0.0)
    assert hub.sync().wanted == ()


def test_a_secret_lets_one_pilot_in_and_no_other(hub: Desk):
    one, two = hub.want(2)
    (three,) = hub.want(site="cloud")
    hub.ask(two)
    found = hub.enrol(one, one, two, three, 999)
    assert list(found) == [one]
    grant = tokens.look(hub.db, found[one], hub.now)
    assert (grant.pilot, grant.site, grant.pool) == (one, "grid", "burst")
    with hub.db.transaction():
        tokens.consume(hub.db, found[one], Scope.ENROL, hub.now)
    with pytest.raises(errors.Denied, match="used up"):
        tokens.look(hub.db, found[one], hub.now)
    hub.come(one)
    assert hub.enrol(one) == {}


def test_however_often_secrets_are_asked_for_few_are_kept(hub: Desk):
    (one,) = hub.want()
    made: list[Any] = [hub.enrol(one)[one] for _ in range(10)]
    good = []
    for secret in made:
        try:
            good.append(tokens.look(hub.db, secret, hub.now))
        except errors.Denied:
            continue
    assert len(good) == 3
    assert tokens.look(hub.db, made[-1], hub.now).pilot == one


def test_what_a_factory_says_is_shown_harmless(hub: Desk):
    (one,) = hub.want()
    hub.sync((one, "submitted", "\x1b[31mred\n"), words="line\nbreak")
    assert hub.pilot(one)[1] == "\\x1b[31mred\\n"
    assert hub.db.rows("factory_all") == [("grid", hub.now, "line\\nbreak")]
