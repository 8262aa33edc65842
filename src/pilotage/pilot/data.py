"""Data of jobs on pilots that do not see the project: inputs sent there, outputs brought home."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import anyio.to_thread
import msgspec

from pilotage.base import crash, durable, errors, text
from pilotage.base.owner import me
from pilotage.batch import job as guest
from pilotage.batch import records as sites
from pilotage.batch.job import BatchJob
from pilotage.data.stage import landing
from pilotage.data.stage.digest import Changed, Digests
from pilotage.data.stage.landing import Landing
from pilotage.data.stage.model import Digest, Key, WantedFile
from pilotage.data.transfer.version import Version
from pilotage.event import content
from pilotage.job import model, moves, records, template
from pilotage.match.queue import JobQueue
from pilotage.match.turn import TurnRecords
from pilotage.pilot.model import JobCancelled, NodeFacts, NotRunnable, Project
from pilotage.pilot.table import Pilot
from pilotage.run import launch
from pilotage.run.model import Sandbox
from pilotage.store import Db


class NodeFolders(msgspec.Struct, frozen=True):
    """The folders of an attempt on a node."""

    #: The folder of the pilot.
    work: str
    #: The name of the attempt.
    key: str

    @property
    def run(self) -> str:
        """The attempt's directory, which the starter makes."""
        return f"{self.work}/jobs/{self.key}"

    @property
    def data(self) -> str:
        """The folder that stands for the project's there."""
        return f"{self.work}/data/{self.key}"

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        return self.work

    def there(self, path: str, base: str) -> str:
        """Return where a file of this machine is on the node."""
        return f"{self.data}/{guest.relative(path, base)}"


def in_place(facts: NodeFacts, spec: model.JobSpec) -> bool:
    """Return whether a job has its files on a node without anybody bringing them."""
    seen = facts.boxed if spec.image else facts.project
    if seen is Project.READABLE:
        return not (spec.outputs or spec.optional_outputs)
    return seen is not Project.HIDDEN


def has_data(one: BatchJob, project: str) -> bool:
    """Return whether a job reads or writes files of the project, or runs in it."""
    spec = one.spec
    if one.base != project:
        # It comes from another project: only its owner knows where those files are.
        return False
    cwd = spec.cwd and f"{os.path.join(project, spec.cwd)}/"
    inside = bool(cwd) and (cwd.startswith(f"{project}/") or "{" in spec.cwd)
    return bool(guest.reads(one) or spec.outputs or spec.optional_outputs or inside)


def launch_order(
    one: BatchJob, folders: NodeFolders, facts: NodeFacts, place: launch.LaunchContext, kind: str
) -> dict[str, Any]:
    """Write the launch of a job, and what of its data is where on the node."""
    spec = one.spec
    if kind == "user":
        raise NotRunnable(
            "another user cannot read inputs that are sent there: choose another `sandbox`"
        )
    for path in launch.declared(spec, one.binding, one.base, one.claim.job):
        if not path.startswith(f"{one.base}/"):
            raise NotRunnable(f"its output {text.show(path)} is not below the project's folder")
    sandbox = None if kind == "none" else Sandbox(kind=kind, image=spec.image)
    prepared = guest.prepare(one, folders, place, python=facts.python, sandbox=sandbox)
    started = guest.shown(msgspec.to_builtins(prepared.launch), folders.data, used=True)
    inputs = guest.inputs(one, folders)
    for told, digest in zip(inputs, one.inputs.values(), strict=True):
        told["size"] = digest.size
    return started | {
        "outputs": prepared.outputs,
        "cpus": spec.resources.cpus,
        "data": {
            "folder": folders.data,
            "inputs": inputs,
            "optional": prepared.optional,
            "ok_codes": spec.ok_codes,
        },
    }


#: Attempts that are cached; others are read again from the store.
_MOST = 10_000
#: How often files that change while they are read are read again.
_ATTEMPTS = 3
_COMPLETE = "write files elsewhere and rename them when they are complete"
_PLAIN = text.dump(model.Binding())


