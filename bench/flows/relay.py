"""What the machine allows: a status comes, one row is written, and the next job goes out.

    python -m bench.flows.relay URL CA CERTIFICATE KEY EXCHANGE FILE COUNT SITE...

Sends so many jobs to the sites in turn, each after the status of the one before it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from collections.abc import Sequence

import aio_pika
import apsw
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage

from tests.rigs.broker.edge_agent import ADMIN


async def pass_on(
    url: str, context: ssl.SSLContext, name: str, file: str, count: int, sites: Sequence[str]
) -> None:
    """Send jobs, one after the other."""
    db = apsw.Connection(file)
    db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB) STRICT")
    connection = await aio_pika.connect(f"{url}?auth=external", ssl_context=context)
    async with connection:
        # Who waits for the broker's word on each job would be slower than who does not.
        channel = await connection.channel(publisher_confirms=False)
        kind = aio_pika.ExchangeType.TOPIC
        exchange = await channel.declare_exchange(name, kind, durable=True)
        queue = await channel.declare_queue(f"{name}:relay", durable=True)
        await queue.bind(exchange, "status.*")
        here: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(here.put)
        for at in range(count):
            await _job(exchange, sites[at % len(sites)], at)
            status = await here.get()
            with db:
                db.execute("INSERT INTO message (body) VALUES (?)", (status.body,))
            await status.ack()
        await queue.unbind(exchange, "status.*")


async def _job(exchange: AbstractExchange, site: str, at: int) -> None:
    body = json.dumps({"v": 1, "kind": "job", "site": site, "key": f"relay.{at}"}).encode()
    mode = aio_pika.DeliveryMode.PERSISTENT
    message = aio_pika.Message(body, user_id=ADMIN, delivery_mode=mode)
    await exchange.publish(message, f"job.{site}")


def main() -> None:
    """Do what the command line asks for."""
    url, authority, certificate, key, exchange, file, count, *sites = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    asyncio.run(pass_on(url, context, exchange, file, int(count), sites))


if __name__ == "__main__":
    main()
