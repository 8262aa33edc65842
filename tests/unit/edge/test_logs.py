"""The log of a job at a site with an agent: whatever is lost or comes twice, it is right."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from pilotage.agent import outbox as agent
from pilotage.agent import records as edge_records
from pilotage.agent.model import LiveOutput, ReplyTo
from pilotage.base import errors
from pilotage.bus import wire
from pilotage.bus.model import Follow, FollowedJob, Log, Status
from pilotage.edge import logs, records, statuses
from pilotage.edge.logs import EdgeLogs
from pilotage.edge.message import Handoff, HubIdentity
from pilotage.job import logs as results
from pilotage.job import moves
from pilotage.job import records as jobs
from pilotage.job.model import App, JobSpec, NewJob, State
from pilotage.store import Db, Writer, connect
from tests.rigs.broker import agent_parts

MINE = HubIdentity("abcd1234")
KEY = MINE.key("job.1.1")
_LONG = bytes(range(256)) * 300


# -- one log ---------------------------------------------------------------------------------------


@given(
    st.binary(max_size=300),
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 90)), max_size=30),
    st.integers(0, 120),
)
def test_pieces_in_any_order_make_the_log(
    whole: bytes, pieces: list[tuple[int, int]], end: int
):  # fmt: skip
    log = b""
    for at, size in pieces:
        piece = logs.joined(len(log), at, whole[at : at + size])
        assert (piece is None) == (at > len(log))
        if piece is not None:
            assert piece.at == len(log)
            log += piece.data
        assert whole.startswith(log)
    at = max(0, len(whole) - end)
    last = logs.ended(len(log), at, whole[at:])
    log += last.data
    if at <= last.at:
        assert log == whole
    else:
        assert log.endswith(f"[{at - last.at} bytes are at the site only]\n".encode() + whole[at:])


def test_a_log_has_an_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(logs, "MOST_FOLLOWED", 10)
    assert logs.joined(8, 6, b"abcdef") == logs.LogPiece(8, b"cd")
    assert logs.joined(10, 10, b"abc") == logs.LogPiece(10, b"")


def test_the_end_of_an_older_site_stands_alone_or_behind_a_note():
    assert logs.ended(0, UNSET, b"end\n") == logs.LogPiece(0, b"end\n")
    assert logs.ended(3, UNSET, b"end\n").data.startswith(b"\n[its end follows")


# -- at the hub ------------------------------------------------------------------------------------


class Hub:
    """The store and the logs of a hub, with job 1 at `mira`, which is followed."""

    def __init__(self, root: Path) -> None:
        self.folder = root / "jobs"
        self.writer = Writer(connect(root / "store.db"))
        self.db = connect(root / "store.db", readonly=True)
        self.now = 10.0
        self.logs = EdgeLogs(self.db, self.writer, MINE, str(self.folder), lambda: self.now)
        self.writer.do(self._prepare)

    def _prepare(self, db: Db) -> None:
        assert jobs.add(db, NewJob(JobSpec(App("sim"), "far", site="mira")), 0.0) == 1
        moves.claim(db, {1: "site:mira"}, str(self.folder), 0.5, State.STAGING_IN)
        records.add(db, (1, 1), "mira", Handoff(), b"{}", 1.0)
        records.sent(db, records.due(db, 2.0, 0, 10), 2.0)
        statuses.hear(db, [_status("running", 1)], MINE, 3.0)
        results.follow(db, 1, self.now)

    async def hears(self, *pieces: Log) -> None:
        await self.logs._write(list(pieces))

    def log(self, stream: str = "stdout") -> bytes:
        file = Path(moves.attempt_dir(str(self.folder), 1, 1), stream)
        return file.read_bytes() if file.exists() else b""

    async def asks(self) -> list[Follow]:
        """Return what is asked of sites now; it counts as sent."""
        await self.logs.ask()
        some = [one for one in records.due(self.db, self.now, 0, 9) if one.kind == "follow"]
        self.writer.do(lambda db: records.sent(db, some, self.now))
        return [msgspec.convert(wire.decode(one.body.encode()), Follow) for one in some]


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    made = Hub(tmp_path)
    yield made
    made.writer.close()
    made.db.close()


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def piece(at: int, data: bytes, attempt: int = 1, *, site: str = "mira", key: str = KEY) -> Log:
    return Log(
        site=site, job=7, key=key, attempt=attempt, stdout_at=at, stdout=coded(data),
    )  # fmt: skip


def _status(state: Any, seq: int = 9, **more: Any) -> Status:
    return Status(site="mira", job=7, key=KEY, attempt=1, seq=seq, state=state, time=9.0, **more)


async def test_pieces_become_the_log_and_the_end_completes_it(hub: Hub):
    await hub.hears(piece(0, b"abc"), piece(6, b"xyz"), piece(0, b"abcd"), piece(2, b"cd"))
    assert hub.log() == b"abcd"
    (asked,) = await hub.asks()
    assert (asked.jobs[0].attempt, asked.jobs[0].stdout, asked.jobs[0].stderr) == (1, 4, 0)
    end = _status("done", stdout=coded(b"cdefg"), stdout_at=2, stderr=coded(b"oh"), stderr_at=0)
    async with hub.logs.finished([end]) as troubles:
        assert troubles == {}
        assert (hub.log(), hub.log("stderr")) == (b"abcdefg", b"oh")
        # What comes late changes nothing.
        await hub.hears(piece(4, b"!!!!"))
    assert hub.log() == b"abcdefg"
    # The end was not written down, and comes again.
    async with hub.logs.finished([end]):
        hub.writer.do(lambda db: statuses.hear(db, [end], MINE, 11.0))
    await hub.hears(piece(7, b"!"))
    assert hub.log() == b"abcdefg"


async def test_what_was_not_brought_is_told_in_the_log(hub: Hub):
    await hub.hears(piece(0, b"abc"))
    async with hub.logs.finished([_status("failed", stdout=coded(b"end"), stdout_at=90)]):
        assert hub.log() == b"abc\n[87 bytes are at the site only]\nend"


async def test_only_what_is_asked_for_is_kept(hub: Hub):
    await hub.hears(piece(0, b"a", site="other"), piece(0, b"b", key=MINE.key("job.1.2")))
    await hub.hears(piece(0, b"c", key="elsewhere.job.1.1"), piece(0, b"d", key=MINE.key("x")))
    assert hub.log() == b""
    hub.now += 1000.0
    await hub.hears(piece(0, b"e"))
    async with hub.logs.finished([_status("done", seq=1, stdout=coded(b"old"))]) as troubles:
        assert (troubles, hub.log()) == ({}, b"")
    assert await hub.asks() == []


async def test_an_attempt_that_is_not_the_current_one_writes_nothing(hub: Hub):
    hub.writer.do(lambda db: db._connection.execute("UPDATE job SET attempt = 2"))
    await hub.hears(piece(0, b"abc"))
    async with hub.logs.finished([_status("done", stdout=coded(b"end"))]):
        assert hub.log() == b""


async def test_a_further_attempt_at_the_site_starts_its_log_again(hub: Hub):
    await hub.hears(piece(0, b"first attempt"))
    await hub.hears(piece(0, b"second", attempt=2), piece(13, b"!", attempt=1))
    assert hub.log() == b"second"
    (asked,) = await hub.asks()
    assert (asked.jobs[0].attempt, asked.jobs[0].stdout) == (2, 6)


async def test_a_log_that_cannot_be_kept_is_told_with_its_job(hub: Hub):
    hub.folder.write_text("no folder")
    await hub.hears(piece(0, b"abc"))
    assert "its log cannot be kept here" in jobs.get(hub.db, 1).reason
    async with hub.logs.finished([_status("done", stdout=coded(b"end"))]) as troubles:
        assert "its log cannot be kept here" in troubles[1, 1]


async def test_a_site_is_asked_again_soon_after_a_gap_and_rarely_if_it_says_nothing(hub: Hub):
    assert len(await hub.asks()) == 1
    hub.now += 1.5
    assert await hub.asks() == []
    await hub.hears(piece(5, b"abc"))
    assert len(await hub.asks()) == 1
    asked = []
    while hub.now < 1000.0:
        hub.now += 1.0
        hub.writer.do(lambda db: results.follow(db, 1, hub.now))
        asked += [hub.now for _ in await hub.asks()]
    assert 3 < len(asked) < 30
    assert asked[-1] - asked[-2] > 50.0
    # It says something, whatever it is: it is there.
    async with hub.logs.finished([_status("running", 2)]):
        hub.now += 5.0
    assert len(await hub.asks()) == 1


# -- at the site -----------------------------------------------------------------------------------


class Agent:
    """The logs of an agent with one job, which writes."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.out = root / "stdout"
        self.sent: list[Log] = []
        self.deaf = False
        self.attempt = 1
        self.logs = agent.Logs(self._publish, lambda: None, agent_parts.settings)  # type: ignore[arg-type, return-value]
        monkeypatch.setattr(edge_records, "live_output", self._writes)
        self.root = root

    def _writes(self, _: Db, __: int) -> LiveOutput:
        return LiveOutput(self.attempt, str(self.root), ReplyTo(), "k")

    async def _publish(self, topic: str, body: bytes) -> None:
        if self.deaf:
            raise errors.Unavailable("no broker")
        found = wire.decode(body)
        assert isinstance(found, Log)
        assert topic == "status.mira"
        self.sent.append(found)

    def asked(self, **has: int) -> None:
        self.logs.follow({1: FollowedJob(key="k", **has)}, 15.0)

    async def round(self) -> tuple[int, bytes] | None:
        """Let it send; return where what it sent begins, and what it is."""
        self.sent.clear()
        await self.logs._round(None)  # type: ignore[arg-type]
        if not self.sent:
            return None
        (one,) = self.sent
        return one.stdout_at, base64.b64decode(one.stdout)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    return Agent(tmp_path, monkeypatch)