class Staged(msgspec.Struct):
    """An attempt with data, and where that is."""

    guest: BatchJob
    folders: NodeFolders
    #: By digest, the version of a file here that has this content; nothing before they were read.
    sources: dict[str, Key] | None = None


class ReturnedOutputs(msgspec.Struct):
    """Outputs of an attempt while they arrive."""

    files: list[Landing]
    places: list[landing.LandingPlan]
    #: Whether all of it is in its place.
    shown: bool = False

    def show(self) -> None:
        """Put all of it in its place, once."""
        if not self.shown:
            for file in self.files:
                file.show()
            for one in self.places:
                one.show()
            self.shown = True


class Staging:
    """Serves inputs to attempts on pilots, and puts their outputs in place."""

    def __init__(self, queue: JobQueue, where: launch.LaunchContext, reader: Db) -> None:
        """Take where jobs would run if they ran here."""
        self._queue = queue
        self._reader = reader
        self._place = where
        self._digests = Digests()
        self._known: OrderedDict[str, Staged] = OrderedDict()

    def wanted(self, facts: NodeFacts, claim: moves.Claim, spec: model.JobSpec) -> bool:
        """Return whether the data of a job must be brought to a node."""
        if in_place(facts, spec):
            return False
        if claim.binding == _PLAIN and not (
            spec.inputs or spec.outputs or spec.optional_outputs or spec.cwd
            or isinstance(spec.recipe, model.Command)
        ):  # fmt: skip
            return False
        return has_data(self._guest(claim, spec), self._place.base)

    async def prepare(
        self, facts: NodeFacts, claim: moves.Claim, spec: model.JobSpec, kind: str
    ) -> tuple[bytes, list[str], model.Binding]:
        """Write the launch of a job, the files it says it writes, and what made it."""
        one = await self._read(facts, claim, spec)
        order = launch_order(one.guest, one.folders, facts, self._place, kind)
        self._keep(one)
        files = [*one.guest.outputs.values(), *one.guest.optional.values()]
        crash.point("pilot.staged")
        return text.dump(order).encode(), files, one.guest.binding

    def forget(self, key: str) -> None:
        """Forget an attempt that is over."""
        self._known.pop(key, None)

    # -- what attempts read ----------------------------------------------------------------------

    async def open(self, pilot: Pilot, key: str, sha256: str) -> tuple[int, int]:
        """Open the file here that has some content; return it and its size."""
        one = await self._find(pilot, key)
        if one.sources is None:
            one = await self._read(pilot.facts, one.guest.claim, one.guest.spec)
            self._keep(one)
        source = (one.sources or {}).get(sha256)
        if source is None:
            raise errors.Conflict("the attempt does not read this content")
        file = await anyio.to_thread.run_sync(_open, source)
        return file, source.version.size

    def _guest(self, claim: moves.Claim, spec: model.JobSpec) -> BatchJob:
        # What others submit runs elsewhere, and must not reach files of this machine.
        bounds = self._place.base if claim.owner not in {"", me()} else ""
        own = ""
        if bounds and spec.cwd and sites.steps(self._reader, [claim.job]):
            # A step of a workflow has a folder of its own, which this hub has made.
            own = template.render(spec.cwd, {})
        binding = records.read_binding(claim.binding)
        return BatchJob(claim, spec, binding, spec.base or self._place.base, bounds, own)

    async def _read(self, facts: NodeFacts, claim: moves.Claim, spec: model.JobSpec) -> Staged:
        """Find out what a job reads; all of a file may have to be read for it."""
        one = self._guest(claim, spec)
        if objection := await anyio.to_thread.run_sync(
            launch.objection, one.binding, spec.on_change
        ):
            raise JobCancelled(objection)
        files = await anyio.to_thread.run_sync(guest.wanted, one)
        sources: dict[str, Key] = {}
        for version, digest in await self._sums(files):
            one.inputs[version.path] = digest
            sources[digest.sha256] = version
        return Staged(one, NodeFolders(facts.work, one.key), sources)

    async def _sums(self, files: list[str]) -> list[tuple[Key, Digest]]:
        """Hash files; each sum belongs to the version beside it."""
        for _ in range(_ATTEMPTS):
            versions = await self._digests.versions(files)
            with contextlib.suppress(Changed):
                sums = await asyncio.gather(*map(self._digests.of_version, versions))
                return list(zip(versions, sums, strict=True))
        raise errors.Conflict("its inputs change while they are read", hint=_COMPLETE)

    def _keep(self, one: Staged) -> None:
        self._known[one.guest.key] = one
        while len(self._known) > _MOST:
            self._known.popitem(last=False)

    async def _find(self, pilot: Pilot, key: str) -> Staged:
        """Find an attempt that a pilot holds; an earlier process may have sent it there."""
        _check(pilot, key)
        if known := self._known.get(key):
            return known
        found: list[tuple[moves.Claim, model.JobSpec]] = []

        def read(ledger: TurnRecords, db: Db, _now: float) -> None:
            ids = text.dump([int(key.partition(".")[0])])
            for row in db.rows("claim_again", ids=ids):
                claim = moves.Claim(*row)
                found.append((claim, ledger.specs.get(db, claim.spec)))

        await self._queue.do(read)
        _check(pilot, key)
        claim, spec = found[-1]
        one = Staged(self._guest(claim, spec), NodeFolders(pilot.facts.work, key))
        guest.prepare(one.guest, one.folders, self._place, python="", sandbox=None)
        self._keep(one)
        return one

    # -- what attempts leave ---------------------------------------------------------------------

    async def expect(self, pilot: Pilot, key: str, found: Mapping[str, Any]) -> ReturnedOutputs:
        """Return the outputs of an attempt that must be sent here; existing ones are left out."""
        one = await self._find(pilot, key)
        return await anyio.to_thread.run_sync(_expect, one, found)

    async def land(self, pilot: Pilot, key: str, arrival: ReturnedOutputs) -> None:
        """Put what an attempt has left in its place, if it is the one that its job is in."""
        job = int(key.partition(".")[0])

        def show(ledger: TurnRecords, _db: Db, _now: float) -> None:
            place_ = ledger.holder.get(job)
            lease = place_.leases.get(job) if place_ else None
            mine = place_ is not None and place_.number == pilot.number
            if lease is None or not mine or key != f"{job}.{lease.attempt}":
                raise errors.Conflict(f"attempt {key} no longer belongs to this pilot")
            arrival.show()
            crash.point("pilot.landed")

        crash.point("pilot.arrived")
        await self._queue.do(show)
        await anyio.to_thread.run_sync(_settle, arrival)


