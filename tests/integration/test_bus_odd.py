"""Whatever somebody writes beside a message, those after it are heard."""

from __future__ import annotations

import secrets
from typing import Any

import anyio
import pamqp.encode
import pytest
from pamqp.commands import Basic

from pilotage.bus.amqp import link
from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.port import Message
from testbed.rabbit import Rabbit
from tests.rigs.broker.buses import known_to

BAD = b"\xff\xfe"
#: Microseconds, as some write them: a year that no calendar has.
FAR = 1_700_000_000_000_000
#: A table with one name that is no text.
TABLE = b"\x00\x00\x00\x08\x02" + BAD + b"I\x00\x00\x00\x01"


def odd(kind: str, raw: bytes) -> Any:
    """Return how to write bytes where the library would write something that can be."""
    usual = pamqp.encode.METHODS[kind]
    return lambda value: raw if value == "odd" else usual(value)


@pytest.mark.parametrize(
    "name, kind, raw",
    [
        ("message_id", "shortstr", b"\x02" + BAD),
        ("reply_to", "shortstr", b"\x02" + BAD),
        ("content_type", "shortstr", b"\x02" + BAD),
        ("timestamp", "timestamp", FAR.to_bytes(8, "big")),
        ("headers", "table", TABLE),
    ],
)
async def test_odd_properties_cut_nobody_off(
    rabbit: Rabbit, monkeypatch: pytest.MonkeyPatch, name: str, kind: str, raw: bytes
):
    exchange = f"odd-{secrets.token_hex(4)}"
    mine, theirs = known_to(rabbit, "site", exchange), known_to(rabbit, "alice", exchange)
    monkeypatch.setitem(pamqp.encode.METHODS, kind, odd(kind, raw))
    heard: list[Message] = []
    async with (
        AmqpBus(mine) as bus,
        AmqpBus(theirs) as sender,
        bus.subscribe("job.mira") as incoming,
    ):
        line = await sender._link.line()
        below = await line.channel.get_underlay_channel()
        properties = Basic.Properties(user_id="alice", delivery_mode=2)
        setattr(properties, name, "odd")
        await below.basic_publish(
            b"odd", exchange=exchange, routing_key="job.mira", properties=properties
        )
        await sender.publish("job.mira", b"usual", "k", heard=True)
        with anyio.fail_after(30):
            async for message in incoming:
                heard.append(message)
                await bus.ack(message)
                if len(heard) == 2:
                    break
    assert [(one.body, one.user) for one in heard] == [(b"odd", "alice"), (b"usual", "alice")]
    assert heard[1].key == "k"


def test_what_can_be_is_read_as_it_is():
    assert link.text(b"\x02okmore") == (3, "ok")
    assert link.moment((1_700_000_000).to_bytes(8, "big"))[1].year == 2023
    assert link.table(b"\x00\x00\x00\x08\x02okI\x00\x00\x00\x01") == (12, {"ok": 1})
    assert link.table(TABLE + b"more") == (12, {})
