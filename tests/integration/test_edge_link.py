"""The carrier between an agent and a hub's port: what is confirmed when, and who is refused."""

from __future__ import annotations

import asyncio
import functools
import stat
import time
from collections.abc import AsyncIterator, Sized
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from pilotage.base import errors
from pilotage.bus.port import Message
from pilotage.edge.enrolment import AgentEnrolment
from pilotage.edge.port import keys, model
from pilotage.edge.port.bus import HubBus, LinkTiming
from pilotage.edge.port.keys import AgentKeys, Proof
from pilotage.edge.port.sites import AgentLines
from pilotage.hub.connection import PortConnection
from pilotage.link import connect
from pilotage.node.dial import Route
from pilotage.pilot import messages as wire
from pilotage.project import tokens
from pilotage.project.tokens import TokenScope
from tests.rigs.broker.hub_link import QUICK, dialled, serving
from tests.rigs.node.port_links import Caller, backroom

PATIENCE = 30.0
QUIET = 0.05


@asynccontextmanager
async def joined(lines: AgentLines, site: str = "kit") -> AsyncIterator[tuple[HubBus, int]]:
    """Have the agent of a site connected; its bus and the hub's port are returned."""
    async with serving(lines.open) as port, dialled(port, site) as bus:
        with anyio.fail_after(PATIENCE):
            await bus.line()
        yield bus, port


async def first(messages: AsyncIterator[Message]) -> Message:
    with anyio.fail_after(PATIENCE):
        return await anext(messages)


async def test_what_the_hub_sends_is_confirmed_when_the_agent_has_it_on_disk():
    lines = AgentLines()
    async with joined(lines) as (bus, _), bus.subscribe("job.kit") as messages:
        sent = asyncio.create_task(lines.publish("job.kit", b"1", "k"))
        message = await first(messages)
        assert (message.topic, message.body, message.key) == ("job.kit", b"1", "k")
        await anyio.sleep(QUIET)
        assert not sent.done()
        await bus.ack(message)
        with anyio.fail_after(PATIENCE):
            await sent


async def test_the_hub_keeps_nothing_of_what_was_confirmed():
    lines, many = AgentLines(), 2000
    async with joined(lines) as (bus, _), bus.subscribe("job.kit") as messages:
        for number in range(many):
            sent = asyncio.create_task(lines.publish("job.kit", str(number).encode()))
            await bus.ack(await first(messages))
            await sent
        (pump,) = [one.get_coro() for one in asyncio.all_tasks() if "_pump" in repr(one.get_coro())]
        frame = pump.cr_frame  # type: ignore[union-attr]
        served = frame.f_locals["self"]
        kept = {**vars(served), **frame.f_locals}
        sizes = {name: len(one) for name, one in kept.items() if isinstance(one, Sized)}
        assert {name: size for name, size in sizes.items() if size >= many / 2} == {}


async def test_what_goes_back_and_what_is_cut_is_not_confirmed():
    lines = AgentLines()
    async with joined(lines) as (bus, _):
        async with bus.subscribe("job.kit") as messages:
            sent = asyncio.create_task(lines.publish("job.kit", b"1"))
            await bus.ack(await first(messages), done=False)
            with pytest.raises(errors.Unavailable):
                await sent
            sent = asyncio.create_task(lines.publish("job.kit", b"2"))
            assert (await first(messages)).body == b"2"
            line = await bus.line()
            line.cut("for a test")
            with pytest.raises(errors.Unavailable):
                await sent
            # The next connection hears what comes by it.
            await until_heard(lines, "job.kit")
        with pytest.raises(errors.Unheard):
            await lines.publish("job.kit", b"4")
    with pytest.raises(errors.Unheard):
        await lines.publish("job.kit", b"5")


async def until_heard(lines: AgentLines, topic: str) -> None:
    """Wait until an agent listens to a topic."""
    with anyio.fail_after(PATIENCE):
        while True:
            sent = asyncio.create_task(lines.publish(topic, b"3"))
            await anyio.sleep(QUIET)
            if not sent.done():
                sent.cancel()
                return
            assert isinstance(sent.exception(), errors.Unheard)


async def test_what_the_agent_says_is_confirmed_when_the_hub_has_it_on_disk():
    lines = AgentLines()
    async with joined(lines) as (bus, _):
        with pytest.raises(errors.Unavailable, match="does not listen"):
            await bus.publish("status.kit", b"0")
        async with lines.subscribe("status.**") as messages:
            sent = asyncio.create_task(bus.publish("status.kit", b"1", "k"))
            message = await first(messages)
            assert (message.body, message.key, message.user) == (b"1", "k", "kit")
            await anyio.sleep(QUIET)
            assert not sent.done()
            await lines.ack(message)
            with anyio.fail_after(PATIENCE):
                await sent
            sent = asyncio.create_task(bus.publish("status.kit", b"2"))
            await first(messages)
        with pytest.raises(errors.Unavailable):
            await sent


