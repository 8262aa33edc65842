"""Preparation of a job: its files are staged by URL, and its application is filled in.

The parsed config is stored, since programs in the job's folder may change the file. The command is
made again each time, so that changes by the site's administrator take effect.

Each input arrives in a folder of its own beside the job's, and all are moved to their places when
they are complete. Paths in messages are checked where they are used: no link leads out.
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
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from msgspec import UNSET

from pilotage.agent.app import command, hosts, parser, policy
from pilotage.agent.app.command import Command
from pilotage.agent.app.model import Application, Staging
from pilotage.agent.input_cache import CacheTurn, InputCache, UserCache
from pilotage.base import durable, errors, paths, text, units
from pilotage.base.paths import inside
from pilotage.base.supervise import together
from pilotage.batch.malleable import Fit
from pilotage.bus.model import Input, Job, Left, Shape
from pilotage.data.transfer import allow, arrival, tree, url
from pilotage.data.transfer.allow import Allowed
from pilotage.data.transfer.courier import Courier
from pilotage.data.transfer.fetch import Receipt
from pilotage.data.transfer.keys import Credentials
from pilotage.data.transfer.kind.hub import HubAddress
from pilotage.data.transfer.retrying import RetryPolicy, Sleep, Told
from pilotage.data.transfer.url import SAME
from pilotage.edge import folders
from pilotage.job.model import JobSpec

#: A server may be away for a day; the number of attempts does not matter.
PATIENCE = RetryPolicy(attempts=10_000)
#: Beside the inputs that have arrived: all of them are in their places.
_PLACED = "placed"


class TransferJob(msgspec.Struct, frozen=True, kw_only=True):
    """Facts for the transfers of one attempt."""

    app: Application
    job: Job
    #: The key of the attempt.
    key: str
    #: The folder of the job.
    folder: str
    #: The sender of the job.
    user: str = ""
    #: Credentials by host.
    keys: Mapping[str, Credentials] = {}
    #: Bytes that stay free where the folder is.
    spare: int = 0
    #: Called with the reason of each retry.
    told: Told = lambda _: None
    #: The hub that the job comes from, if the agent dials one.
    home: HubAddress | None = None


def allowed(staging: Staging) -> Allowed:
    """Return the servers that jobs of an application may reach."""
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
    """Return a host with its default ports if it is listed without one."""
    name, colon, digits = host.rpartition(":")
    if colon and digits.isdecimal() and not name.endswith(":"):
        return [host]
    plain = f"[{host.strip('[]')}]" if ":" in host else host
    return list(dict.fromkeys(f"{plain}:{port}" if port else host for port in ports))


def check_room(folder: str, spare: int) -> None:
    """Raise `Unavailable` if less is free than is to stay free."""
    left = arrival.room(folder).bytes
    if left < spare:
        free, most = units.bytes_for_people(left), units.bytes_for_people(spare)
        message = f"{text.show(folder)} has {free} left, and {most} must stay free"
        raise errors.Unavailable(message, hint="free space")


class TransferSlots:
    """Limits transfers at once; one that only waits is not counted."""

    def __init__(self, most: Callable[[], int]) -> None:
        """Take a function that returns the maximum, which may change."""
        self._most = most
        self._limiter = anyio.CapacityLimiter(most())

    @contextlib.asynccontextmanager
    async def one(
        self, turn: CacheTurn | None = None
    ) -> AsyncIterator[Callable[[float], Awaitable[None]]]:  # fmt: skip
        """Hold a slot within the block; yield a function that waits without it and the `turn`."""
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
            # The turn first: holding a slot while waiting for a turn could block all.
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


async def fetch(
    transfer: TransferJob, aside: str, slots: TransferSlots, contents: InputCache
) -> int:
    """Fetch all inputs of a job into its folder; keep those of an earlier process.

    Inputs in the cache `contents` are not fetched again.

    Return their bytes.
    """
    inputs, done = transfer.job.inputs, f"{aside}/{_PLACED}"
    if not inputs:
        return 0
    before = await anyio.to_thread.run_sync(_marked, done)
    if before is not None:
        return before
    work = [
        _fetch(transfer, one, f"{aside}/{at}", slots, contents) for at, one in enumerate(inputs)
    ]
    receipts = await together(work)
    for at, (one, receipt) in enumerate(zip(inputs, receipts, strict=True)):
        await anyio.to_thread.run_sync(
            folders.put_in_place, one.path, f"{aside}/{at}", receipt.folder, transfer.folder
        )
    size = sum(receipt.bytes for receipt in receipts)
    await anyio.to_thread.run_sync(_mark, transfer.folder, done, size)
    return size


async def _fetch(
    transfer: TransferJob, one: Input, target: str, slots: TransferSlots, contents: InputCache
) -> Receipt:  # fmt: skip
    """Fetch one input."""
    reason = hosts.why_not_input(one, transfer.app.staging)
    _check(one.path, one.url or one.path, reason)
    if one.content is not UNSET:
        return await anyio.to_thread.run_sync(_unpack, one, target)
    if not one.sha256:
        async with slots.one() as sleep:
            return await _bring(transfer, one, target, sleep, None)
    jobs, copy = os.path.dirname(transfer.folder), _written(transfer.job, one.path)
    cache = contents.of(jobs, transfer.user, copy=copy)
    async with contents.turn(cache.key(one.sha256)) as turn:
        found = await anyio.to_thread.run_sync(_known, cache, one, target)
        if found is not None:
            return found
        async with slots.one(turn) as sleep:
            receipt = await _bring(transfer, one, target, sleep, cache)
        if not receipt.folder:
            await anyio.to_thread.run_sync(_check_sum, one, target, cache)
    return receipt


async def _bring(
    transfer: TransferJob, one: Input, target: str, sleep: Sleep, cache: UserCache | None
) -> Receipt:  # fmt: skip
    work = _courier(transfer, sleep).fetch(
        one.url, target, replace=True, spare=transfer.spare, pinned=one.sha256, known=cache
    )
    return await _lasting(work)


def _written(job: Job, path: str) -> bool:
    """Return whether a job writes over an input, or into it, so that it needs one of its own."""
    mine = f"{path.rstrip('/')}/"
    theirs = [f"{one.path.rstrip('/')}/" for one in job.outputs]
    # The folder of the job itself holds everything.
    return any("/" in (mine, one) or mine.startswith(one) or one.startswith(mine) for one in theirs)


def _known(cache: UserCache, one: Input, target: str) -> Receipt | None:
    """Have a file whose content is here already."""
    os.makedirs(target, exist_ok=True)
    name = url.parse(one.url).above[1]
    size = cache.take_as_kept(one.sha256, os.path.join(target, name)) if name else -1
    return Receipt(1, size, 0, "", folder=False) if size >= 0 else None


def _courier(transfer: TransferJob, sleep: Callable[[float], Awaitable[None]]) -> Courier:
    courier = Courier(
        allowed(transfer.app.staging), keys=transfer.keys, key=transfer.key, patience=PATIENCE,
        sleep=sleep,
    )  # fmt: skip
    courier.on_trouble, courier.home = transfer.told, transfer.home
    return courier


async def _lasting(work: Awaitable[Receipt]) -> Receipt:
    """Wait for a transfer; after enough retries it has failed permanently."""
    try:
        return await work
    except (errors.Unavailable, errors.TimedOut) as error:
        # The last note says why it is not tried again.
        words = getattr(error, "__notes__", ["it is not tried again"])[-1]
        raise errors.PilotageError(f"{error.message} ({words})", hint=error.hint) from error


def _check(path: str, source: str, reason: str) -> None:
    """Raise `Denied` for a source with a `reason`, or a path outside of the job's folder."""
    if reason:
        raise errors.Denied(f"{text.show(source)} cannot be used: {reason}")
    if path and (reason := command.outside(path.removesuffix("/"))):
        raise errors.Denied(f"{text.show(path)} is not below the job's folder: {reason}")


