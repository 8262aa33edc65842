"""What is asked of a site on behalf of submissions, each in words that may be said again."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import anyio.to_thread

from pilotage.base import errors
from pilotage.batch.remote import Remote
from pilotage.batch.submission import Submission, Work
from pilotage.batch.system import words
from pilotage.batch.system.model import Batch, BatchError, Item, Order, Said, Windows
from pilotage.batch.system.tools import Tools

_log = logging.getLogger("pilotage.batch")
_AGAIN_S = 2.0
#: How long a submit command and a listing may take, in seconds.
SUBMIT_S = 120.0
_LIST_S = 90.0
#: How long it may take to see what is free: a job need not wait for that.
_LOOK_S = 20.0
#: How far back history is asked for before what is looked for was submitted, in seconds.
_BEFORE_S = 3600.0
#: Bytes of evidence that are read at once, and those that are read of what a step said.
_MOST = 4 << 20
_SAID = 4096


class Errands:
    """The hand and the batch systems of one site."""

    def __init__(self, remote: Remote, adapter: Callable[[str], Batch]) -> None:
        """Take how batch systems are found by name, once the site is connected."""
        self._remote = remote
        self._adapter = adapter

    # -- the hand: all of this may be done again and again ---------------------------------------

    async def _call(self, op: str, **values: Any) -> dict[str, Any]:  # noqa: ANN401 - as `Remote.call` has it
        """Ask the hand for something that may be done twice, so that doubt does not matter."""
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
        """Take claims, so that what has not begun never will; return the places that had not."""
        found = await self._call("fence", key=one.key, count=one.order.count, only=list(places))
        return set(found["free"])

    async def there(self, one: Submission) -> bool:
        """Say whether what was submitted is at this site at all, and not at another."""
        path = f"{one.root}/s/{one.key}/order.json"
        return (await self._call("stat", paths=[path]))["found"][path] is not None

    async def evidence(self, one: Submission, work: Work) -> dict[str, Any] | None:
        """Read the evidence of an end where it lies; news of it may not have come through."""
        told = f"{one.root}/news/{one.key}.{work.place}.ended"
        seen = f"{one.root}/s/{one.key}/{work.place}/run/exit.json"
        files = (await self._call("read", paths=[told, seen], most=_MOST))["files"]
        if (found := _read(await self._whole(told, files[told]))) is not None:
            return found
        # The starter's own word, if who waited for it is dead: nobody has looked at the outputs.
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

    async def pulse(self, one: Submission, work: Work) -> int:
        """Read the last sign of life of something that has begun."""
        path = f"{one.root}/s/{one.key}/{work.place}.claim/by.json"
        found = (await self._call("stat", paths=[path]))["found"][path]
        return int(found["mtime_ns"]) if found else 0

    async def complaint(self, one: Submission) -> str:
        """Read what a step that goes on by itself has said, in one line."""
        path = f"{one.order.folder}/out.step"
        found = (await self._call("read", paths=[path], most=_SAID))["files"][path]
        return base64.b64decode(found["data"]).decode(errors="replace") if found else ""

    async def acknowledge(self, names: list[str]) -> None:
        """Let go of news, as soon as that can be said."""
        await self._surely("ack", names=names)

    async def drop(self, keys: list[str]) -> None:
        """Remove the folders of submissions that are over."""
        await self._surely("drop", keys=keys)

    async def _surely(self, op: str, **values: Any) -> None:  # noqa: ANN401 - as `Remote.call` has it
        """Have something done, however often the connection is lost; refusals do not matter."""
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
        """Call the submit command, once; return the id, if it says one."""
        batch = self._adapter(one.batch)
        call = batch.submit(one.order)
        said = await self._remote.run(call, timeout=SUBMIT_S, folder=one.order.folder)
        # What goes on by itself has a process number, which is no id.
        return "" if call.detach and not said.exit else batch.submitted(said)

    def shows(self, name: str) -> Windows | None:
        """Return how a batch system shows what is free; nothing if it does not."""
        batch = self._adapter(name)
        return batch.windows if isinstance(batch, Tools) else None

    async def see(self, batch: Windows) -> Any:  # noqa: ANN401 - what it is, only the batch system knows
        """See what is free, once for all who ask at once."""
        calls = [self._remote.run(one, timeout=_LOOK_S, ask=True) for one in batch.looks]
        # A large cluster has much to say, and others wait for this thread.
        return await anyio.to_thread.run_sync(batch.seen, await asyncio.gather(*calls))

    async def trial(self, batch: Windows, order: Order) -> float:
        """Ask when an order would start; nothing is submitted."""
        return batch.tried(await self._remote.run(batch.trial(order), timeout=_LOOK_S))

    def refusal(self, one: Submission, told: str) -> BatchError:
        """Understand what a step said that never came to be."""
        try:
            self._adapter(one.batch).submitted(Said(1, "", told))
        except BatchError as error:
            return error
        return BatchError(told)

    async def listing(self, name: str) -> dict[str, list[Item]]:
        """List all that a batch system has of ours, by key."""
        batch = self._adapter(name)
        return _by_key(batch.listed(await self._remote.run(batch.listing(), timeout=_LIST_S)))

    async def history(
        self, name: str, mine: Iterable[Submission], found: Mapping[str, list[Item]]
    ) -> dict[str, list[Item]]:
        """Ask for what has ended, if something is not listed that should be somewhere."""
        missing = [one for one in mine if not one.asking and _lacks(one, found.get(one.key, ()))]
        if not missing:
            return {}
        batch = self._adapter(name)
        call = batch.history(min(one.created for one in missing) - _BEFORE_S)
        if call is None:
            return {}
        return _by_key(batch.remembered(await self._remote.run(call, timeout=_LIST_S)))

    async def cancel(self, name: str, ids: Sequence[str]) -> None:
        """Call jobs off."""
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


def _by_key(items: Iterable[Item]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = {}
    for item in items:
        found.setdefault(item.key, []).append(item)
    return found


def _lacks(one: Submission, found: Sequence[Item]) -> bool:
    """Say whether something of a submission is not on a listing."""
    seen = {item.index for item in found}
    return not one.known or any(work.place not in seen for work in one.live)
