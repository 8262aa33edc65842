"""Sites that say of each job at once that it is done, so that what is left is the hub's own time.

    python -m bench.flows.scripted URL CA CERTIFICATE KEY EXCHANGE FILE SITE...

Writes a line for each job to the file: its site, its key, when it came and when it was answered.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

import aio_pika
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage

from tests.rigs.broker.edge_agent import AGENT

_AHEAD = 1000
READY = "ready"
_BEAT_S = 2.0
_BEGAN = time.time()


async def serve(
    url: str, context: ssl.SSLContext, name: str, sites: Sequence[str], told: TextIO
) -> None:
    """Answer jobs until cancelled."""
    connection = await aio_pika.connect(f"{url}?auth=external", ssl_context=context)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=_AHEAD)
        kind = aio_pika.ExchangeType.TOPIC
        exchange = await channel.declare_exchange(name, kind, durable=True)
        for site in sites:
            queue = await channel.declare_queue(f"{name}:job.{site}", durable=True)
            await queue.bind(exchange, f"job.{site}")
            await queue.consume(_Answer(exchange, site, told))
        await _beat(exchange, sites)
        print(READY, flush=True)
        while True:
            await asyncio.sleep(_BEAT_S)
            await _beat(exchange, sites)


async def _beat(exchange: AbstractExchange, sites: Sequence[str]) -> None:
    """Say that all sites are there."""
    for site in sites:
        said = {
            "v": 1, "kind": "heartbeat", "site": site, "time": time.time(), "version": "1.0",
            "epoch": 1, "since": _BEGAN, "disk_free": 10**12, "applications": ["nothing"],
        }  # fmt: skip
        body = aio_pika.Message(json.dumps(said).encode(), user_id=AGENT)
        await exchange.publish(body, f"heartbeat.{site}", mandatory=False)


class _Answer:
    """Says of each job of a site that it is done."""

    def __init__(self, exchange: AbstractExchange, site: str, told: TextIO) -> None:
        self._exchange, self._site, self._told = exchange, site, told
        self._jobs = 0

    async def __call__(self, message: AbstractIncomingMessage) -> None:
        came = time.time()
        key = json.loads(message.body)["key"]
        self._jobs += 1
        said = {
            "v": 1, "kind": "status", "site": self._site, "job": self._jobs, "key": key,
            "attempt": 1, "seq": 1, "state": "done", "time": time.time(),
        }  # fmt: skip
        body = aio_pika.Message(
            json.dumps(said).encode(), user_id=AGENT,
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )  # fmt: skip
        print(self._site, key, came, time.time(), file=self._told, flush=True)
        await self._exchange.publish(body, f"status.{self._site}")
        await message.ack()


def main() -> None:
    """Do what the command line asks for."""
    url, authority, certificate, key, exchange, file, *sites = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    with Path(file).open("w", encoding="utf-8") as told:
        asyncio.run(serve(url, context, exchange, sites, told))


if __name__ == "__main__":
    main()