def _unpack(one: Input, target: str) -> Receipt:
    """Write a file that came with the message; its digest was compared before."""
    body = hosts.carried(one)
    os.makedirs(target, exist_ok=True)
    durable.write(os.path.join(target, os.path.basename(one.path)), body)
    return Receipt(1, len(body), 0, "", folder=False)


def _check_sum(one: Input, target: str, cache: UserCache) -> None:
    (item,) = tree.walk(target)
    with paths.opened(target, item.name) as file:
        found = tree.digest(file)
    if found != one.sha256:
        message = f"{text.show(one.url)} has the SHA-256 {found} instead of {one.sha256}"
        raise errors.Conflict(message)
    named = msgspec.structs.replace(item, sha256=found)
    cache.keep(named, os.path.join(target, item.name))


def _mark(folder: str, done: str, size: int) -> None:
    """Record that all inputs are in their places, and their bytes."""
    durable.sync_folder(folder)
    durable.swap(done, str(size))


def _marked(done: str) -> int | None:
    """Return how many bytes were put in their places; none if not all were."""
    try:
        with open(done, encoding="ascii") as file:
            return int(file.read() or 0)
    except FileNotFoundError:
        return None


# -- from the job ----------------------------------------------------------------------------------


async def send(
    transfer: TransferJob, aside: str, slots: TransferSlots, *, again: bool, force: bool = False
) -> tuple[Left, ...]:
    """Send all outputs of a job; `again` means that an earlier process may have sent some.

    Outputs with the same URL are sent together, with one manifest. With `force` all are sent again,
    whatever is there.
    """
    left: list[Left] = []
    groups: dict[str, dict[tuple[str, str], None]] = {}
    for one in transfer.job.outputs:
        _check(one.path, one.url, hosts.why_not(one.url, transfer.app.staging))
        _check(one.below, one.url, hosts.why_not(one.url, transfer.app.staging))
        groups.setdefault(one.url, {})[one.path, one.below] = None
    for at, (address, outputs) in enumerate(groups.items()):
        source = await anyio.to_thread.run_sync(
            folders.collect, transfer.folder, outputs, f"{aside}/{at}"
        )
        async with slots.one() as sleep:
            work = _courier(transfer, sleep).send(source, address, replace=again, resend=force)
            sent = await _lasting(work)
        left.append(Left(url=address, digest=sent.digest, files=sent.files, bytes=sent.bytes))
    return tuple(left)