async def test_it_sends_what_is_new_and_answers_even_if_nothing_is(site: Agent):
    site.asked()
    assert await site.round() == (0, b"")
    assert await site.round() is None
    site.out.write_bytes(b"abc")
    site.deaf = True
    assert await site.round() is None
    site.deaf = False
    assert await site.round() == (0, b"abc")
    site.out.write_bytes(b"abcdef")
    assert await site.round() == (3, b"def")


async def test_what_was_lost_is_sent_again_and_what_is_on_its_way_is_not(site: Agent):
    site.out.write_bytes(b"abcdef")
    site.asked(attempt=1, stdout=2)
    assert await site.round() == (2, b"cdef")
    site.asked(attempt=1, stdout=4)
    assert await site.round() == (6, b"")
    site.asked(attempt=1, stdout=4)
    assert await site.round() == (4, b"ef")


async def test_another_attempt_is_sent_from_its_beginning(site: Agent):
    site.out.write_bytes(b"abcdef")
    site.asked(attempt=1, stdout=6)
    assert await site.round() == (6, b"")
    site.attempt = 2
    assert await site.round() == (0, b"abcdef")
    site.asked(attempt=1, stdout=6)
    assert await site.round() == (0, b"abcdef")


async def test_a_huge_log_goes_in_pieces_and_waits_for_the_hub(
    site: Agent, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent, "_WINDOW", 60_000)
    site.out.write_bytes(_LONG)
    site.asked()
    assert await site.round() == (0, _LONG[:32768])
    assert await site.round() == (32768, _LONG[32768:65536])
    assert await site.round() is None
    site.asked(attempt=1, stdout=40_000)
    assert await site.round() == (65536, _LONG[65536:])


async def test_what_is_beyond_the_bound_is_not_sent_again_and_again(
    site: Agent, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(agent, "MOST_FOLLOWED", 32768)
    site.out.write_bytes(_LONG)
    site.asked()
    assert await site.round() == (0, _LONG[:32768])
    for _ in range(2):
        site.asked(attempt=1, stdout=32768)
        assert await site.round() == (32768, b"")


async def test_a_link_that_a_job_left_for_its_log_is_not_read(site: Agent, tmp_path: Path):
    (tmp_path / "secret").write_text("secret")
    site.out.symlink_to(tmp_path / "secret")
    site.asked()
    assert await site.round() == (0, b"")


async def test_of_very_many_jobs_those_asked_for_last_are_sent(site: Agent):
    for number in range(agent._MOST_JOBS + 50):
        site.logs.follow({number: FollowedJob(key="k")}, 15.0)
    assert min(site.logs._followed) == 50
