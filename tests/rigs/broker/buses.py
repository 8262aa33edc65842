"""Every bus that keeps the promises of `pilotage.bus.port`; another one is one more entry here."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

import pytest

from pilotage.bus.amqp.bus import AmqpBus
from pilotage.bus.amqp.model import Broker
from pilotage.testing.bus import MemoryBus
from testbed.rabbit import Rabbit
from tests.rigs.broker.hub_link import Known, dialled, serving


@asynccontextmanager
async def memory(_: pytest.FixtureRequest) -> AsyncIterator[Known]:
    yield MemoryBus().known_as


@asynccontextmanager
async def amqp(request: pytest.FixtureRequest) -> AsyncIterator[Known]:
    rabbit: Rabbit = request.getfixturevalue("rabbit")
    exchange = f"promises-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        made = {
            name: await stack.enter_async_context(AmqpBus(known_to(rabbit, name, exchange)))
            for name in rabbit.papers
        }
        yield made.__getitem__


def known_to(rabbit: Rabbit, name: str, exchange: str) -> Broker:
    """Return the broker as a user of it needs to know it."""
    papers = rabbit.papers[name]
    return Broker(
        url=rabbit.url, ca=str(rabbit.authority.certificate), certificate=str(papers.certificate),
        key=str(papers.key), user=name, exchange=exchange, dead=f"{exchange}.dead",
    )  # fmt: skip


@asynccontextmanager
async def link(_: pytest.FixtureRequest) -> AsyncIterator[Known]:
    async with serving(MemoryBus().known_as) as port, AsyncExitStack() as stack:
        made = {
            name: await stack.enter_async_context(dialled(port, name))
            for name in ("alice", "bob", "site")
        }
        yield made.__getitem__


BUSES: dict[str, Callable[[pytest.FixtureRequest], AbstractAsyncContextManager[Known]]] = {
    "memory": memory,
    "amqp": amqp,
    "link": link,
}
