"""A tiny job by which a site shows that it takes, runs and ends jobs."""

from __future__ import annotations

import asyncio
import base64
import shlex
import time

from pilotage.base import errors, units
from pilotage.batch.connection import SiteConnection
from pilotage.batch.submission import new_key
from pilotage.batch.system.model import BatchError, BatchItem, BatchOrder, BatchSystem, Phase
from pilotage.cli.doctor import Check

_WALL_S = 120.0
_POLL_S = 2.0
#: How long a shared file system may take to show a file that another node wrote.
_LINGER_S = 60.0


async def try_job(remote: SiteConnection, batch: BatchSystem, patience: float) -> Check:
    """Have a job write a file in the folder of the site, and wait for it."""
    key = new_key()
    try:
        words = await _try(remote, batch, key, patience)
    except (BatchError, errors.PilotageError) as error:
        hint = getattr(error, "hint", "")
        return Check("job", "bad", f"{error}: {hint}" if hint else str(error))
    finally:
        await remote.call("drop", keys=[key])
    return Check("job", "ok", words)


async def _try(remote: SiteConnection, batch: BatchSystem, key: str, patience: float) -> str:
    folder = f"{remote.hello.root}/s/{key}"
    order = _order(remote, key, folder)
    await remote.call("prepare", key=key, order={"v": 1, "key": key, "items": []},
                      script=order.script)  # fmt: skip
    began = time.monotonic()
    number = batch.submitted(await remote.run(batch.submit(order), folder=folder))
    over: float | None = None
    item: BatchItem | None = None
    while time.monotonic() - began < patience:
        if node := await _written(remote, f"{folder}/ok"):
            taken = units.for_people(time.monotonic() - began)
            return f"{number or key} ran on {node} and was back after {taken}"
        item = next((one for one in await _list(remote, batch) if one.key == key), None)
        if item is None or item.phase is Phase.OVER:
            over = over or time.monotonic()
            if time.monotonic() - over > min(_LINGER_S, patience / 2):
                raise errors.Unavailable(_why(item, number, folder))
        await asyncio.sleep(_POLL_S)
    if item is not None:
        await remote.run(batch.cancel([item.id]))
        state = f"{item.phase}, {item.words}" if item.words else str(item.phase)
        message = f"{number or key} has not run within {units.for_people(patience)} ({state})"
        raise errors.TimedOut(message, hint="it was called off; `--patience` waits longer")
    raise errors.TimedOut(f"{number or key} is not in any listing")


def _order(remote: SiteConnection, key: str, folder: str) -> BatchOrder:
    given = remote.site.defaults
    place = shlex.quote(folder)
    script = f"#!/bin/sh\nhostname >{place}/ok.part && mv {place}/ok.part {place}/ok\n"
    return BatchOrder(
        key=key, script=script, folder=folder, queue=given.queue, account=given.account,
        qos=given.qos, constraint=given.constraint, reservation=given.reservation,
        time=min(_WALL_S, units.seconds(given.time)) if given.time else _WALL_S,
    )  # fmt: skip


async def _list(remote: SiteConnection, batch: BatchSystem) -> list[BatchItem]:
    return batch.listed(await remote.run(batch.listing(), ask=True))


async def _written(remote: SiteConnection, path: str) -> str:
    found = (await remote.call("read", paths=[path], most=256))["files"][path]
    return base64.b64decode(found["data"]).decode(errors="replace").strip() if found else ""


def _why(item: BatchItem | None, number: str, folder: str) -> str:
    if item is None:
        return f"{number} has ended and left nothing in {folder}: do worker nodes see it?"
    said = f"exit status {item.exit}" if item.exit is not None else item.words
    return f"{number} ended ({said}) and left nothing in {folder}: do worker nodes see it?"
