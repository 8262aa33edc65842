"""The folder of an export: prepared for a job, and checked after it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import msgspec

from pilotage.base import errors, text

#: Inputs that are mounted one by one; for bubblewrap the time grows with the square: 0.5 s for 500
#: of them, 9 s for 2000.
_MOUNTED = 256
_LENT = 0o7000
_DEEPEST = 128
_LONGEST = 3000


class Layout(msgspec.Struct, frozen=True):
    """A folder that is ready to be served."""

    folder: Path
    #: Files that are shown read-only in it, by their names within it.
    inputs: dict[str, Path]


def lay(folder: Path, inputs: Mapping[str, Path]) -> Layout:
    """Prepare a folder for a job that reads files, given by their names within the folder.

    The largest files are shown where they are; if there are very many, the others are copied. Links
    are followed, as the user made them: what they lead to is what the rule asked for.
    """
    found = [(name, *_regular(source)) for name, source in inputs.items()]
    found.sort(key=lambda one: one[2], reverse=True)
    for rank, (name, real, _) in enumerate(found):
        target = _below(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        if rank < _MOUNTED:
            target.touch()
        else:
            shutil.copy2(real, target)
    return Layout(folder, {name: real for name, real, _ in found[:_MOUNTED]})


def _regular(source: Path) -> tuple[Path, int]:
    real = Path(os.path.realpath(source))
    what = real.stat()
    if not stat.S_ISREG(what.st_mode):
        # A pipe or socket could be written to, however it is mounted.
        raise errors.Denied(f"{text.show(str(source))} is not a regular file")
    return real, what.st_size


def take(folder: Path, name: str) -> Path:
    """Return the path of an output in a closed export, to be published.

    Raises `NotFound` if it is not there, and `Denied` for what would be more than its own data: a
    link that leads out of it, or something that is neither a file nor a folder.
    """
    target = _below(folder, name)
    for above in reversed(target.relative_to(folder).parents):
        if (folder / above).is_symlink():
            raise errors.Denied(f"the output {name} lies behind a link")
    try:
        what = target.lstat()
    except OSError as error:
        raise errors.NotFound(f"there is no output {name}") from error
    if stat.S_ISREG(what.st_mode):
        return target
    if not stat.S_ISDIR(what.st_mode):
        raise errors.Denied(f"the output {name} is a link, not a file")
    _check(target, name)
    return target


def reclaim(folder: Path) -> None:
    """Let the owner read and remove all of a closed export, and remove set-user-ID bits.

    Raises `Denied` if folders are nested so deep that they cannot be walked.
    """
    left = [folder] if folder.exists() else []
    while left:
        one = left.pop()
        if len(one.parts) - len(folder.parts) > _DEEPEST or len(os.fsencode(one)) > _LONGEST:
            raise errors.Denied("the job has left folders that are nested too deep")
        _own(one, 0o700)
        with os.scandir(one) as found:
            for each in found:
                if each.is_dir(follow_symlinks=False):
                    left.append(Path(each.path))
                else:
                    _own(Path(each.path), 0o400)


def remove(folder: Path) -> None:
    """Remove the folder of a closed export, whatever is in it."""
    with contextlib.suppress(errors.Denied, OSError):
        reclaim(folder)
    # The functions of Python give up on folders that are nested deep.
    subprocess.run(["rm", "-rf", "--", str(folder)], check=False, capture_output=True)


def _own(path: Path, kept: int) -> None:
    before = path.lstat().st_mode
    after = (stat.S_IMODE(before) & ~_LENT) | kept
    if not stat.S_ISLNK(before) and after != stat.S_IMODE(before):
        path.chmod(after)


def _check(top: Path, name: str) -> None:
    for place, folders, files in os.walk(top):
        for one in (*folders, *files):
            path = os.path.join(place, one)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode) and _leads_out(path, top):
                raise errors.Denied(f"the output {name} has a link that leads out of it: {one}")
            if not stat.S_ISLNK(mode) and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise errors.Denied(f"the output {name} has an entry that is not a file: {one}")


def _leads_out(path: str, top: Path) -> bool:
    """Return whether a link leads out of a folder, also if the folder is moved one day."""
    depth = len(Path(path).relative_to(top).parts) - 1
    to = os.readlink(path)
    for step in to.split("/"):
        depth += -1 if step == ".." else step not in {"", "."}
        if depth < 0:
            return True
    real = os.path.realpath(path)
    return os.path.isabs(to) or not f"{real}/".startswith(f"{os.path.realpath(top)}/")


def _below(folder: Path, name: str) -> Path:
    """Return the path of a name, which must stay within the folder."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise errors.UsageError(f"{name!r} is not a name within an export")
    return folder.joinpath(*parts)
