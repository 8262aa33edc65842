"""The files of a job come by URL into its folder, and go from there by URL.

Inputs arrive in a folder beside the job's, each in one of its own, and are put in their places when
all are whole. A path of a stranger is looked at again where it is used: no link leads out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
)

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from pilotage.agent.app import fill, hosts
from pilotage.agent.app.model import App, Staging
from pilotage.agent.contents import Contents, Shelf, Turn
from pilotage.base import durable, errors, paths, text, units
from pilotage.base.supervise import together
from pilotage.bus.model import Input, Job, Left
from pilotage.data.transfer import allow, settle, tree, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.fetch import Receipt
from pilotage.data.transfer.keys import Keys
from pilotage.data.transfer.kind.hub import Home
from pilotage.data.transfer.patience import Patience, Sleep, Told
from pilotage.data.transfer.url import SAME
from pilotage.edge import folders

#: Whoever serves data may be away for a day; how often it was asked meanwhile does not matter.
PATIENCE = Patience(attempts=10_000)
#: Beside the inputs that have arrived: all of them are in their places.
_PLACED = "placed"


class Errand(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of the transfers of one attempt."""

    app: App
    job: Job
    #: What the attempt is known by, everywhere.
    key: str
    #: The folder of the job.
    folder: str
    #: Who has sent the job.
    user: str = ""
    #: By host, what opens it.
    keys: Mapping[str, Keys] = {}
    #: Bytes that stay free where the folder is.
    spare: int = 0
    #: Hears why something is tried again.
    told: Told = lambda _: None
    #: The hub that the job comes from, if the agent dials one.
    home: Home | None = None


def allowed(staging: Staging) -> Allowed:
    """Say what jobs of an application may reach, in the words of transfers."""
    schemes = tuple(dict.fromkeys(SAME.get(one, one) for one in staging.protocols))
    ports = [allow.DEFAULT_PORT.get(one, 0) for one in schemes if one not in ("hub", "file")]
    return Allowed(
        schemes=schemes,
        hosts=tuple(one for host in staging.hosts for one in _with_ports(host, ports)),
        private=staging.private,
        read=staging.roots,
        write=staging.roots,
    )


def _with_ports(host: str, ports: list[int]) -> list[str]:
    """Name the usual ports of a host that is listed without one: no other is meant."""
    name, colon, digits = host.rpartition(":")
    if colon and digits.isdecimal() and not name.endswith(":"):
        return [host]
    plain = f"[{host.strip('[]')}]" if ":" in host else host
    return list(dict.fromkeys(f"{plain}:{port}" if port else host for port in ports))


def check_room(folder: str, spare: int) -> None:
    """Raise `Unavailable` if less is free than is to stay free."""
    left = settle.room(folder).bytes
    if left < spare:
        free, most = units.bytes_for_people(left), units.bytes_for_people(spare)
        message = f"{text.show(folder)} has {free} left, and {most} must stay free"
        raise errors.Unavailable(message, hint="free space")


class Lanes:
    """Lets so many transfers go on at once; one that only waits is not counted."""

    def __init__(self, most: Callable[[], int]) -> None:
        """Take how many those are, which may change."""
        self._most = most
        self._limiter = anyio.CapacityLimiter(most())

    @contextlib.asynccontextmanager
    async def one(
        self, turn: Turn | None = None
    ) -> AsyncIterator[Callable[[float], Awaitable[None]]]:  # fmt: skip
        """Have a lane within the block; what it gives is how to wait without it, and a `turn`."""
        mine = object()
        await self._enter(mine)
        held = True

        async def sleep(seconds: float) -> None:
            nonlocal held
            self._limiter.release_on_behalf_of(mine)
            held = False
            if turn is not None:
                turn.leave()
            await asyncio.sleep(seconds)
            # The turn first: holding a lane while waiting for a turn could block all.
            if turn is not None:
                await turn.take()
            await self._enter(mine)
            held = True

        try:
            yield sleep
        finally:
            if held:
                self._limiter.release_on_behalf_of(mine)

    async def _enter(self, mine: object) -> None:
        self._limiter.total_tokens = self._most()
        await self._limiter.acquire_on_behalf_of(mine)


# -- to the job ------------------------------------------------------------------------------------


async def fetch(errand: Errand, aside: str, lanes: Lanes, contents: Contents) -> int:
    """Bring all inputs of a job into its folder; what an earlier process brought is kept.

    What another job has brought, and `contents` holds, is not brought again.

    Say how many bytes those are.
    """
    inputs, done = errand.job.inputs, f"{aside}/{_PLACED}"
    if not inputs:
        return 0
    before = await anyio.to_thread.run_sync(_marked, done)
    if before is not None:
        return before
    work = [_fetch(errand, one, f"{aside}/{at}", lanes, contents) for at, one in enumerate(inputs)]
    receipts = await together(work)
    for at, (one, receipt) in enumerate(zip(inputs, receipts, strict=True)):
        await anyio.to_thread.run_sync(
            folders.put_in_place, one.path, f"{aside}/{at}", receipt.folder, errand.folder
        )
    size = sum(receipt.bytes for receipt in receipts)
    await anyio.to_thread.run_sync(_mark, errand.folder, done, size)
    return size