async def test_a_request_of_the_hub_is_answered_by_the_agent():
    lines = AgentLines()
    async with joined(lines) as (bus, _), bus.subscribe("control.kit") as messages:
        asked = asyncio.create_task(lines.request("control.kit", b"?", PATIENCE))
        message = await first(messages)
        # As controls are: what they changed is on disk before anybody hears of it.
        await bus.ack(message)
        await message.reply(b"!")
        assert await asked == b"!"
        with pytest.raises(errors.TimedOut):
            await lines.request("control.kit", b"?", QUIET)


@pytest.mark.parametrize("pattern", ["job.other", "control.*", "**", "status.kit", "job.kit.x"])
async def test_an_agent_hears_what_is_for_its_site_alone(pattern: str):
    lines = AgentLines()
    async with joined(lines) as (bus, _):
        line = await bus.line()
        with pytest.raises(errors.Denied, match="the site kit only"):
            await line.ask("subscribe", id=1, pattern=pattern)
        # The connection stays, for all else that goes over it.
        with pytest.raises(errors.Denied, match="the site kit only"):
            await line.ask("subscribe", id=1, pattern=pattern)
        assert not line.over


async def test_an_agent_speaks_for_its_site_alone():
    lines = AgentLines()
    async with joined(lines) as (bus, _), lines.subscribe("**") as messages:
        with pytest.raises(errors.Denied, match="the site kit only"):
            await bus.publish("heartbeat.other", b"{}")
        sent = asyncio.create_task(bus.publish("status.other", b"{}"))
        # Whose it is says the token: whoever reads it sees that.
        assert (await first(messages)).user == "kit"
        sent.cancel()


async def test_the_newest_connection_of_a_site_is_the_one_that_counts():
    lines = AgentLines()
    async with joined(lines) as (bus, port):
        old = lines.sites["kit"]
        async with dialled(port, "kit") as other, other.subscribe("job.kit") as messages:
            await other.line()
            assert old.over.is_set()
            sent = asyncio.create_task(lines.publish("job.kit", b"1"))
            await other.ack(await first(messages))
            await sent
        assert bus.now is not None


async def test_no_more_is_under_way_than_the_agent_asked_for():
    lines = AgentLines()
    async with joined(lines) as (bus, _), bus.subscribe("job.kit", ahead=2) as messages:
        sent = [asyncio.create_task(lines.publish("job.kit", b"%d" % one)) for one in range(4)]
        taken = [await first(messages) for _ in range(2)]
        with anyio.move_on_after(QUIET):
            await anext(messages)
            raise AssertionError("one too many")
        await bus.ack(*taken)
        rest = [await first(messages) for _ in range(2)]
        assert [one.body for one in (*taken, *rest)] == [b"0", b"1", b"2", b"3"]
        await bus.ack(*rest)
        await asyncio.gather(*sent)


# -- who is refused ------------------------------------------------------------------------------


