"""What every bus promises; `beds.BUSES` has them all."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import anyio
import pytest

from pilotage.base import errors
from pilotage.bus.port import Bus, Message
from tests.rigs.broker.buses import BUSES
from tests.rigs.broker.hub_link import Known

#: Longer than any delivery, short enough to wait for nothing.
QUIET = 0.05


@pytest.fixture(params=BUSES)
async def known(request: pytest.FixtureRequest) -> AsyncIterator[Known]:
    async with BUSES[request.param](request) as made:
        yield made


@pytest.fixture
def bus(known: Known) -> Bus:
    return known("alice")


async def first(messages: AsyncIterator[Message]) -> Message:
    with anyio.fail_after(30):
        return await anext(messages)


async def is_quiet(messages: AsyncIterator[Message]) -> bool:
    with anyio.move_on_after(QUIET):
        await anext(messages)
        return False
    return True


async def test_what_is_published_arrives_in_order(bus: Bus):
    async with bus.subscribe("job.*.ended") as messages:
        for number in range(5):
            await bus.publish("job.7.ended", b"%d" % number, key=f"k{number}")
        await bus.publish("job.7.begun", b"no")
        found = [await first(messages) for _ in range(5)]
        assert [(one.topic, one.body, one.key) for one in found] == [
            ("job.7.ended", b"%d" % number, f"k{number}") for number in range(5)
        ]
        assert len({one.tag for one in found}) == 5
        assert await is_quiet(messages)


async def test_each_pattern_gets_a_message_and_its_subscribers_share_it(bus: Bus):
    async with (
        bus.subscribe("a.**") as one,
        bus.subscribe("a.**") as two,
        bus.subscribe("a.b") as other,
    ):
        await bus.publish("a.b", b"1")
        await bus.publish("a.b", b"2")
        assert {(await first(one)).body, (await first(two)).body} == {b"1", b"2"}
        assert [(await first(other)).body for _ in range(2)] == [b"1", b"2"]
        assert await is_quiet(one)
        assert await is_quiet(two)


async def test_what_was_not_acknowledged_comes_again_in_order(bus: Bus):
    async with bus.subscribe("t") as messages:
        for body in (b"1", b"2", b"3", b"4"):
            await bus.publish("t", body, key="k" + body.decode())
        taken = [await first(messages) for _ in range(3)]
        await bus.ack(taken[1])
        await bus.ack(taken[1])
    async with bus.subscribe("t") as messages:
        found = [await first(messages) for _ in range(3)]
        assert [one.body for one in found] == [b"1", b"3", b"4"]
        assert [one.key for one in found] == ["k1", "k3", "k4"]
        # A delivery that is over cannot be acknowledged any more.
        await bus.ack(taken[0])
    async with bus.subscribe("t") as messages:
        for body in (b"1", b"3", b"4"):
            message = await first(messages)
            assert message.body == body
            await bus.ack(message)
    async with bus.subscribe("t") as messages:
        assert await is_quiet(messages)


async def test_many_are_acknowledged_at_once_and_none_between_them(bus: Bus):
    async with bus.subscribe("t") as messages:
        for at in range(8):
            await bus.publish("t", str(at).encode())
        taken = [await first(messages) for _ in range(6)]
        await bus.ack(taken[3], taken[1])
        await bus.ack(taken[0])
        await bus.ack(taken[4])
        await bus.ack(taken[1], taken[3], taken[4])
    async with bus.subscribe("t") as messages:
        found = [await first(messages) for _ in range(4)]
        assert [one.body for one in found] == [b"2", b"5", b"6", b"7"]
        await bus.ack(*found)
    async with bus.subscribe("t") as messages:
        assert await is_quiet(messages)


async def test_many_that_go_back_all_come_again(bus: Bus):
    async with bus.subscribe("t") as messages:
        for body in (b"1", b"2", b"3"):
            await bus.publish("t", body)
        taken = [await first(messages) for _ in range(3)]
        await bus.ack(*taken, done=False)
        found = [await first(messages) for _ in range(3)]
        assert sorted(one.body for one in found) == [b"1", b"2", b"3"]
        await bus.ack(*found)


async def test_a_subscriber_that_fails_leaves_its_message_to_another(bus: Bus):
    async with AsyncExitStack() as stack:
        others = []

        async def fail() -> None:
            async with bus.subscribe("t") as messages:
                await bus.publish("t", b"x")
                await first(messages)
                others.append(await stack.enter_async_context(bus.subscribe("t")))
                raise ValueError

        with pytest.raises(ValueError):  # noqa: PT011 - our own
            await fail()
        assert (await first(others[0])).body == b"x"


async def test_messages_wait_while_their_pattern_has_no_subscriber(bus: Bus):
    async with bus.subscribe("t"):
        pass
    await bus.publish("t", b"x")
    async with bus.subscribe("t") as messages:
        assert (await first(messages)).body == b"x"


async def test_a_message_that_nobody_ever_asked_for_is_gone(bus: Bus):
    await bus.publish("t", b"x")
    async with bus.subscribe("t") as messages:
        assert await is_quiet(messages)


async def test_giving_up_to_wait_loses_nothing(bus: Bus):
    async with bus.subscribe("t") as messages:
        assert await is_quiet(messages)
        await bus.publish("t", b"x")
        assert (await first(messages)).body == b"x"


async def test_a_request_is_answered(bus: Bus):
    async def serve(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        async with bus.subscribe("sum.*") as messages:
            task_status.started()
            async for message in messages:
                await message.reply(message.topic.encode() + message.body)
                await message.reply(b"a second answer is not heard")
                await bus.ack(message)

    async with anyio.create_task_group() as group:
        await group.start(serve)
        answers: dict[str, bytes] = {}

        async def ask(topic: str) -> None:
            answers[topic] = await bus.request(topic, b"!", within=5)

        async with anyio.create_task_group() as asking:
            for topic in ("sum.a", "sum.b", "sum.c"):
                asking.start_soon(ask, topic)
        group.cancel_scope.cancel()
    assert answers == {topic: topic.encode() + b"!" for topic in ("sum.a", "sum.b", "sum.c")}


async def test_a_request_has_a_time_limit(bus: Bus):
    async with bus.subscribe("t") as messages:
        with pytest.raises(errors.TimedOut):
            await bus.request("t", b"", within=QUIET)
        # Too late: nobody hears it, and it hurts nobody.
        await (await first(messages)).reply(b"late")


async def test_a_request_that_nobody_can_hear_says_so(bus: Bus):
    with pytest.raises(errors.Unavailable):
        await bus.request("t", b"", within=5)


async def test_a_reply_to_no_request_is_not_heard(bus: Bus):
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"")
        await (await first(messages)).reply(b"hello?")


async def test_the_bus_says_who_sent_a_message(known: Known):
    async with known("site").subscribe("job.*") as messages:
        await known("alice").publish("job.a", b'{"user": "root"}')
        await known("bob").publish("job.b", b"")
        assert [(await first(messages)).user for _ in range(2)] == ["alice", "bob"]


async def test_a_message_that_comes_again_says_so(bus: Bus):
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"x")
        assert not (await first(messages)).again
    async with bus.subscribe("t") as messages:
        assert (await first(messages)).again


async def test_a_message_can_be_given_back(bus: Bus):
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"x", key="k")
        taken = await first(messages)
        await bus.ack(taken, done=False)
        found = await first(messages)
        assert (found.body, found.key, found.again) == (b"x", "k", True)
        assert found.tag != taken.tag
        await bus.ack(found)
    async with bus.subscribe("t") as messages:
        assert await is_quiet(messages)


async def test_no_more_than_asked_for_is_delivered_ahead(bus: Bus):
    async with bus.subscribe("t", ahead=2) as messages:
        for body in (b"1", b"2", b"3"):
            await bus.publish("t", body)
        taken = [await first(messages) for _ in range(2)]
        assert await is_quiet(messages)
        await bus.ack(taken[0])
        assert (await first(messages)).body == b"3"


async def test_a_message_that_must_be_heard_is_no_secret(bus: Bus):
    with pytest.raises(errors.Unavailable):
        await bus.publish("t", b"x", heard=True)
    async with bus.subscribe("t") as messages:
        await bus.publish("t", b"y", heard=True)
        assert (await first(messages)).body == b"y"