def _check(pilot: Pilot, key: str) -> None:
    if not pilot.holds(key):
        raise errors.Conflict(f"attempt {text.show(key)[:100]} no longer belongs to this pilot")


def _open(source: Key) -> int:
    changed = errors.Conflict(f"{text.show(source.path)} has changed since it was read")
    try:
        file = os.open(source.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise changed from error
    if Version.of(os.fstat(file)) != source.version:
        os.close(file)
        raise changed
    return file


def _expect(one: Staged, found: Mapping[str, Any]) -> ReturnedOutputs:
    coming = guest.homeward(one.guest, one.folders, found)
    places = [landing.lay_out(each) for each in coming]
    files = [file for each in places for file in each.files if not _is_here(file)]
    return ReturnedOutputs([Landing(file) for file in files], places)


def _is_here(wanted: WantedFile) -> bool:
    """Return whether a file arrived before, and the acknowledgement was lost."""
    with contextlib.suppress(OSError):
        facts = os.lstat(wanted.local)
        alike = stat.S_ISREG(facts.st_mode) and facts.st_size == wanted.size
        return alike and content.sha256(wanted.local) == wanted.sha256
    return False


def _settle(arrival: ReturnedOutputs) -> None:
    for folder in {os.path.dirname(file.wanted.local) for file in arrival.files}:
        # A new folder was flushed before it got its name, and has its old one no more.
        with contextlib.suppress(FileNotFoundError):
            durable.sync_folder(folder)