async def _fetch(
    errand: Errand, one: Input, target: str, lanes: Lanes, contents: Contents
) -> Receipt:  # fmt: skip
    """Bring one input."""
    reason = hosts.why_not_input(one, errand.app.staging)
    _check(one.path, one.url or one.path, reason)
    if one.content is not UNSET:
        return await anyio.to_thread.run_sync(_unpack, one, target)
    if not one.sha256:
        async with lanes.one() as sleep:
            return await _bring(errand, one, target, sleep, None)
    jobs, copy = os.path.dirname(errand.folder), _written(errand.job, one.path)
    shelf = contents.of(jobs, errand.user, copy=copy)
    async with contents.turn(shelf.key(one.sha256)) as turn:
        found = await anyio.to_thread.run_sync(_known, shelf, one, target)
        if found is not None:
            return found
        async with lanes.one(turn) as sleep:
            receipt = await _bring(errand, one, target, sleep, shelf)
        if not receipt.folder:
            await anyio.to_thread.run_sync(_check_sum, one, target, shelf)
    return receipt


async def _bring(
    errand: Errand, one: Input, target: str, sleep: Sleep, shelf: Shelf | None
) -> Receipt:  # fmt: skip
    work = _courier(errand, sleep).fetch(
        one.url, target, replace=True, spare=errand.spare, pinned=one.sha256, known=shelf
    )
    return await _lasting(work)


def _written(job: Job, path: str) -> bool:
    """Say whether a job writes over an input, or into it, so that it needs one of its own."""
    mine = f"{path.rstrip('/')}/"
    theirs = [f"{one.path.rstrip('/')}/" for one in job.outputs]
    # The folder of the job itself holds everything.
    return any("/" in (mine, one) or mine.startswith(one) or one.startswith(mine) for one in theirs)


def _known(shelf: Shelf, one: Input, target: str) -> Receipt | None:
    """Have a file whose content is here already."""
    os.makedirs(target, exist_ok=True)
    name = url.parse(one.url).above[1]
    size = shelf.take_as_kept(one.sha256, os.path.join(target, name)) if name else -1
    return Receipt(1, size, 0, "", folder=False) if size >= 0 else None


def _courier(errand: Errand, sleep: Callable[[float], Awaitable[None]]) -> Courier:
    courier = Courier(
        allowed(errand.app.staging), keys=errand.keys, key=errand.key, patience=PATIENCE,
        sleep=sleep,
    )  # fmt: skip
    courier.on_trouble, courier.home = errand.told, errand.home
    return courier


async def _lasting(work: Awaitable[Receipt]) -> Receipt:
    """Wait for a transfer; one that was tried for long enough has failed for good."""
    try:
        return await work
    except (errors.Unavailable, errors.TimedOut) as error:
        # The last note says why it is not tried again.
        words = getattr(error, "__notes__", ["it is not tried again"])[-1]
        raise errors.PilotageError(f"{error.message} ({words})", hint=error.hint) from error


def _check(path: str, source: str, reason: str) -> None:
    """Refuse what cannot be used for a reason, and what is not for the folder of the job."""
    if reason:
        raise errors.Denied(f"{text.show(source)} cannot be used: {reason}")
    if path and (reason := fill.outside(path.removesuffix("/"))):
        raise errors.Denied(f"{text.show(path)} is not below the job's folder: {reason}")


def _unpack(one: Input, target: str) -> Receipt:
    """Write a file that came with the message; its digest was compared before."""
    body = hosts.carried(one)
    os.makedirs(target, exist_ok=True)
    durable.write(os.path.join(target, os.path.basename(one.path)), body)
    return Receipt(1, len(body), 0, "", folder=False)


def _check_sum(one: Input, target: str, shelf: Shelf) -> None:
    (item,) = tree.walk(target)
    with paths.opened(target, item.name) as file:
        found = tree.digest(file)
    if found != one.sha256:
        message = f"{text.show(one.url)} has the SHA-256 {found} instead of {one.sha256}"
        raise errors.Conflict(message)
    named = msgspec.structs.replace(item, sha256=found)
    shelf.keep(named, os.path.join(target, item.name))


def _mark(folder: str, done: str, size: int) -> None:
    """Note that all inputs are in their places, and their bytes; they need not come again."""
    durable.sync_folder(folder)
    durable.swap(done, str(size))


def _marked(done: str) -> int | None:
    """Say how many bytes were put in their places; nothing if not all were."""
    try:
        with open(done, encoding="ascii") as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return None


# -- from the job ----------------------------------------------------------------------------------


async def send(
    errand: Errand, aside: str, lanes: Lanes, *, again: bool, anew: bool = False
) -> tuple[Left, ...]:
    """Send all outputs of a job; `again` means that an earlier process may have sent some.

    What goes to one URL goes there together, so that its manifest tells of all. With `anew` all
    goes there once more, whatever is there.
    """
    left: list[Left] = []
    groups: dict[str, dict[tuple[str, str], None]] = {}
    for one in errand.job.outputs:
        _check(one.path, one.url, hosts.why_not(one.url, errand.app.staging))
        _check(one.below, one.url, hosts.why_not(one.url, errand.app.staging))
        groups.setdefault(one.url, {})[one.path, one.below] = None
    for at, (address, outputs) in enumerate(groups.items()):
        source = await anyio.to_thread.run_sync(
            folders.collect, errand.folder, outputs, f"{aside}/{at}"
        )
        async with lanes.one() as sleep:
            work = _courier(errand, sleep).send(source, address, replace=again, anew=anew)
            sent = await _lasting(work)
        left.append(Left(url=address, digest=sent.digest, files=sent.files, bytes=sent.bytes))
    return tuple(left)
