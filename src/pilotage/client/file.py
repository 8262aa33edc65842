"""Project files as arguments of calls."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pilotage.base import errors

_HINT = "name it from the project's folder, such as `data/x.csv`"


@dataclass(frozen=True, init=False)
class File:
    """A file or folder of the project, given to a function.

    Where the function runs, the argument is a `pathlib.Path`. An input is there when the function
    begins. With `output`, the function writes to the path, and the file is then brought to
    `path` in the project.
    """

    #: Its path, from the project's folder.
    path: str
    #: Whether the function writes it.
    output: bool = False

    def __init__(self, path: str | os.PathLike[str], *, output: bool = False) -> None:
        """Name a file; it need not be there yet."""
        object.__setattr__(self, "path", name(path))
        object.__setattr__(self, "output", output)


class CallFiles(msgspec.Struct):
    """The files among the arguments of one call."""

    #: Where each is: steps into `[[args, kwargs]]`, as a worker has it.
    places: list[dict[str, Any]] = []
    reads: list[str] = []
    writes: list[str] = []


def name(path: str | os.PathLike[str]) -> str:
    """Check the name of a file of the project, and write it in the one way."""
    try:
        found: object = os.fspath(path)
    except TypeError:
        found = ""
    if not isinstance(found, str) or not found or "\0" in found:
        raise errors.UsageError(f"{path!r} cannot be the name of a file", hint=_HINT)
    if found.startswith("/"):
        raise errors.UsageError(f"{found!r} is an absolute path", hint=_HINT)
    clean = posixpath.normpath(found)
    if clean == "." or clean.split("/", 1)[0] == "..":
        raise errors.UsageError(f"{found!r} is not below the project", hint=_HINT)
    return clean


def lift(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], CallFiles]:
    """Take the files out of the arguments of a call; their paths stand in for them."""
    found = CallFiles()
    # The first step leads to the call, of which there is one.
    return _lift([list(args), dict(kwargs)], [0], found), found


def _lift(value: Any, at: list[Any], found: CallFiles) -> Any:  # noqa: ANN401 - any argument
    if isinstance(value, File):
        found.places.append({"at": at, "path": value.path})
        (found.writes if value.output else found.reads).append(value.path)
        return value.path
    if isinstance(value, list | tuple):
        return [_lift(one, [*at, index], found) for index, one in enumerate(value)]
    if isinstance(value, dict):
        return {key: _lift(one, [*at, key], found) for key, one in value.items()}
    return value
