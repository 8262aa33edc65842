"""Commands for submissions at a site; each may be repeated."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio.to_thread

from pilotage.base import errors
from pilotage.batch.connection import SiteConnection
from pilotage.batch.submission import ArrayTask, Submission
from pilotage.batch.system import words
from pilotage.batch.system.model import (
    BatchError,
    BatchItem,
    BatchOrder,
    BatchSystem,
    Output,
    Windows,
)
from pilotage.batch.system.tools import Tools

_log = logging.getLogger("pilotage.batch")
_AGAIN_S = 2.0
#: How long a submit command and a listing may take, in seconds.
SUBMIT_S = 120.0
_LIST_S = 90.0
#: Timeout of questions about free nodes: jobs need not wait for that.
_LOOK_S = 20.0
#: History is read from this long before the submission on, in seconds.
_BEFORE_S = 3600.0
#: Bytes of evidence that are read at once, and those that are read of what a step said.
_MOST = 4 << 20
_SAID = 4096


class SiteCommands:
    """Calls of the login helper and of the batch systems of one site."""

    def __init__(self, remote: SiteConnection, adapter: Callable[[str], BatchSystem]) -> None:
        """Take how batch systems are found by name, once the site is connected."""
        self._remote = remote
        self._adapter = adapter

    # -- login helper: all of this may be done again and again -----------------------------------

    async def _call(self, op: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - as `SiteConnection.call` has it
        """Call the login helper for something that may be done twice."""
        try:
            return await self._remote.call(op, **values)
        except errors.Unsure as error:
            raise errors.Unavailable(error.message, hint=error.hint) from error

    async def prepare(self, one: Submission, items: list[dict[str, Any]]) -> None:
        """Put the orders at the site."""
        order = {"v": 1, "key": one.key, "root": one.root, "items": items}
        links = sorted({digest for item in items for digest in _needed(item)})
        found = await self._call(
            "prepare", key=one.key, order=order, links=links, script=one.order.script
        )
        if lack := found["missing"]:
            # They are brought again with the next try.
            raise BatchError(f"{len(lack)} inputs are not at the site any more")

    async def fence(self, one: Submission, places: Sequence[int]) -> set[int]:
        """Take the claims of tasks, so that those not begun never begin; return their numbers."""
        found = await self._call("fence", key=one.key, count=one.order.count, only=list(places))
        return set(found["free"])

    async def there(self, one: Submission) -> bool:
        """Return whether what was submitted is at this site at all, and not at another."""
        path = f"{one.root}/s/{one.key}/order.json"
        return (await self._call("stat", paths=[path]))["found"][path] is not None

    async def evidence(self, one: Submission, work: ArrayTask) -> dict[str, Any] | None:
        """Read the evidence of an end where it lies; news of it may not have come through."""
        told = f"{one.root}/news/{one.key}.{work.place}.ended"
        seen = f"{one.root}/s/{one.key}/{work.place}/run/exit.json"
        files = (await self._call("read", paths=[told, seen], most=_MOST))["files"]
        if (found := _read(await self._whole(told, files[told]))) is not None:
            return found
        # The starter's own report, if its parent is dead: the outputs were not checked.
        end = _read(await self._whole(seen, files[seen]))
        return None if end is None else {"end": end, "outputs": None}

    async def _whole(self, path: str, found: dict[str, Any] | None) -> bytes:
        """Read the rest of a file: half of evidence must not pass for none."""
        data = base64.b64decode(found["data"]) if found else b""
        while found and len(data) < found["size"]:
            (more,) = (await self._call("tails", files=[[path, len(data), _MOST]]))["tails"]
            if not more:
                raise errors.Unavailable(f"{path} cannot be read to its end")
            data += base64.b64decode(more)
        return data

    async def pulse(self, one: Submission, work: ArrayTask) -> int:
        """Read the last sign of life of something that has begun."""
        path = f"{one.root}/s/{one.key}/{work.place}.claim/by.json"
        found = (await self._call("stat", paths=[path]))["found"][path]
        return int(found["mtime_ns"]) if found else 0

    async def complaint(self, one: Submission) -> str:
        """Read the error message of a detached step, in one line."""
        path = f"{one.order.folder}/out.step"
        found = (await self._call("read", paths=[path], most=_SAID))["files"][path]
        return base64.b64decode(found["data"]).decode(errors="replace") if found else ""

    async def acknowledge(self, names: list[str]) -> None:
        """Acknowledge news, once there is a connection."""
        await self._surely("ack", names=names)

    async def drop(self, keys: list[str]) -> None:
        """Remove the folders of submissions that are over."""
        await self._surely("drop", keys=keys)

    async def _surely(self, op: str, **values: Any) -> None:  # noqa: ANN401 - as `SiteConnection.call` has it
        """Repeat a call until the connection lasts; ignore refusals."""
        while True:
            # News may come before the connection counts as made.
            await self._remote.ready()
            try:
                await self._call(op, **values)
            except errors.Unavailable:
                await asyncio.sleep(_AGAIN_S)
            except errors.PilotageError as error:
                _log.warning("site %s: %s", self._remote.name, error)
                return
            else:
                return

    async def folders(self) -> list[str]:
        """Name the submissions that have a folder at the site."""
        path = f"{self._remote.hello.root}/s"
        found = (await self._call("list", paths=[path]))["found"][path] or {}
        return [name for name in found.get("names", ()) if words.is_key(name)]

    # -- the batch system ------------------------------------------------------------------------

    async def submit(self, one: Submission) -> str:
        """Call the submit command once; return the id, if it prints one."""
        batch = self._adapter(one.batch)
        call = batch.submit(one.order)
        said = await self._remote.run(call, timeout=SUBMIT_S, folder=one.order.folder)
        # A detached command returns a process number, which is no job id.
        return "" if call.detach and not said.exit else batch.submitted(said)

    def shows(self, name: str) -> Windows | None:
        """Return how a batch system shows what is free; nothing if it does not."""
        batch = self._adapter(name)
        return batch.windows if isinstance(batch, Tools) else None

    async def see(self, batch: Windows) -> Any:  # noqa: ANN401 - what it is, only the batch system knows
        """Read the free nodes; concurrent callers share one answer."""
        calls = [self._remote.run(one, timeout=_LOOK_S, ask=True) for one in batch.looks]
        # The listing of a large cluster is long, and other work waits for this thread.
        return await anyio.to_thread.run_sync(batch.seen, await asyncio.gather(*calls))

    async def trial(self, batch: Windows, order: BatchOrder) -> float:
        """Ask when an order would start; nothing is submitted."""
        return batch.tried(await self._remote.run(batch.trial(order), timeout=_LOOK_S))

    def refusal(self, one: Submission, told: str) -> BatchError:
        """Interpret the error of a step that never began."""
        try:
            self._adapter(one.batch).submitted(Output(1, "", told))
        except BatchError as error:
            return error
        return BatchError(told)

    async def listing(self, name: str) -> dict[str, list[BatchItem]]:
        """List all our jobs in a batch system, by key."""
        batch = self._adapter(name)
        return _by_key(batch.listed(await self._remote.run(batch.listing(), timeout=_LIST_S)))

    async def history(
        self, name: str, mine: Iterable[Submission], found: Mapping[str, list[BatchItem]]
    ) -> dict[str, list[BatchItem]]:
        """Read the history, if a submission is missing from the listing."""
        missing = [one for one in mine if not one.asking and _lacks(one, found.get(one.key, ()))]
        if not missing:
            return {}
        batch = self._adapter(name)
        call = batch.history(min(one.created for one in missing) - _BEFORE_S)
        if call is None:
            return {}
        return _by_key(batch.remembered(await self._remote.run(call, timeout=_LIST_S)))

    async def cancel(self, name: str, ids: Sequence[str]) -> None:
        """Cancel jobs."""
        said = await self._remote.run(self._adapter(name).cancel(ids), timeout=_LIST_S)
        if said.exit:
            raise BatchError(f"{name} did not cancel {ids[0]}: {(said.err or said.out)[:200]}")


def _needed(item: Mapping[str, Any]) -> list[str]:
    """Name the contents that must be at the site before an order can be followed."""
    image = [item["image"]["sha256"]] if item.get("image") else []
    return [*(given["sha256"] for given in item["inputs"]), *image]


def _read(data: bytes) -> dict[str, Any] | None:
    try:
        body = json.loads(data) if data else None
    except (ValueError, RecursionError):
        return None
    return body if isinstance(body, dict) else None


def _by_key(items: Iterable[BatchItem]) -> dict[str, list[BatchItem]]:
    found: dict[str, list[BatchItem]] = {}
    for item in items:
        found.setdefault(item.key, []).append(item)
    return found


def _lacks(one: Submission, found: Sequence[BatchItem]) -> bool:
    """Return whether something of a submission is not on a listing."""
    seen = {item.index for item in found}
    return not one.known or any(work.place not in seen for work in one.live)
