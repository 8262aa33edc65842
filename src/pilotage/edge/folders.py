"""Folders of jobs: inputs are put in their places, and outputs are collected and sent.

An agent uses the same for its jobs. All steps may be repeated after a restart: inputs that have
arrived are not fetched again. Paths in messages are checked where they are used: no link leads out.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from anyio.to_thread import run_sync

from pilotage.base import durable, errors, paths, text
from pilotage.batch.data import join
from pilotage.data.transfer import tree
from pilotage.data.transfer.courier import Courier
from pilotage.edge import reach
from pilotage.edge.handoff import InputPiece
from pilotage.edge.reach import Reach


async def bring(here: Reach, root: Path, pieces: Sequence[InputPiece], folder: Path) -> int:
    """Fetch inputs into a folder; return their size in bytes."""
    done, aside = folder.with_name(f"{folder.name}.read"), folder.with_name(f"{folder.name}.in")
    before = await run_sync(_begin, folder, aside)
    if before is not None:
        return before
    size = 0
    for at, piece in enumerate(pieces):
        courier, address = _source(here, root, piece)
        target = str(aside / str(at))
        receipt = await courier.fetch(address, target, replace=True, pinned=piece.sha256)
        await run_sync(_put, piece, target, receipt.folder, folder)
        size += receipt.bytes
    await run_sync(_end, done, size, aside)
    return size


def read(folder: Path) -> int | None:
    """Return the bytes of all inputs of a folder; none if they are incomplete."""
    try:
        return int(folder.with_name(f"{folder.name}.read").read_text("ascii") or 0)
    except FileNotFoundError:
        return None


def _source(here: Reach, root: Path, piece: InputPiece) -> tuple[Courier, str]:
    if "://" not in piece.url:
        return here.own, reach.own(root, piece.url)
    return (here.inside if piece.own else here.outside), piece.url


def _begin(folder: Path, aside: Path) -> int | None:
    """Return the bytes of inputs; if they are incomplete, remove them and return none."""
    before = read(folder)
    if before is None:
        for one in (folder, aside):
            # An interrupted run may have moved some of its files.
            shutil.rmtree(one, ignore_errors=True)
            one.mkdir(parents=True, exist_ok=True)
    return before


def _put(piece: InputPiece, target: str, is_folder: bool, folder: Path) -> None:  # noqa: FBT001 - for a thread
    if piece.sha256 and not is_folder:
        _check(piece, target)
    put_in_place(piece.path, target, is_folder, str(folder))


def _check(piece: InputPiece, target: str) -> None:
    (item,) = tree.walk(target)
    with paths.opened(target, item.name) as file:
        found = tree.digest(file)
    if found != piece.sha256:
        message = f"{piece.url} has the SHA-256 {found} instead of {piece.sha256}"
        raise errors.Conflict(message)


def _end(done: Path, size: int, aside: Path) -> None:
    durable.swap(done, str(size))
    durable.sync_folder(done.parent)
    shutil.rmtree(aside, ignore_errors=True)


async def gather(folder: Path, outputs: Sequence[str]) -> str:
    """Return a folder with the outputs of a job, by their paths."""
    named = [(one, one) for one in outputs]
    return await run_sync(collect, str(folder), named, f"{folder}.out")


async def send(
    courier: Courier, folder: Path, source: str, address: str, *, resend: bool = False
) -> None:
    """Send collected outputs to their URL; the manifest comes last.

    With `resend`, files are sent again even if the manifest lists them.
    """
    try:
        await courier.send(source, address, replace=True, resend=resend)
    except (errors.Conflict, errors.Damaged):
        # No other attempt writes there: these files are not outputs of the job.
        await courier.send(source, address, resend=True)
    await run_sync(functools.partial(shutil.rmtree, f"{folder}.out", ignore_errors=True))


def put_in_place(given: str, source: str, folder: bool, home: str) -> None:  # noqa: FBT001 - a thread's
    """Move an input that has arrived, a folder or one file, to its place in the job's folder."""
    path = given.removesuffix("/")
    named = path and not folder and not given.endswith("/")
    try:
        if folder and _whole(source, paths.inside(home, path) if path else home):
            return
        for item in tree.walk(source):
            name = path if named else f"{path}/{item.name}".removeprefix("/")
            os.rename(os.path.join(source, item.name), paths.inside(home, name))
    except (IsADirectoryError, NotADirectoryError, FileExistsError) as error:
        message = f"the inputs have {text.show(path or home)} as a file and as a folder"
        raise errors.Conflict(message) from error


def _whole(source: str, target: str) -> bool:
    """Move a folder as a whole, if nothing is in its place yet: it may hold very many files."""
    with contextlib.suppress(OSError):
        os.chmod(source, 0o700)
        os.rename(source, target)
        return True
    return False


def collect(folder: str, outputs: Iterable[tuple[str, str]], aside: str) -> str:
    """Return the path to send to one URL: one output, or a folder with links to all of them.

    Each output has its path, and its name at the URL.
    """
    sources = [(output_path(folder, path), below.removesuffix("/")) for path, below in outputs]
    if len(sources) == 1 and _as_it_is(*sources[0]):
        return sources[0][0]
    shutil.rmtree(aside, ignore_errors=True)
    os.makedirs(aside, mode=0o700)
    for source, below in sources:
        for path, name in _named(source, below):
            target = paths.inside(aside, name)
            if os.path.lexists(target):
                raise errors.Conflict(f"two outputs have the name {text.show(name)}")
            join(os.path.realpath(path), target)
    return aside


def _as_it_is(source: str, below: str) -> bool:
    """Return whether an output has its right name without any folder made for it."""
    return below in ("" if os.path.isdir(source) else os.path.basename(source), "")


def _named(source: str, below: str) -> Iterator[tuple[str, str]]:
    """List the files of an output, and what each is called at its URL."""
    if not os.path.isdir(source):
        yield source, below or os.path.basename(source)
        return
    for item in tree.walk(source):
        yield os.path.join(source, item.name), f"{below}/{item.name}".removeprefix("/")


def output_path(folder: str, path: str) -> str:
    """Return where an output is; no part of its path may be a link."""
    home = real_folder(folder)
    whole = os.path.join(home, path.removesuffix("/")) if path else home
    if os.path.realpath(whole) != whole:
        raise errors.Denied(f"the output {text.show(path)} is a link, or behind one")
    if not os.path.exists(whole):
        raise errors.NotFound(f"there is no output {text.show(path)}")
    return whole


def real_folder(folder: str) -> str:
    """Return where the folder of a job really is; it may have been replaced by a link."""
    above = os.path.dirname(folder)
    if os.path.islink(folder) or os.path.islink(above):
        raise errors.Denied(f"{text.show(folder)} is a link")
    return os.path.join(os.path.realpath(above), os.path.basename(folder))
