"""The connection to a broker, as far as no broker is needed."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from pilotage.bus.amqp.link import asked


async def _given_up() -> None:
    """Wait for what somebody else gives up, as the library does with a broker that is silent."""
    future = asyncio.get_running_loop().create_future()
    future.set_exception(asyncio.CancelledError())
    await future


def test_a_cancellation_that_nobody_asked_for_is_a_connection_that_was_lost():
    async def run() -> None:
        with pytest.raises(ConnectionError, match="silent"), asked():
            await _given_up()

    anyio.run(run)


def test_one_that_was_asked_for_is_obeyed():
    async def run() -> None:
        with anyio.move_on_after(0.01) as scope, asked():
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    anyio.run(run)
