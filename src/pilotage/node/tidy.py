"""Remove folders of payloads safely: no permission or link in them gets in the way."""

from __future__ import annotations

import contextlib
import os
import stat

_STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: str) -> None:
    """Remove a folder; what cannot be removed stays, links and mounts are not followed."""
    with contextlib.suppress(OSError, RecursionError):
        _remove(os.path.basename(folder), os.path.dirname(folder), None)


def empty(folder: str) -> None:
    """Remove what is in a folder."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            remove(os.path.join(folder, name))


def _remove(name: str, above: int | str, device: int | None) -> None:
    """Remove a folder and all in it, as far as it is of the same device."""
    outer = os.open(above, _STEP) if isinstance(above, str) else above
    try:
        inner = _open(name, outer)
        try:
            found = os.fstat(inner).st_dev
            # Behind a mount are the files of somebody else.
            if found == (found if device is None else device):
                _empty(inner, found)
        finally:
            os.close(inner)
        with contextlib.suppress(OSError):
            os.rmdir(name, dir_fd=outer)
    finally:
        if outer != above:
            os.close(outer)


def _empty(at: int, device: int) -> None:
    with contextlib.suppress(OSError):
        os.fchmod(at, stat.S_IRWXU)
    for name in os.listdir(at):
        try:
            os.unlink(name, dir_fd=at)
        except (IsADirectoryError, PermissionError):
            with contextlib.suppress(OSError):
                _remove(name, at, device)
        except OSError:
            continue


def _open(name: str, above: int) -> int:
    """Open a folder, also one that a payload made unreadable."""
    try:
        return os.open(name, _STEP, dir_fd=above)
    except PermissionError:
        os.chmod(name, stat.S_IRWXU, dir_fd=above)
        return os.open(name, _STEP, dir_fd=above)