async def raw(port: int, site: str = "kit", beat: float = 15.0) -> tuple[Any, Any]:
    """Connect as an agent does, and go on by hand."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hello = {
        "op": "agent", "n": 1, "versions": (1, 1), "site": site, "token": "", "key": "",
        "beat": beat,
    }  # fmt: skip
    writer.write(b"GET /link HTTP/1.1\r\n\r\n" + wire.frame(msgspec.json.encode(hello)))
    await reader.readuntil(b"\r\n\r\n")
    await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    return reader, writer


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",
        (model.MOST + 1).to_bytes(4, "big"),
        wire.frame(b"{"),
        wire.frame(b"[]"),
        wire.frame(b'{"op": "nosuch"}'),
        wire.frame(b'{"op": "publish", "topic": "t"}'),
        wire.frame(b'{"op": "publish", "topic": "t", "body": 7}'),
        wire.frame(b'{"op": "ping", "more": 1}'),
        wire.frame(b'{"op": "ack", "tags": ["x"]}'),
        wire.frame(b'{"op": "hello"}'),
        wire.frame(b"\xff\xfe"),
        wire.frame(b"[" * 100_000),
        b"".join(
            wire.frame(b'{"op": "subscribe", "id": 1, "pattern": "job.kit"}') for _ in range(2)
        ),
    ],
)  # fmt: skip
async def test_what_is_no_frame_of_an_agent_ends_the_connection_alone(said: bytes):
    lines = AgentLines()
    async with joined(lines, "other") as (bus, port):
        reader, writer = await raw(port)
        writer.write(said)
        with anyio.fail_after(PATIENCE):
            answer = await reader.read()
        assert b'"error"' in answer
        writer.close()
        # Others are not touched by it.
        async with bus.subscribe("job.other") as messages:
            sent = asyncio.create_task(lines.publish("job.other", b"1"))
            await bus.ack(await first(messages))
            await sent


async def test_deliveries_that_nobody_has_are_acknowledged_in_vain():
    lines = AgentLines()
    async with serving(lines.open) as port:
        reader, writer = await raw(port)
        writer.write(wire.frame(b'{"op": "ack", "tags": [1, 9, 99999999999]}'))
        writer.write(wire.frame(b'{"op": "reply", "tag": 9, "body": ""}'))
        writer.write(wire.frame(b'{"op": "ping", "n": 5}'))
        with anyio.fail_after(PATIENCE):
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert msgspec.json.decode(await reader.readexactly(size)) == {"n": 5, "p": 0}
        writer.close()


async def test_an_agent_that_gives_no_sign_of_life_is_cut_off():
    lines = AgentLines()
    async with serving(lines.open) as port:
        reader, writer = await raw(port, beat=0.0)
        with anyio.fail_after(PATIENCE):
            assert await reader.read() == b""
        writer.close()


async def test_an_agent_makes_a_connection_anew_on_which_the_hub_is_silent():
    came = []

    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(wire.UPGRADED)
        size = int.from_bytes(await reader.readexactly(4), "big")
        writer.write(wire.answer(wire.read(await reader.readexactly(size)), {}))

    server = await asyncio.start_server(deaf, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with dialled(port, "kit", LinkTiming(beat=0.05, retry=0.1)):
        with anyio.fail_after(PATIENCE):
            while len(came) < 3:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(QUIET)
    for writer in came:
        writer.close()
    server.close()


@pytest.mark.parametrize(
    "theirs, ours, agreed",
    [
        ((1, 1), (1, 1), 1), ((3, 4), (4, 5), 4), ((4, 5), (3, 4), 4), ((4, 5), (4, 5), 5),
        ((3, 4), (5, 6), 0), ((6, 7), (4, 5), 0),
    ],
)  # fmt: skip
def test_versions_that_follow_each_other_understand_each_other(
    theirs: tuple[int, int], ours: tuple[int, int], agreed: int
):
    if agreed:
        assert model.agree(theirs, ours) == agreed
        return
    older = "the agent" if theirs[1] < ours[0] else "the hub"
    with pytest.raises(errors.UsageError, match=f"{older} must be upgraded") as caught:
        model.agree(theirs, ours)
    assert caught.value.hint.endswith(older)


@asynccontextmanager
async def met(
    folder: Path, agent: model.Versions, ours: model.Versions
) -> AsyncIterator[tuple[HubBus, AgentLines]]:
    """Have an agent dial a hub that speaks other versions, with a token, over a real port."""
    async with backroom(folder) as hub:
        hub.agents = AgentEnrolment(hub.writer, hub.gate, hub.lines, time.time, ours)
        (folder / "token").touch(0o600)
        (folder / "token").write_text(hub.token(TokenScope.AGENT, site="kit"))
        server = await asyncio.get_running_loop().create_server(
            lambda: PortConnection(hub.desk, hub.clients, hub.agents), "127.0.0.1", 0
        )
        port = server.sockets[0].getsockname()[1]
        known = AgentKeys(folder, str(folder / "token"), time.time)

        def way() -> Route:
            return connect.route(f"http://127.0.0.1:{port}")

        dial = functools.partial(keys.dial, way, "kit", known, 15.0, versions=agent)
        try:
            async with HubBus(dial, QUICK) as bus:
                yield bus, hub.lines
        finally:
            server.close()


@pytest.mark.parametrize(
    "agent, ours, agreed",
    [((1, 1), (1, 2), 1), ((1, 2), (1, 1), 1), ((1, 2), (2, 3), 2), ((2, 3), (1, 2), 2)],
)
async def test_a_hub_and_an_agent_one_version_apart_work_together(
    tmp_path: Path, agent: model.Versions, ours: model.Versions, agreed: int
):
    async with met(tmp_path, agent, ours) as (bus, lines):
        with anyio.fail_after(PATIENCE):
            assert (await bus.line()).terms["version"] == agreed
        async with bus.subscribe("job.kit") as jobs, lines.subscribe("status.**") as words:
            sent = asyncio.create_task(lines.publish("job.kit", b"job"))
            await bus.ack(await first(jobs))
            told = asyncio.create_task(bus.publish("status.kit", b"done"))
            await lines.ack(await first(words))
            with anyio.fail_after(PATIENCE):
                await asyncio.gather(sent, told)


@pytest.mark.parametrize("agent, ours, older", [((1, 2), (3, 4), "agent"), ((3, 4), (1, 2), "hub")])
async def test_both_sides_say_who_must_be_upgraded_if_they_have_no_version_in_common(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, agent: model.Versions,
    ours: model.Versions, older: str,
):  # fmt: skip
    said = f"the {older} must be upgraded: the agent speaks versions {agent[0]} to {agent[1]}"
    async with met(tmp_path, agent, ours) as (bus, lines):
        with anyio.fail_after(PATIENCE):
            while said not in bus.trouble:  # noqa: ASYNC110 - nobody tells
                await anyio.sleep(QUIET)
        assert lines.sites == {}
    loggers = {one.name for one in caplog.records if said in one.getMessage()}
    assert loggers == {"pilotage.bus", "pilotage.link"}


async def test_the_hub_lets_nobody_in_who_proves_no_site(tmp_path: Path):
    key = f"pil_g_{'k' * 43}"
    async with backroom(tmp_path) as hub:
        token = hub.token(TokenScope.AGENT, site="kit")
        good = {"versions": (1, 1), "site": "kit", "token": token, "key": key}
        for code, change in (
            ("E200", {"versions": (0, 0)}), ("E200", {"versions": (2, 3)}), ("E200", {"key": "x"}),
            ("E500", {"site": "other"}), ("E500", {"token": "pil_g_" + "x" * 43}),
            ("E500", {"token": hub.token(TokenScope.ADMIN)}),
            ("E500", {"token": hub.token(TokenScope.SITE)}),
        ):  # fmt: skip
            caller = Caller(hub)
            assert await caller.refusal("agent", **{**good, **change}) == code, change
            assert caller.wire.closed
        # A connection on which somebody else speaks is for nobody's site.
        caller = Caller(hub)
        await caller.ask("login", protocol=1, token=hub.token(TokenScope.USER))
        assert await caller.refusal("agent", **good) == "E200"
        assert hub.lines.sites == {}
        # None of them has used the token up.
        with hub.db.transaction():
            assert tokens.look(hub.db, token, 0.0).site == "kit"


# -- keys ----------------------------------------------------------------------------------------


class Agent:
    """The keys of an agent, and its clock."""

    def __init__(self, folder: Path, token: str = "") -> None:
        self.now = 1000.0
        self.folder = folder
        self.keys = AgentKeys(folder, str(folder / "token"), lambda: self.now)
        if token:
            (folder / "token").touch(0o600)
            (folder / "token").write_text(token + "\n")

    @property
    def proof(self) -> Proof:
        return msgspec.json.decode((self.folder / keys.FILE).read_bytes(), type=Proof)


def test_a_token_is_followed_by_a_key_that_was_on_disk_before(tmp_path: Path):
    one = Agent(tmp_path, "pil_g_token")
    ((proved, key),) = one.keys.tries()
    assert proved == "pil_g_token"
    assert one.proof.next == key
    # Killed here: the hub may know the key, or not.
    assert one.keys.tries() == [(key, key), ("pil_g_token", key)]
    one.keys.settle("pil_g_token", key)
    assert (one.proof.key, one.proof.next) == (key, "")
    assert one.keys.tries() == [(key, key)]
    assert stat.S_IMODE((tmp_path / keys.FILE).stat().st_mode) == 0o600


def test_a_key_is_renewed_each_day_and_the_old_one_stays_until_the_hub_has_answered(tmp_path: Path):
    one = Agent(tmp_path, "t")
    ((_, first_key),) = one.keys.tries()
    one.keys.settle("t", first_key)
    one.now += keys.RENEW_S
    ((proved, key),) = one.keys.tries()
    assert (proved, key != first_key) == (first_key, True)
    assert one.keys.tries() == [(key, key), (first_key, key)]
    one.keys.settle(first_key, key)
    assert one.keys.tries() == [(key, key)]


def test_another_token_is_tried_after_the_key(tmp_path: Path):
    one = Agent(tmp_path, "t")
    ((_, key),) = one.keys.tries()
    one.keys.settle("t", key)
    (tmp_path / "token").write_text("u")
    found = one.keys.tries()
    assert [proved for proved, _ in found] == [key, "u"]
    assert {follows for _, follows in found} == {one.proof.next}


def test_a_token_that_others_may_read_is_refused_until_it_is_used_up(tmp_path: Path):
    one = Agent(tmp_path, "t")
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(errors.ConfigError, match="others may read the token") as caught:
        one.keys.tries()
    assert "chmod 600" in caught.value.hint
    (tmp_path / "token").chmod(0o600)
    ((_, key),) = one.keys.tries()
    one.keys.settle("t", key)
    (tmp_path / "token").chmod(0o644)
    assert one.keys.tries() == [(key, key)]


def test_an_agent_with_nothing_to_show_says_what_to_do(tmp_path: Path):
    assert Agent(tmp_path).keys.tries() == []


def test_a_damaged_file_of_keys_says_so(tmp_path: Path):
    (tmp_path / keys.FILE).write_text("{")
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        Agent(tmp_path).keys.tries()
