"""Copy files to a site, each content once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import functools
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.data.stage import plan
from pilotage.data.stage.channel import Channel, FileRefused, Outgoing
from pilotage.data.stage.digest import Changed, Digests, settled
from pilotage.data.stage.model import (
    BIG,
    PATIENCE_S,
    Digest,
    Key,
    Report,
    StagingSite,
    name_of_path,
    name_of_version,
)
from pilotage.data.stage.requests import IdleChannel, ProgressMeter, RequestQueue, StagingRequest

_ATTEMPTS = 3
#: The site must look again: its cache or the file is not what it was.
_AGAIN = frozenset({"mismatch", "part"})

_Request = StagingRequest[Key, Digest]
#: What was sent, its sum, which may be being computed, and what the site will say of it.
_Sent = tuple[plan.SendRecord, concurrent.futures.Future[str], asyncio.Future[str]]


class Pusher:
    """Copies files to a site; small ones do not wait behind big ones."""

    def __init__(
        self, site: StagingSite, root: str, digests: Digests, *, report: Report | None = None
    ) -> None:
        self._site = site
        self._root = root
        self._digests = digests
        self._meter = ProgressMeter(report)
        self._idle = IdleChannel(self._channel)
        self._small: RequestQueue[Key, Digest] = RequestQueue(self._carry_small)
        self._big: RequestQueue[Key, Digest] = RequestQueue(self._carry_big)

    async def bring(self, files: Sequence[str]) -> dict[str, Digest]:
        """Return when the site has all of them as they are now; the digests are by path.

        Raises `Unavailable` if the connection is lost or the site's disk is full: the next call
        goes on where this one ended.
        """
        left = list(dict.fromkeys(files))
        found: dict[str, Digest] = {}
        for _ in range(_ATTEMPTS):
            keys = await self._digests.versions(left)
            asked = {key.path: self._queue(key).ask(key) for key in keys}
            if asked:
                await asyncio.wait(asked.values())
            left = []
            for path, future in asked.items():
                try:
                    found[path] = future.result()
                except Changed:
                    left.append(path)
            if not left:
                return found
        raise errors.Conflict(
            f"{text.show(left[0])} changes while it is sent",
            hint="write it elsewhere and rename it when it is complete",
        )

    async def close(self) -> None:
        """Give up what is on its way; the site keeps what has arrived."""
        await self._small.close()
        await self._big.close()
        await self._idle.close()

    def _channel(self) -> Channel:
        return Channel(self._site, self._root, self._meter.move)

    def _queue(self, key: Key) -> RequestQueue[Key, Digest]:
        return self._big if key.version.size >= BIG else self._small

    async def _carry_small(self, requests: list[_Request]) -> None:
        """Hash all, ask once what is there, and send the rest by as few channels as can be."""
        sums = await asyncio.gather(*(self._sum(request) for request in requests))
        groups: dict[str, list[_Request]] = {}
        for request, digest in zip(requests, sums, strict=True):
            if digest is not None:
                groups.setdefault(digest.sha256, []).append(request)
        holdings = await self._have(groups)
        for sha256 in holdings.have:
            for request in groups.pop(sha256, ()):
                request.grant(Digest(sha256, request.key.version.size))
        first = {group[0].key: sha256 for sha256, group in groups.items()}
        for batch in plan.batches(first.items(), ()):
            async with self._idle.use() as channel:
                for key in batch:
                    sha256, size = first[key], key.version.size
                    record = plan.SendRecord(
                        name=sha256, digest=sha256, size=size, spans=plan.whole(size)
                    )
                    answer = await channel.send(Outgoing(record, key))
                    self._meter.add(size, answer)
                    self._await(answer, groups[sha256])
                await channel.answered()

    async def _carry_big(self, requests: list[_Request]) -> None:
        """Send one after another; the next is hashed while one is on its way."""
        holdings = await self._have(name for one in requests for name in self._names(one.key))
        async with contextlib.AsyncExitStack() as stack:
            channel: Channel | None = None
            sent: list[_Sent] = []
            for at, request in enumerate(requests):
                if channel is not None:
                    await channel.turn()
                try:
                    found = await self._prepare(request.key, holdings, sent)
                except Changed as error:
                    request.refuse(error)
                    continue
                if isinstance(found, Digest):
                    request.grant(found)
                    continue
                if isinstance(found, asyncio.Future):
                    self._await(found, [request])
                    continue
                if channel is None:
                    channel = self._channel()
                    await stack.enter_async_context(channel)
                late = self._digests.begin(request.key)
                answer = await channel.send(
                    Outgoing(found, request.key, None if found.digest else late)
                )
                self._await(answer, [request])
                self._meter.add(found.weight, answer)
                sent.append((found, late, answer))
                following = requests[at + 1].key if at + 1 < len(requests) else None
                if following and name_of_version(following) not in holdings.same:
                    self._digests.begin(following)

    async def _prepare(
        self, key: Key, holdings: plan.Holdings, sent: list[_Sent]
    ) -> Digest | asyncio.Future[str] | plan.SendRecord:
        """Return the digest of a file at the site, the answer for one sent, or what to send."""
        token, size = name_of_version(key), key.version.size
        if sha256 := holdings.same.get(token):
            self._digests.learn(key, sha256)
            return Digest(sha256, size)
        # A file that was there under this path may be as it was, and one that is as long as another
        # may be a copy of it: then its digest may save sending it.
        alike = any(one.size == size for one, _, _ in sent)
        likely = alike or name_of_path(key.path) in holdings.same
        digest = await self._digests.of_version(key) if likely else self._digests.known(key)
        if digest is not None:
            for _, late, answer in sent:
                if late.done() and not late.exception() and late.result() == digest.sha256:
                    return answer
            if digest.sha256 in (*holdings.have, *(await self._have([digest.sha256])).have):
                return digest
        record = plan.SendRecord(
            name=token,
            digest=digest.sha256 if digest else None,
            size=size,
            spans=plan.whole(size),
            names=[name_of_path(key.path), *([token] if settled(key.version) else [])],
        )
        part = holdings.parts.get(token)
        if part is None:
            return record
        spans = await self._digests.compare(key, functools.partial(plan.resume, size, part))
        return msgspec.structs.replace(record, part=part.part, spans=spans)

    async def _sum(self, request: _Request) -> Digest | None:
        try:
            return await self._digests.of_version(request.key)
        except Changed as error:
            request.refuse(error)
            return None

    async def _have(self, names: Iterable[str]) -> plan.Holdings:
        digests = list(dict.fromkeys(names))
        return plan.had(await self._ask("have", digests=digests) if digests else {"have": []})

    async def _ask(self, op: str, **values: object) -> dict[str, Any]:
        try:
            return await self._site.call(op, patience=PATIENCE_S, **values)
        except errors.Unsure as error:
            # It was only checked: callers may ask again.
            raise errors.Unavailable(error.message, hint=error.hint) from error

    def _names(self, key: Key) -> list[str]:
        """List the names under which the site may have a file."""
        known = self._digests.known(key)
        names = [name_of_version(key), name_of_path(key.path)]
        return [known.sha256, *names] if known else names

    def _await(self, answer: asyncio.Future[str], requests: list[_Request]) -> None:
        answer.add_done_callback(functools.partial(self._settle, requests))

    def _settle(self, requests: list[_Request], answer: asyncio.Future[str]) -> None:
        """Pass the site's answer on to all callers."""
        error = answer.exception()
        for request in requests:
            if error is None:
                request.grant(Digest(answer.result(), request.key.version.size))
            else:
                request.refuse(_meaning(error))


def _meaning(error: BaseException) -> BaseException:
    """Return what a refusal of the site means here."""
    if not isinstance(error, FileRefused):
        return error
    if error.kind in _AGAIN:
        return Changed()
    words = text.show(str(error))
    if error.kind == "disk":
        hint = "free space there, or bound `cache` in the site's file"
        return errors.Unavailable(f"the site's disk is full: {words}", hint=hint)
    return errors.Unavailable(f"the site cannot store a file: {words}")