#: File name of a config that came with the message.
CONFIG = "pilotage-config"


class PreparedJob(msgspec.Struct, frozen=True):
    """The record of a prepared attempt; it outlives the agent."""

    #: The content of the config.
    parameters: dict[str, Any] = {}
    words: tuple[str, ...] = ()
    #: Whether a program runs after the job, and whether anything is to be done after it.
    after: bool = False
    leaves: bool = False
    #: Whether that program has run, whether sending has begun, and whether all is done.
    postprocessed: bool = False
    sending: bool = False
    sent: bool = False
    #: Bytes of inputs.
    read: int = 0


text.prime(PreparedJob)


def bare(job: Job) -> bool:
    """Return whether a job has neither inputs nor outputs."""
    return not (job.inputs or job.outputs or job.config or job.config_file)


def plain(app: Application, job: Job) -> bool:
    """Return whether a job needs only to be run; then no record is kept."""
    return bare(job) and not (app.preprocess or app.postprocess)


def check(app: Application, job: Job, user: str) -> None:
    """Raise `Denied` if a job may not run any more: its application may have changed since."""
    if reasons := policy.judge(app, job, user).reasons:
        raise errors.Denied("; ".join(reasons), hint="`pilotage app show NAME` says what may run")


def check_outputs(app: Application, job: Job) -> None:
    """Raise `Denied` if results may not go where they are to go any more."""
    for one in job.outputs:
        if reason := hosts.why_not(one.url, app.staging):
            raise errors.Denied(f"{text.show(one.url)} cannot be used: {reason}")


def sized(job: Job, fit: Fit | None) -> Job:
    """Write a job in the shape that it has got."""
    if fit is None:
        return job
    time = job.wall_time if fit.time is None else int(fit.time)
    return msgspec.structs.replace(job, nodes=fit.nodes, wall_time=time, shape=Shape())


def configured(job: Job) -> Job:
    """Name the file that the config of a message is in."""
    return msgspec.structs.replace(job, config_file=CONFIG) if job.config else job


def write_config(job: Job, folder: str, aside: str) -> None:
    """Put the config of a message into the job's folder."""
    part = os.path.join(aside, CONFIG)
    with open(part, "w", encoding="utf-8", newline="") as file:
        file.write(job.config)
    os.rename(part, inside(folder, CONFIG))


def open_folders(job: Job, folder: str) -> None:
    """Make the folders that outputs go to, as they are where the job comes from."""
    for one in job.outputs:
        os.makedirs(os.path.dirname(inside(folder, one.path)), exist_ok=True)


async def read_config(app: Application, job: Job, folder: str) -> PreparedJob:
    """Read the config of a job, if it has one, by the site's own parser."""
    file = configured(job).config_file
    if not file or app.takes != "parameters":
        return PreparedJob()
    parsed = await parser.parse(app, folder, file)
    return PreparedJob(parameters=dict(parsed.parameters), words=parsed.words)


def fill(app: Application, job: Job, kept: PreparedJob, number: int) -> Command:
    """Fill in an application; the message overrides the config."""
    given = {**kept.parameters, **job.parameters}
    return command.make(app, configured(job), given, kept.words, number=number)


def spec_of(spec: JobSpec, filled: Command, folder: str) -> JobSpec:
    """Return the definition that the batch job runs."""
    return msgspec.structs.replace(
        spec,
        recipe=filled.function or command.recipe(filled.argv),
        base=folder,
        env={name: command.literal(value) for name, value in filled.env.items()},
        cwd=command.literal(folder),
        image=filled.image,
    )


# -- records on disk -------------------------------------------------------------------------------


def read(file: Path) -> PreparedJob | None:
    """Read the record of an attempt; none if its data is not there yet."""
    try:
        return msgspec.convert(text.load(file.read_bytes()), PreparedJob)
    except FileNotFoundError:
        return None
    except (ValueError, msgspec.ValidationError) as error:
        raise errors.PilotageError(f"{file} cannot be read: {error}") from error


def write(file: Path, kept: PreparedJob) -> None:
    """Write the record of an attempt; it is on disk when this returns."""
    durable.folder(file.parent, mode=0o700)
    durable.write(file, text.dump(kept))
