"""Data of jobs at sites with an agent, by a transfer server or by the hub's own port."""

from __future__ import annotations

import base64
import functools
import hashlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

import anyio
from anyio.to_thread import run_sync

from pilotage.base import durable, errors, text
from pilotage.bus.model import Input
from pilotage.edge import handoff, reach, records
from pilotage.edge.handoff import HUB, InputPiece
from pilotage.edge.inspect import Inspector
from pilotage.edge.publish import ASIDE, INPUTS, NOWHERE, Publisher
from pilotage.edge.reach import Reach
from pilotage.project import settings
from pilotage.project.folder import ProjectFolder
from pilotage.project.settings import FLOWS
from pilotage.store import Db

_log = logging.getLogger("pilotage.edge")
#: Where data of jobs lies below the store, beside that of workflows.
_JOBS = "jobs"
_ATTEMPT = re.compile(r"([0-9]+)\.([0-9]+)")
#: Transfers at once.
_AT_ONCE = 16


class EdgeData:
    """Transfers inputs and outputs of jobs; see `edge.place.SiteData`."""

    def __init__(self, project: ProjectFolder, reader: Db) -> None:
        """Take the settings of the project, and a connection that is read from."""
        flows = project.settings.flows
        self._root, self._reader = project.root, reader
        self._scratch = project.state / FLOWS / "scratch"
        self._port = None if flows.data else settings.port_folder(project.state) / _JOBS
        self._stores = reach.stores(flows, project.state, reader)
        self._reach = Reach(flows, project.root, project.state)
        self._publisher = Publisher(self._reach, self._stores, project.root, self._scratch)
        self._inspector = Inspector(self._reach.inside, self._stores, self._scratch)
        self._lanes = anyio.Semaphore(_AT_ONCE)
        #: By attempt, what was published for it; the store knows only those that were sent.
        self._uses: dict[tuple[int, int], set[str]] = {}

    async def publish(
        self, attempt: tuple[int, int], paths: Mapping[str, str], site: str, *, carried: int
    ) -> tuple[Input, ...]:
        """Put files of the project where a site can fetch them; each has its path there.

        Small ones go with the message, which carries at most `carried` bytes of them.
        """
        found = await run_sync(self._small, paths, carried) if carried else {}
        if len(found) < len(paths) and not self._stores.reaches(site):
            raise errors.UsageError(NOWHERE)
        uses = self._uses.setdefault(attempt, set())
        for path, there in paths.items():
            if path in found:
                continue
            own = path.removeprefix(f"{self._root}/")
            async with self._lanes:
                piece = await self._publisher.own(_JOBS, InputPiece(own, there), uses.add)
            url = handoff.seen(self._stores, piece.url, site)
            found[path] = Input(url=url, path=there, sha256=piece.sha256)
        return tuple(found.values())

    def _small(self, paths: Mapping[str, str], left: int) -> dict[str, Input]:
        """Read small files that go with the message, up to its limit."""
        found = {}
        for path, there in paths.items():
            body = self._publisher.small(path.removeprefix(f"{self._root}/"), left)
            if body is not None:
                left -= len(body)
                content, digest = base64.b64encode(body).decode(), hashlib.sha256(body).hexdigest()
                found[path] = Input(path=there, sha256=digest, content=content)
        return found

    def folder(self, job: int, number: int, site: str) -> tuple[str, str]:
        """Name the folder for the outputs of an attempt: as the site names it, and as we do."""
        store = handoff.base(self._stores, site, [HUB])
        if store is None:
            raise errors.UsageError(NOWHERE)
        made = handoff.place(store, f"{_JOBS}/{self._mark()}/{job}.{number}/")
        return made.write, made.read

    def _mark(self) -> str:
        """Return a name of this project at a transfer server that several projects use."""
        return hashlib.sha256(os.fsencode(self._root)).hexdigest()[:16]

    async def home(self, place: str, digest: str, files: Mapping[str, str]) -> None:
        """Fetch outputs; `files` has the target by path in the folder."""
        async with self._lanes:
            found = await self._inspector.look(place, digest)
            if found.trouble:
                raise errors.Damaged(found.trouble)
            aside = self._scratch / secrets.token_hex(8)
            try:
                await self._reach.inside.fetch(found.url, str(aside), pinned=found.digest)
                await run_sync(_deliver, aside, files)
            finally:
                await run_sync(lambda: shutil.rmtree(aside, ignore_errors=True))

    # -- cleanup ---------------------------------------------------------------------------------

    async def clear(self, attempt: tuple[int, int], site: str, *, left: bool) -> None:
        """Remove what was published for an attempt that is over, and what it has `left`, if any."""
        # An earlier process may have published some of it.
        before = records.reads(self._reader, attempt) if self._port else []
        uses = self._uses.pop(attempt, set()) | {_published(path) for path in before}
        try:
            if left:
                _, place = self.folder(*attempt, site)
                url = handoff.seen(self._stores, place, HUB).rstrip("/")
                top, _, name = url.rpartition("/")
                await self._reach.inside.clear(f"{url}/", f"{top}/{ASIDE}{name}/")
        finally:
            # At a transfer server it stays for other attempts, until its owner clears that.
            for name in uses if self._port else ():
                await self._publisher.remove(name, functools.partial(self._unused, name))

    def _unused(self, name: str) -> bool:
        """Return whether no attempt reads the data published under a name."""
        return not any(name in some for some in self._uses.values()) and not records.used(
            self._reader, name
        )

    async def sweep(self) -> None:
        """Remove what an earlier process left at the port for attempts that are over."""
        if self._port is None:
            return
        try:
            await self._sweep(self._port)
        except (errors.PilotageError, OSError) as error:
            _log.warning("data of jobs that are over stays at the port: %s", error)

    async def _sweep(self, port: Path) -> None:
        for name in await run_sync(_names, port / INPUTS):
            published = f"{_JOBS}/{INPUTS}/{name}/"
            await self._publisher.remove(published, functools.partial(self._unused, published))
        for name in await run_sync(_names, port / self._mark()):
            found = _ATTEMPT.fullmatch(name)
            if found is None or not records.leaves(self._reader, int(found[1]), int(found[2])):
                gone = port / self._mark() / name
                await run_sync(functools.partial(shutil.rmtree, gone, ignore_errors=True))


def _published(path: str) -> str:
    """Return the name under which a file was published that an attempt reads."""
    return "/".join(path.split("/")[:3]) + "/"


def _names(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.is_dir() else []


def _move(source: Path, target: str) -> None:
    """Move a file to its place, with a new modification time as if a job here had written it."""
    try:
        os.rename(source, target)
    except OSError:
        # The project may be on another file system.
        shutil.copyfile(source, target)
    os.utime(target)


def _deliver(aside: Path, files: Mapping[str, str]) -> None:
    """Move files that have arrived to their places, each atomically."""
    for below, target in files.items():
        source = aside / below
        if not source.exists():
            raise errors.NotFound(f"declared output is missing: {text.show(target)}")
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
            continue
        part = durable.hidden(target)
        try:
            _move(source, part)
            durable.sync_file(part)
            durable.rename(part, target)
        finally:
            Path(part).unlink(missing_ok=True)
