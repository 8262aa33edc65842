"""What hubs can do to a factory by what they say they want: no more than their files let them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pilotage.agent.share import Claim, Limit
from pilotage.base.clock import WallClock
from pilotage.batch.wish import Wish
from pilotage.edge.factory import files, floor
from pilotage.edge.factory.book import Wanted
from pilotage.edge.factory.feeder import Feeder
from pilotage.edge.factory.floor import Floor
from pilotage.edge.factory.wire import LONGEST, FactoryOrder, FactoryOrders, FactoryWant
from pilotage.store import Db, Writer, connect

GOOD = """
url = "https://127.0.0.1:8420"
token_file = "lab.token"
maximum = 64
time = "12h"
[sites]
grid = "batch"
"""


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(connect(tmp_path / "store.db"))
    yield made
    made.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("hubs", "sites"):
        (tmp_path / name).mkdir()
    (tmp_path / "sites" / "batch.toml").write_text('batch = "local"\n')
    token = tmp_path / "hubs" / "lab.token"
    token.write_text("pil_f_secret\n")
    token.chmod(0o600)
    (tmp_path / "hubs" / "lab.toml").write_text(GOOD)
    return tmp_path


def understood(root: Path, writer: Writer, *wishes: Wish) -> list[Wanted]:
    """Say what a factory makes of what a hub wants."""
    clock = WallClock()
    none: Any = None
    one = Feeder(
        "lab", "0123456789ab", files.load(root, "lab"), Floor(writer, clock, {"batch": 10}), writer,
        clock, none,
    )  # fmt: skip
    some = tuple(FactoryWant(nth + 1, wish) for nth, wish in enumerate(wishes))
    return one._wanted(FactoryOrders((FactoryOrder("grid", some),)))


def wanted(hub: str, *numbers: int, objection: str = "") -> list[Wanted]:
    return [Wanted(Claim(hub, one, "batch", 1), "grid", Wish(), objection) for one in numbers]


def held(writer: Writer) -> dict[str, int]:
    rows = writer.do(lambda db: db.rows("guest_counts"))
    return {hub: count for hub, _, count, _ in rows}


@pytest.mark.parametrize(
    "usual,asked,has",
    [("", None, 43200), ("", 0.0, 43200), ("24h", None, 43200), ("1h", None, 3600), ("", 60, 60)],
)
def test_a_pilot_that_names_no_time_has_no_more_than_its_hub_may_ask_for(
    root: Path, writer: Writer, usual: str, asked: float | None, has: float
):
    if usual:
        (root / "sites" / "batch.toml").write_text(
            f'batch = "local"\n[defaults]\ntime = "{usual}"\n'
        )
    (found,) = understood(root, writer, Wish(time=asked))
    assert (found.objection, found.wish.time) == ("", has)


def test_where_no_time_is_bounded_none_is_made_up(root: Path, writer: Writer):
    (root / "hubs" / "lab.toml").write_text(GOOD.replace('time = "12h"', ""))
    assert understood(root, writer, Wish())[0].wish == Wish()


def test_no_memory_is_no_amount_of_it(root: Path, writer: Writer):
    # To Slurm, 0 is all that a node has; plug-ins may think so, too.
    found = understood(root, writer, Wish(memory=0), Wish(memory=1))
    assert [bool(one.objection) for one in found] == [True, False]


def test_what_is_refused_is_kept_in_few_words(root: Path, writer: Writer):
    huge = msgspec.json.decode(b'{"cpus": 1' + b"0" * 400 + b"}", type=Wish)
    found = understood(root, writer, Wish(queue="q" * 10**6), Wish(account="\n" * 10**6), huge)
    assert all(one.objection and len(one.objection) < LONGEST for one in found)
    assert all(one.wish == Wish() for one in found)


def test_a_hub_that_never_hears_of_ends_cannot_fill_the_disk(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(floor, "MOST_HELD", 25)
    ground = Floor(writer, WallClock(), {"batch": 100})
    for hub in ("lab", "group"):
        ground.enter(hub, Limit(50, 50))

    async def many() -> None:
        for turn in range(5):
            first = 1 + 10 * turn
            await ground.want("lab", wanted("lab", *range(first, first + 10), objection="no"))
        await ground.want("lab", wanted("lab", 90))
        await ground.want("group", wanted("group", 1, 2))

    asyncio.run(many())
    assert held(writer) == {"lab": 25, "group": 2}


def test_hubs_may_come_and_go_while_places_are_given(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
):
    ground = Floor(writer, WallClock(), {"batch": 100})
    ground.enter("lab", Limit(50, 50))
    ground.enter("group", Limit(50, 50))
    rows = Db.rows

    def change(db: Db, name: str, **facts: Any) -> Any:
        # What the loop does for other hubs meanwhile, in its own thread.
        if name == "guest_known":
            ground.leave("group")
            ground.enter("third", Limit(1, 1))
            ground._wanted["third"] = wanted("third", 1)
        return rows(db, name, **facts)

    monkeypatch.setattr(Db, "rows", change)
    ground._wanted["group"] = wanted("group", 7)
    asyncio.run(ground.want("lab", wanted("lab", 1, 2)))
    monkeypatch.undo()
    assert held(writer) == {"lab": 2, "group": 1}
