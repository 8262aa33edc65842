"""Put a job's inputs into its sandbox, and take out what it has left there."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path

from pilotage.base import errors

_NOT_LINKED = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EACCES, errno.ENOTSUP}


def lay(folder: Path, inputs: Mapping[str, Path]) -> list[str]:
    """Put inputs into a folder by relative name; return the names, which are for reading only.

    A file is there as a hard link if both are on one file system, else as a copy. Links are
    followed, as the user made them: what they lead to is what the rule asked for.
    """
    for name, source in inputs.items():
        target = _below(folder, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        real = Path(os.path.realpath(source))
        if real.is_dir():
            shutil.copytree(real, target, copy_function=_link_or_copy)
        else:
            _link_or_copy(real, target)
    return list(inputs)


def take(folder: Path, name: str) -> Path:
    """Name what a job has left in a closed sandbox, to be published by renaming it.

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


def _check(top: Path, name: str) -> None:
    for place, folders, files in os.walk(top):
        for one in (*folders, *files):
            path = os.path.join(place, one)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode) and _leads_out(path, top):
                raise errors.Denied(f"the output {name} has a link that leads out of it: {one}")
            if not stat.S_ISLNK(mode) and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                raise errors.Denied(f"the output {name} has something that is no file: {one}")


def _leads_out(path: str, top: Path) -> bool:
    """Tell whether a link leads out of a folder, also if the folder is elsewhere one day."""
    depth = len(Path(path).relative_to(top).parts) - 1
    text = os.readlink(path)
    for step in text.split("/"):
        depth += -1 if step == ".." else step not in {"", "."}
        if depth < 0:
            return True
    real = os.path.realpath(path)
    return os.path.isabs(text) or not f"{real}/".startswith(f"{os.path.realpath(top)}/")


def _below(folder: Path, name: str) -> Path:
    """Make the path of a name, which must stay within the folder."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise errors.UsageError(f"{name!r} is no name within a sandbox")
    return folder.joinpath(*parts)


def _link_or_copy(source: str | Path, target: str | Path) -> None:
    try:
        os.link(os.path.realpath(source), target)
    except OSError as error:
        if error.errno not in _NOT_LINKED:
            raise
        shutil.copy2(source, target)
