"""The data of jobs at a site: brought there and home, or served from here while they run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import anyio.to_thread

from pilotage import errors
from pilotage.job import moves
from pilotage.site import guest, output
from pilotage.site.doors import Doors
from pilotage.site.guest import Guest, Room
from pilotage.site.image import Images
from pilotage.site.jail import HOST, Jails, lay, take
from pilotage.site.remote import Remote
from pilotage.site.stage.digest import Digests
from pilotage.site.stage.pull import Puller
from pilotage.site.stage.push import Pusher

_STREAMS = ("stdout", "stderr")
#: Bytes of one stream that are brought home, in all and at once.
_MOST = 10 << 20
_AT_ONCE = 1 << 20


class Carrier:
    """Sees to the data of all jobs of a site."""

    def __init__(
        self, remote: Remote, doors: Doors, state: Path, digests: Digests, jails: Jails,
        images: Images,
    ) -> None:  # fmt: skip
        """Keep what is served below `state`; worker nodes come to it through `doors`."""
        self._images = images
        self._remote = remote
        self._doors = doors
        self._state = state
        self._digests = digests
        self._jails = jails
        self._pusher: Pusher | None = None
        self._puller: Puller | None = None

    async def bring(self, one: Guest) -> None:
        """Have all that a job reads at the site, or ready to be mounted there."""
        files = await anyio.to_thread.run_sync(guest.wanted, one)
        pusher = await self._push()
        if one.spec.data == "mounted":
            await self._serve(one, files)
        elif files:
            one.inputs = await pusher.bring(files)
        if one.spec.image and (pushed := await self._images.find(one.spec.image)):
            found = await pusher.bring([pushed.path])
            one.image = pushed.item(found[pushed.path].sha256)

    async def home(self, one: Guest, room: Room, found: dict[str, Any]) -> None:
        """Bring home what a job has left, checked against its evidence."""
        if one.spec.data == "mounted":
            await self._jails.close(self._name(one))
            await anyio.to_thread.run_sync(self._publish, one, found)
            return
        if self._puller is None:
            self._puller = Puller(self._remote, room.root)
        await self._puller.fetch(guest.homeward(one, room, found))

    async def logs(self, one: Guest, room: Room) -> None:
        """Bring home what a job has written so far."""
        folder = moves.attempt_dir(str(self._state / "jobs"), one.claim.job, one.claim.attempt)
        more = True
        while more:
            sizes = [_size(f"{folder}/{name}") for name in _STREAMS]
            wanted = [
                [f"{room.run}/{name}", at, min(_AT_ONCE, _MOST - at)]
                for name, at in zip(_STREAMS, sizes, strict=True)
            ]
            tails = (await self._remote.call("tails", files=wanted))["tails"]
            more = False
            for name, at, data in zip(_STREAMS, sizes, tails, strict=True):
                if data and at < _MOST:
                    output.write(
                        str(self._state / "jobs"), one.claim.job, one.claim.attempt, name, at, data
                    )
                    more = more or len(data) >= _AT_ONCE

    async def leave(self, one: Guest) -> None:
        """Serve nothing any more for a job."""
        # Also what an earlier process served: that is not known of the guest any more.
        if one.spec.data == "mounted":
            await self._jails.close(self._name(one))
            await anyio.to_thread.run_sync(_remove, self._folder(one))

    async def close(self) -> None:
        """Give up what is on its way."""
        for one in (self._pusher, self._puller):
            if one is not None:
                await one.close()

    async def _push(self) -> Pusher:
        if self._pusher is None:
            root = (await self._remote.ready()).root
            self._pusher = Pusher(self._remote, root, self._digests)
        return self._pusher

    # -- mounted ---------------------------------------------------------------------------------

    def _name(self, one: Guest) -> str:
        return f"{self._remote.name}.{one.key}"

    def _folder(self, one: Guest) -> Path:
        return self._state / "mounted" / self._name(one)

    async def _serve(self, one: Guest, files: list[str]) -> None:
        """Lay a job's inputs out in a folder of its own, and serve that to it alone."""
        folder = self._folder(one)
        await self._jails.close(self._name(one))

        def furnish() -> list[str]:
            _remove(folder)
            folder.mkdir(parents=True, mode=0o700)
            return lay(folder, {guest.relative(path, one.base): Path(path) for path in files})

        readonly = await anyio.to_thread.run_sync(furnish)
        access = await self._jails.open(self._name(one), folder, readonly=readonly)
        number = await self._doors.open("data", access.port)
        one.mount = {
            "host": self._doors.host, "port": number, "user": access.user,
            "key": access.private_key, "known_hosts": access.host_key, "alias": HOST,
            "options": [],
        }  # fmt: skip

    def _publish(self, one: Guest, found: dict[str, Any]) -> None:
        """Move what a job has left into its place, each file at once."""
        folder = self._folder(one)
        for name, local in (one.outputs | one.optional).items():
            if not found.get(name):
                continue
            source = take(folder, guest.relative(local, one.base))
            target = Path(local)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                _replace(source, target)
            except OSError as error:
                message = f"cannot write {local}: {error.strerror}"
                raise errors.Unavailable(message) from error


def _replace(source: Path, target: Path) -> None:
    if target.is_dir():
        shutil.rmtree(target)
    part = target.with_name(f".{target.name}.part")
    shutil.move(source, part)
    os.replace(part, target)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
