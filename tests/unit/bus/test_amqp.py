"""The connection to a broker, as far as no broker is needed."""

from __future__ import annotations

import asyncio
import gc
import random
import warnings
from typing import Never

import anyio
import pytest

from pilotage.bus.amqp import link
from pilotage.bus.amqp.link import raise_silence_as_loss
from pilotage.bus.amqp.model import Broker
from testbed.ports import free_port


async def _given_up() -> None:
    """Wait for what somebody else gives up, as the library does with a broker that is silent."""
    future = asyncio.get_running_loop().create_future()
    future.set_exception(asyncio.CancelledError())
    await future


def test_a_cancellation_that_nobody_asked_for_is_a_connection_that_was_lost():
    async def run() -> None:
        with pytest.raises(ConnectionError, match="silent"), raise_silence_as_loss():
            await _given_up()

    anyio.run(run)


def test_one_that_was_asked_for_is_obeyed():
    async def run() -> None:
        with anyio.move_on_after(0.01) as scope, raise_silence_as_loss():
            await anyio.sleep_forever()
        assert scope.cancelled_caught

    anyio.run(run)


class Least(random.Random):
    """Dice that shorten nothing."""

    def random(self) -> float:
        return 0.0


def test_pauses_between_attempts_to_connect_grow_to_what_was_set(monkeypatch: pytest.MonkeyPatch):
    pauses: list[float] = []
    enough = anyio.Event()

    def refuse(*_: object) -> Never:
        raise ConnectionRefusedError("refused")

    real = anyio.move_on_after

    def noted(seconds: float, **more: bool) -> anyio.CancelScope:
        pauses.append(seconds)
        if len(pauses) == 6:
            enough.set()
        return real(0, **more)

    monkeypatch.setattr(link, "tls_context", refuse)
    monkeypatch.setattr(anyio, "move_on_after", noted)

    async def run() -> None:
        one = link.BrokerLink(Broker(url="amqp://127.0.0.1:1/", retry=5.0), Least())
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(one.keep)
            with anyio.fail_after(60):
                await enough.wait()
            tasks.cancel_scope.cancel()
        assert one.trouble == "refused"

    anyio.run(run)
    assert pauses[:6] == [1.0, 2.0, 4.0, 5.0, 5.0, 5.0]


def test_a_try_to_connect_that_failed_leaves_nothing_to_who_collects_garbage():
    """That may be any thread, and only the one that has the loop could still close it."""

    async def fail() -> None:
        with pytest.raises(link.TROUBLES) as caught:
            await link.connect(f"amqp://127.0.0.1:{free_port()}/", None, 10.0)
        # Frames that hold each other are left to the collector.
        caught.value.args = (caught.value,)

    async def run() -> list[str]:
        gc.disable()
        try:
            await fail()
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                await asyncio.to_thread(gc.collect)
        finally:
            gc.enable()
        return [str(one.message) for one in told]

    assert asyncio.run(run()) == []
