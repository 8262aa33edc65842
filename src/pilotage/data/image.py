"""Images of the user's machine that travel to where a job runs, as inputs do."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from pathlib import Path
from typing import Literal

import anyio
import anyio.to_thread
import msgspec

from pilotage.base import durable, errors, paths

_MAGIC = b"SIF_MAGIC"
_MAGIC_AT = 32
_NUMBER = re.compile(r"[0-9a-f]{64}")
_HINT = "`podman save --format oci-archive -o FILE IMAGE` writes one"
#: The files that tell that an archive is an image, of one format or the other.
_SIGNS = ("oci-layout", "manifest.json")
#: A program that tells about an image answers soon; one that writes it may take long.
_ASK_SECONDS = 60.0
_SAVE_SECONDS = 3600.0


class Pushed(msgspec.Struct, frozen=True, kw_only=True):
    """An image that is brought to the site: a file, which is staged by its content."""

    #: The file on this machine.
    path: str
    kind: Literal["archive", "sif"]
    #: As the rule names it.
    name: str

    def item(self, sha256: str) -> dict[str, str]:
        """Return the image as the job's program on the node reads it."""
        return {"sha256": sha256, "kind": self.kind, "name": self.name}


class Images:
    """Finds the files of images; those of podman are written once for each number of an image."""

    def __init__(self, project: Path, kept: Path) -> None:
        self._project = project
        self._kept = kept
        self._lock = anyio.Lock()

    async def find(self, image: str) -> Pushed | None:
        """Find the file of `file:…` or `local:…`; any other image is the node's to find."""
        scheme, _, rest = image.partition(":")
        if scheme == "file":
            path = await anyio.to_thread.run_sync(_below, self._project, rest)
        elif scheme == "local":
            path = await self._saved(rest)
        else:
            return None
        kind = await anyio.to_thread.run_sync(_kind, path, image)
        return Pushed(path=str(path), kind=kind, name=image)

    async def _saved(self, name: str) -> Path:
        """Have podman write an image of this user, unless that was done before."""
        ask = ["podman", "image", "inspect", "--format", "{{.Id}}", "--", name]
        number = (await _run(ask, _ASK_SECONDS)).strip().rpartition(":")[2]
        if not _NUMBER.fullmatch(number):
            raise errors.NotFound(f"podman does not know the image {name}")
        path = self._kept / f"{number}.tar"
        async with self._lock:
            if not path.exists():
                self._kept.mkdir(mode=0o700, parents=True, exist_ok=True)
                part = path.with_suffix(".part")
                part.unlink(missing_ok=True)
                save = ["podman", "save", "--quiet", "--format", "oci-archive"]
                await _run([*save, "--output", str(part), number], _SAVE_SECONDS)
                await anyio.to_thread.run_sync(_keep, part, path)
        return path


def _keep(part: Path, path: Path) -> None:
    durable.sync_file(part)
    durable.rename(part, path)


def _below(project: Path, name: str) -> Path:
    """Find a file of the project; a link must not lead out of it."""
    path = os.path.realpath(project / name)
    if not paths.contains(project, path):
        raise errors.Denied(f"the image {name} is not in the project")
    if not os.path.isfile(path):
        raise errors.NotFound(f"there is no image {name} in the project", hint=_HINT)
    return Path(path)


def _kind(path: Path, image: str) -> Literal["archive", "sif"]:
    """Return the kind of an image file, by its content."""
    with path.open("rb") as file:
        file.seek(_MAGIC_AT)
        if file.read(len(_MAGIC)) == _MAGIC:
            return "sif"
    try:
        with tarfile.open(path) as archive:
            if any(os.path.normpath(one.name) in _SIGNS for one in archive):
                return "archive"
    except tarfile.TarError:
        pass
    raise errors.ConfigError(f"{image} is no image", hint=_HINT)


async def _run(argv: list[str], seconds: float) -> str:
    try:
        with anyio.fail_after(seconds):
            done = await anyio.run_process(argv, stdin=subprocess.DEVNULL, check=False)
    except FileNotFoundError as error:
        raise errors.Unavailable("`local:` images need podman on this machine") from error
    except TimeoutError as error:
        raise errors.TimedOut(f"`podman {argv[1]}` takes too long") from error
    if done.returncode:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())
        raise errors.NotFound(f"podman: {words}")
    return done.stdout.decode("utf-8", "replace")
