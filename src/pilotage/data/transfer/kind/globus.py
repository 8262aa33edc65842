"""Globus: the service moves the files; our key is the submission's, so it does so once."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import quote

import msgspec

from pilotage.base import errors, text
from pilotage.data.transfer import allow, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind.http_wire import Web, judge
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing
from pilotage.data.transfer.retrying import Sleep
from pilotage.data.transfer.url import Url

SERVICE = "https://transfer.api.globus.org/v0.10"
_SPACE = uuid.UUID("6a8e7f5c-6a55-5d7e-9f38-0d6d5b9d2c11")
_POLL_S = 10.0
_LONGEST = 64 << 20
#: States of a task that only a person can resolve.
_CREDENTIAL = ("ACTIVATION", "CREDENTIAL", "CONSENT", "AUTHENTICATION", "INACTIVE")


class LocalCollection(msgspec.Struct, frozen=True):
    """The collection of this site, and the folder that is its top."""

    collection: str
    top: str = "/"

    def path(self, local: str) -> str:
        """Return where the collection has a path of ours."""
        below = os.path.relpath(os.path.realpath(local), os.path.realpath(self.top))
        if below.startswith(".."):
            raise errors.Denied(f"{text.show(local)} is not in the collection of this site")
        return f"/{below}"


def submission_id(key: str) -> str:
    """Make the id under which the service takes the same request once."""
    return str(uuid.uuid5(_SPACE, key))


def submission(key: str, source: tuple[str, str], target: tuple[str, str],
               names: Sequence[str]) -> dict[str, Any]:  # fmt: skip
    """Build a request: each end is a collection and a folder in it."""
    return {
        "DATA_TYPE": "transfer",
        "submission_id": submission_id(key),
        "label": key[:128],
        "source_endpoint": source[0],
        "destination_endpoint": target[0],
        "verify_checksum": True,
        "preserve_timestamp": True,
        # What has arrived already is not moved again.
        "sync_level": 3,
        "DATA": [
            {
                "DATA_TYPE": "transfer_item",
                "source_path": _join(source[1], name),
                "destination_path": _join(target[1], name),
                "recursive": False,
            }
            for name in names
        ],
    }


class Globus:
    """Files of a collection, whose id is where URLs have the host."""

    flags: ClassVar[Flags] = Flags(checksum=True, idempotent=True, third_party=True, times=True)

    def __init__(
        self, allowed: Allowed, keys: Credentials, here: LocalCollection, *, key: str,
        service: str = SERVICE,
        sleep: Sleep = asyncio.sleep,
    ) -> None:  # fmt: skip
        self._allowed = allowed
        self._service = url.parse(service)
        reach = Allowed(schemes=(self._service.scheme,), hosts=(self._service.host, "127.0.0.1"))
        self._web = Web(reach, keys)
        self._here = here
        self._key = key
        self._sleep = sleep

    async def close(self) -> None:
        """Let connections go."""
        await self._web.close()

    async def look(self, where: Url) -> TransferListing:
        """List a folder of the collection; a file is found in its folder."""
        allow.check(self._allowed, where)
        if where.path.endswith("/"):
            first = await self._list(where)
            return TransferListing(where, folder=True, items=self._walk(where, first))
        above, name = where.above
        for entry in await self._list(above):
            if entry.get("name") == name and entry.get("type") == "dir":
                return await self.look(where.join(""))
            if entry.get("name") == name:
                return TransferListing(above, folder=False, items=_one(_item("", entry)))
        raise errors.NotFound(f"nothing is at {where}")

    async def _walk(
        self, where: Url, first: list[dict[str, Any]]
    ) -> AsyncGenerator[TransferItem, None]:
        waiting = [("", first)]
        while waiting:
            below, entries = waiting.pop()
            for entry in entries:
                name = f"{below}{entry.get('name')}"
                if entry.get("type") == "dir":
                    waiting.append((f"{name}/", await self._list(where.join(f"{name}/"))))
                elif entry.get("type") == "file":
                    yield _item(below, entry)
                else:
                    raise errors.Denied(
                        f"{text.show(name)} at {where} is neither a file nor a folder"
                    )

    async def _list(self, where: Url) -> list[dict[str, Any]]:
        asked = f"path={quote(where.path, safe='')}"
        path = f"operation/endpoint/{where.host}/ls"
        return list((await self._ask("GET", path, query=asked)).get("DATA", []))

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Have the service bring files to the collection of this site."""
        target = (self._here.collection, self._here.path(folder))
        await self._move((base.host, base.path), target, items)

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Have the service bring files from the collection of this site."""
        allow.check(self._allowed, base, write=True)
        source = (self._here.collection, self._here.path(folder))
        await self._move(source, (base.host, base.path), items)

    async def _move(
        self, source: tuple[str, str], target: tuple[str, str], items: Sequence[TransferItem]
    ) -> None:
        names = [item.name for item in items]
        # One job moves several batches: each has a key of its own, the same at each attempt.
        batch = uuid.uuid5(_SPACE, "\0".join((*source, *target, *names)))
        body = submission(f"{self._key}.{batch.hex[:12]}", source, target, names)
        answer = await self._ask("POST", "transfer", body=body)
        task = str(answer.get("task_id", ""))
        while True:
            facts = await self._ask("GET", f"task/{quote(task, safe='')}")
            if facts.get("status") == "SUCCEEDED":
                return
            if facts.get("status") in ("FAILED", "INACTIVE"):
                raise _failure(task, facts)
            await self._sleep(_POLL_S)

    async def _ask(
        self, method: str, path: str, *, query: str = "", body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        where = msgspec.structs.replace(self._service.join(path), query=query)
        content = msgspec.json.encode(body) if body is not None else None
        headers = {"Content-Type": "application/json"} if body is not None else {}
        async with self._web.ask(method, where, headers=headers, content=content) as answer:
            judge(answer, where, 200, 202)
            data = bytearray()
            async for some in answer.aiter_raw():
                data += some
                if len(data) > _LONGEST:
                    raise errors.TooLarge(f"{where} answers too much")
        try:
            return msgspec.json.decode(bytes(data), type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise errors.Unavailable(f"{where} sent an invalid answer") from error


def _failure(task: str, facts: dict[str, Any]) -> errors.PilotageError:
    fatal = facts.get("fatal_error") or {}
    said = str(fatal.get("code") or facts.get("nice_status") or facts.get("status"))
    message = f"the task {text.show(task)} of Globus has failed: {text.show(said)}"
    if any(word in said.upper() for word in _CREDENTIAL) or facts.get("status") == "INACTIVE":
        return errors.NeedsCredential(message, hint="log in to Globus again")
    if "NOT_FOUND" in said.upper():
        return errors.NotFound(message)
    if "PERMISSION" in said.upper():
        return errors.Denied(message)
    return errors.Unavailable(message)


def _item(below: str, entry: dict[str, Any]) -> TransferItem:
    try:
        when = datetime.fromisoformat(str(entry.get("last_modified", "")))
        mtime = int(when.replace(tzinfo=when.tzinfo or UTC).timestamp()) * 1_000_000_000
    except ValueError:
        mtime = 0
    return TransferItem(f"{below}{entry.get('name')}", int(entry.get("size", -1)), mtime=mtime)


def _join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}"


async def _one(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item
