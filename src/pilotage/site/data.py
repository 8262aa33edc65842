"""The data of jobs at a site: brought there and home, or served from here while they run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread

from pilotage import errors, text
from pilotage.job import moves
from pilotage.payload.transfer.names import sync_folder
from pilotage.site import guest, output
from pilotage.site.doors import Doors
from pilotage.site.guest import Guest, Room
from pilotage.site.image import Images
from pilotage.site.jail import HOST, Jails, lay, take
from pilotage.site.remote import Remote
from pilotage.site.stage import names, place
from pilotage.site.stage.digest import Digests
from pilotage.site.stage.pull import Puller
from pilotage.site.stage.push import Pusher

_STREAMS = ("stdout", "stderr")
#: Bytes of one stream that are brought home, in all and at once.
_MOST = 10 << 20
_AT_ONCE = 1 << 20
#: Jobs whose streams are asked for together.
_TOGETHER = 64


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

    async def logs(self, some: Sequence[tuple[Guest, Room]]) -> None:
        """Bring home what jobs have written so far."""
        for at in range(0, len(some), _TOGETHER):
            left = list(some[at : at + _TOGETHER])
            while left:
                left = await self._logs(left)

    async def _logs(self, some: list[tuple[Guest, Room]]) -> list[tuple[Guest, Room]]:
        """Bring the next piece of each; return those of which there may be more."""
        streams = [(one, room, name) for one, room in some for name in _STREAMS]
        sizes = [_size(self._stream(one, name)) for one, _, name in streams]
        most = _AT_ONCE // len(some)
        wanted = [
            [f"{room.run}/{name}", at, max(0, min(most, _MOST - at))]
            for (_, room, name), at in zip(streams, sizes, strict=True)
        ]
        tails = (await self._remote.call("tails", files=wanted))["tails"]

        def write() -> list[tuple[Guest, Room]]:
            again = {}
            for (one, room, name), at, data in zip(streams, sizes, tails, strict=True):
                if data and at < _MOST:
                    jobs = str(self._state / "jobs")
                    output.write(jobs, one.claim.job, one.claim.attempt, name, at, data)
                    # On a full disk, to ask again would never end.
                    if _size(self._stream(one, name)) >= at + most:
                        again[one.attempt] = (one, room)
            return list(again.values())

        return await anyio.to_thread.run_sync(write)

    def _stream(self, one: Guest, name: str) -> str:
        jobs = str(self._state / "jobs")
        return f"{moves.attempt_dir(jobs, one.claim.job, one.claim.attempt)}/{name}"

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
        """Put what a job has left into its place, each file at once.

        It also stays where it is until the end of the job is on disk: whoever dies before that
        does all of this again.
        """
        folder = self._folder(one)
        for name, local in (one.outputs | one.optional).items():
            if not found.get(name):
                continue
            source = take(folder, guest.relative(local, one.base))
            try:
                os.makedirs(os.path.dirname(local), exist_ok=True)
                _place(source, local)
            except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
                message = f"{text.show(local)} is in the way of an output"
                raise errors.Conflict(message) from error
            except OSError as error:
                message = f"cannot write {text.show(local)}: {error.strerror}"
                raise errors.Unavailable(message) from error


def _place(source: Path, local: str) -> None:
    """Give a file or a folder its name in the project; what else is in that folder stays."""
    aside = names.aside(local, str(source))
    if source.is_dir() and os.path.lexists(local):
        for file in [one for one in source.rglob("*") if not one.is_dir()]:
            _place(file, names.inside(local, str(file.relative_to(source))))
    elif source.is_dir():
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(source, aside, copy_function=_join)
        place.Place([], aside, local).show()
    else:
        _join(str(source), aside)
        os.replace(aside, local)
        # Two names of one file stay two when one is to replace the other.
        Path(aside).unlink(missing_ok=True)
        sync_folder(os.path.dirname(local))


def _join(source: str, target: str) -> None:
    """Give a file a second name, or copy it where that cannot be done; it is on disk then."""
    Path(target).unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy(source, target)
    with open(target, "rb") as file:
        os.fsync(file.fileno())


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
