"""What the machine allows: messages from the broker into a table, with nothing else in between.

    python -m bench.edge.bare URL CA CERTIFICATE KEY QUEUE COUNT FILE

Prints how many messages a second were on disk and acknowledged.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
import time

import aio_pika
import apsw

_AHEAD = 500


async def take(url: str, context: ssl.SSLContext, name: str, count: int, file: str) -> float:
    """Take messages, write each down, and acknowledge them; return how many in a second."""
    db = apsw.Connection(file)
    db.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
    db.execute("CREATE TABLE message (id INTEGER PRIMARY KEY, body BLOB) STRICT")
    connection = await aio_pika.connect(url, ssl_context=context)
    async with connection:
        channel = await connection.channel(publisher_confirms=False)
        await channel.set_qos(prefetch_count=_AHEAD)
        queue = await channel.get_queue(name)
        here: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()
        began = time.monotonic()
        await queue.consume(here.put)
        done = 0
        while done < count:
            some = [await here.get()]
            while not here.empty():
                some.append(here.get_nowait())
            with db:
                for one in some:
                    db.execute("INSERT INTO message (body) VALUES (?)", (one.body,))
            for one in some:
                await one.ack()
            done += len(some)
        return done / (time.monotonic() - began)


def main() -> None:
    """Do what the command line asks for."""
    url, authority, certificate, key, queue, count, file = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    context.load_cert_chain(certificate, key)
    print(asyncio.run(take(f"{url}?auth=external", context, queue, int(count), file)))


if __name__ == "__main__":
    main()
