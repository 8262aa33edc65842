"""Bring files to a site, each content once."""

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
from pilotage.data.stage.channel import Channel, Outgoing, Refused
from pilotage.data.stage.digest import Changed, Digests, settled
from pilotage.data.stage.lane import Lane, Meter, Spare, Wish
from pilotage.data.stage.model import (
    BIG,
    PATIENCE_S,
    Digest,
    Far,
    Key,
    Report,
    name_of_path,
    name_of_version,
)

_ATTEMPTS = 3
#: The site must look again: its cache or the file is not what it was.
_AGAIN = frozenset({"mismatch", "part"})

_Wish = Wish[Key, Digest]
#: What was sent, its sum, which may be being computed, and what the site will say of it.
_Sent = tuple[plan.Record, concurrent.futures.Future[str], asyncio.Future[str]]


class Pusher:
    """Sees to it that a site has files; small ones do not wait behind big ones."""

    def __init__(
        self, far: Far, root: str, digests: Digests, *, report: Report | None = None
    ) -> None:
        self._far = far
        self._root = root
        self._digests = digests
        self._meter = Meter(report)
        self._spare = Spare(self._channel)
        self._small: Lane[Key, Digest] = Lane(self._carry_small)
        self._big: Lane[Key, Digest] = Lane(self._carry_big)

    async def bring(self, files: Sequence[str]) -> dict[str, Digest]:
        """Return when the site has all of them as they are now; the digests are by path.

        Raises `Unavailable` if the connection is lost or the site's disk is full: the next call
        goes on where this one ended.
        """
        left = list(dict.fromkeys(files))
        found: dict[str, Digest] = {}
        for _ in range(_ATTEMPTS):
            keys = await self._digests.versions(left)
            asked = {key.path: self._lane(key).ask(key) for key in keys}
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
        await self._spare.close()

    def _channel(self) -> Channel:
        return Channel(self._far, self._root, self._meter.move)

    def _lane(self, key: Key) -> Lane[Key, Digest]:
        return self._big if key.version.size >= BIG else self._small

    async def _carry_small(self, wishes: list[_Wish]) -> None:
        """Hash all, ask once what is there, and send the rest by as few channels as can be."""
        sums = await asyncio.gather(*(self._sum(wish) for wish in wishes))
        groups: dict[str, list[_Wish]] = {}
        for wish, digest in zip(wishes, sums, strict=True):
            if digest is not None:
                groups.setdefault(digest.sha256, []).append(wish)
        had = await self._have(groups)
        for sha256 in had.have:
            for wish in groups.pop(sha256, ()):
                wish.grant(Digest(sha256, wish.key.version.size))
        first = {group[0].key: sha256 for sha256, group in groups.items()}
        for batch in plan.batches(first.items(), ()):
            async with self._spare.use() as channel:
                for key in batch:
                    sha256, size = first[key], key.version.size
                    record = plan.Record(
                        name=sha256, digest=sha256, size=size, spans=plan.whole(size)
                    )
                    answer = await channel.send(Outgoing(record, key))
                    self._meter.add(size, answer)
                    self._await(answer, groups[sha256])
                await channel.answered()

    async def _carry_big(self, wishes: list[_Wish]) -> None:
        """Send one after another; the next is hashed while one is on its way."""
        had = await self._have(name for wish in wishes for name in self._names(wish.key))
        async with contextlib.AsyncExitStack() as stack:
            channel: Channel | None = None
            sent: list[_Sent] = []
            for at, wish in enumerate(wishes):
                if channel is not None:
                    await channel.turn()
                try:
                    found = await self._prepare(wish.key, had, sent)
                except Changed as error:
                    wish.refuse(error)
                    continue
                if isinstance(found, Digest):
                    wish.grant(found)
                    continue
                if isinstance(found, asyncio.Future):
                    self._await(found, [wish])
                    continue
                if channel is None:
                    channel = self._channel()
                    await stack.enter_async_context(channel)
                late = self._digests.begin(wish.key)
                answer = await channel.send(
                    Outgoing(found, wish.key, None if found.digest else late)
                )
                self._await(answer, [wish])
                self._meter.add(found.weight, answer)
                sent.append((found, late, answer))
                if at + 1 < len(wishes) and name_of_version(wishes[at + 1].key) not in had.same:
                    self._digests.begin(wishes[at + 1].key)

    async def _prepare(
        self, key: Key, had: plan.Had, sent: list[_Sent]
    ) -> Digest | asyncio.Future[str] | plan.Record:
        """Find out that the site has a file, or that it will soon, or what to send."""
        token, size = name_of_version(key), key.version.size
        if sha256 := had.same.get(token):
            self._digests.learn(key, sha256)
            return Digest(sha256, size)
        # A file that was there under this path may be as it was, and one that is as long as another
        # may be a copy of it: then its digest may save sending it.
        likely = name_of_path(key.path) in had.same or any(one.size == size for one, _, _ in sent)
        digest = await self._digests.of_version(key) if likely else self._digests.known(key)
        if digest is not None:
            for _, late, answer in sent:
                if late.done() and not late.exception() and late.result() == digest.sha256:
                    return answer
            if digest.sha256 in (*had.have, *(await self._have([digest.sha256])).have):
                return digest
        record = plan.Record(
            name=token,
            digest=digest.sha256 if digest else None,
            size=size,
            spans=plan.whole(size),
            names=[name_of_path(key.path), *([token] if settled(key.version) else [])],
        )
        part = had.parts.get(token)
        if part is None:
            return record
        spans = await self._digests.compare(key, functools.partial(plan.resume, size, part))
        return msgspec.structs.replace(record, part=part.part, spans=spans)

    async def _sum(self, wish: _Wish) -> Digest | None:
        try:
            return await self._digests.of_version(wish.key)
        except Changed as error:
            wish.refuse(error)
            return None

    async def _have(self, names: Iterable[str]) -> plan.Had:
        digests = list(dict.fromkeys(names))
        return plan.had(await self._ask("have", digests=digests) if digests else {"have": []})

    async def _ask(self, op: str, **values: object) -> dict[str, Any]:
        try:
            return await self._far.call(op, patience=PATIENCE_S, **values)
        except errors.Unsure as error:
            # It was only looked at: whoever wants to may ask again.
            raise errors.Unavailable(error.message, hint=error.hint) from error

    def _names(self, key: Key) -> list[str]:
        """List all under which the site may have a file."""
        known = self._digests.known(key)
        names = [name_of_version(key), name_of_path(key.path)]
        return [known.sha256, *names] if known else names

    def _await(self, answer: asyncio.Future[str], wishes: list[_Wish]) -> None:
        answer.add_done_callback(functools.partial(self._settle, wishes))

    def _settle(self, wishes: list[_Wish], answer: asyncio.Future[str]) -> None:
        """Pass the site's answer on to all who wait for it."""
        error = answer.exception()
        for wish in wishes:
            if error is None:
                wish.grant(Digest(answer.result(), wish.key.version.size))
            else:
                wish.refuse(_meaning(error))


def _meaning(error: BaseException) -> BaseException:
    """Say what a refusal of the site means here."""
    if not isinstance(error, Refused):
        return error
    if error.kind in _AGAIN:
        return Changed()
    words = text.show(str(error))
    if error.kind == "disk":
        hint = "free space there, or bound `cache` in the site's file"
        return errors.Unavailable(f"the site's disk is full: {words}", hint=hint)
    return errors.Unavailable(f"the site cannot store a file: {words}")
