"""Object stores such as S3, through fsspec; the extra `objects` brings it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

import msgspec

from pilotage.base import durable, errors, paths, text
from pilotage.data.transfer import allow, arrival, failures, keys, tree
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.keys import NONE, Credentials
from pilotage.data.transfer.model import Flags, TransferItem, TransferListing, each
from pilotage.data.transfer.url import Url

_AT_ONCE = 8
_NEW = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
#: Words in errors of stores that mean the credential.
_CREDENTIAL = (
    "ExpiredToken",
    "InvalidAccessKeyId",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
)


class Objects:
    """Objects of one store; `bucket` is where URLs have the host."""

    flags: ClassVar[Flags] = Flags(atomic=True)

    def __init__(self, allowed: Allowed, given: Credentials = NONE) -> None:
        self._allowed = allowed
        self._keys = given
        self._systems: dict[str, Any] = {}

    async def close(self) -> None:
        """Forget the stores; fsspec keeps no connection of ours."""
        self._systems.clear()

    async def look(self, url: Url) -> TransferListing:
        """Find out what is there; a prefix that something begins with is a folder."""
        store = await self._store(url)
        path = _path(url)
        facts = await _call(url, store.info, path)
        if facts.get("type") == "directory":
            return TransferListing(url, folder=True, items=self._walk(url, store, path))
        above, name = url.above
        return TransferListing(above, folder=False, items=_one(_item(name, facts)))

    async def _walk(self, url: Url, store: Any, path: str) -> AsyncGenerator[TransferItem, None]:  # noqa: ANN401 - fsspec's
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            for facts in await _call(url, store.ls, folder, True):
                name = str(facts["name"])
                if name.strip("/") == folder.strip("/"):
                    continue
                if facts.get("type") == "directory":
                    waiting.append(name)
                else:
                    yield _item(name.lstrip("/").removeprefix(f"{path.strip('/')}/"), facts)

    async def fetch(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Read objects by ranges, several at once."""
        store = await self._store(base)

        async def act(item: TransferItem) -> None:
            path = _path(base.join(item.name))
            at = arrival.arrived(item, folder)
            target = await asyncio.to_thread(os.open, os.path.join(folder, item.name), _NEW, 0o600)
            try:
                os.ftruncate(target, at)
                while at < item.size:
                    end = min(item.size, at + 8 * tree.CHUNK)
                    data = await _call(base, store.cat_file, path, at, end)
                    if not data:
                        raise failures.changed(item.name)
                    await asyncio.to_thread(durable.write_all, target, data, at)
                    at += len(data)
            except OSError as error:
                raise failures.of_writing(error) from error
            finally:
                os.close(target)

        await each(items, act, _AT_ONCE)

    async def send(self, base: Url, items: Sequence[TransferItem], folder: str) -> None:
        """Put objects; each appears whole."""
        allow.check(self._allowed, base, write=True)
        store = await self._store(base)

        async def act(item: TransferItem) -> None:
            await _call(base, _put, store, folder, item.name, _path(base.join(item.name)))

        await each(items, act, _AT_ONCE)

    async def _store(self, url: Url) -> Any:  # noqa: ANN401 - fsspec's file systems have no type
        allow.check(self._allowed, url)
        if url.scheme not in self._systems:
            try:
                import fsspec
            except ImportError as error:
                hint = "pip install 'pilotage[objects]', and s3fs for S3"
                raise errors.PilotageError("fsspec is not installed", hint=hint) from error
            options = msgspec.json.decode(keys.secret(self._keys.options)) if (
                self._keys.options
            ) else {}  # fmt: skip
            try:
                # It caches listings for ever otherwise.
                self._systems[url.scheme] = fsspec.filesystem(
                    url.scheme, use_listings_cache=False, skip_instance_cache=True, **options
                )
            except (ImportError, ValueError) as error:
                raise errors.PilotageError(f"no file system for {url.scheme}: {error}") from error
        return self._systems[url.scheme]


def _put(store: Any, folder: str, name: str, path: str) -> None:  # noqa: ANN401 - fsspec's
    with paths.opened(folder, name) as source, store.open(path, "wb") as target:
        at = 0
        while data := os.pread(source, 8 * tree.CHUNK, at):
            target.write(data)
            at += len(data)


async def _call(url: Url, act: Any, *values: object) -> Any:  # noqa: ANN401 - fsspec's
    """Call a store in a thread; raise its errors as ours."""
    try:
        return await asyncio.to_thread(act, *values)
    except errors.PilotageError:
        raise
    except FileNotFoundError as error:
        raise errors.NotFound(f"nothing is at {url}") from error
    except PermissionError as error:
        raise _refused(url, error) from error
    except (OSError, TimeoutError) as error:
        raise _refused(url, error) from error


def _refused(url: Url, error: OSError) -> errors.PilotageError:
    words = text.show(str(error) or repr(error))
    chain = f"{error!r} {error.__cause__!r}"
    if any(word in chain for word in _CREDENTIAL):
        return errors.NeedsCredential(f"{url}: {words}")
    if isinstance(error, PermissionError):
        return errors.Denied(f"{url}: {words}")
    return errors.Unavailable(f"{url}: {words}")


def _path(url: Url) -> str:
    return f"{url.host}{url.path}".rstrip("/") if url.host else url.path.rstrip("/") or "/"


def _item(name: str, facts: dict[str, Any]) -> TransferItem:
    when = facts.get("LastModified") or facts.get("created") or facts.get("mtime")
    moment = when.replace(tzinfo=when.tzinfo or UTC) if isinstance(when, datetime) else None
    return TransferItem(
        name=name,
        size=int(facts["size"]),
        mtime=int(moment.timestamp()) * 1_000_000_000 if moment else 0,
        mark=str(facts.get("ETag", "")),
    )


async def _one(item: TransferItem) -> AsyncGenerator[TransferItem, None]:
    yield item
