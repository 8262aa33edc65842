"""Config files of users, read into parameters by the site's own parser program.

A parser reads text of a stranger: it gets a clean environment and little time and memory, and its
output is checked as if the stranger had sent it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE

import anyio
import msgspec
from anyio.abc import ByteReceiveStream, Process

from pilotage.agent.app import bounded, command
from pilotage.agent.app.model import Application, Config
from pilotage.base import errors, paths, text, units
from pilotage.bus import wire

#: The most bytes of a config, and of what a parser prints.
MOST_CONFIG_BYTES = 262_144
_MOST_PRINTED_BYTES = 262_144
_MOST_LINES = 10_000
_MOST_ERRORS = 4096
_MOST_WRITTEN = 1 << 20
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
#: Environment of a parser. Its home is not the folder of the job, which has files of a stranger:
#: programs read settings, and code to run, from files at home.
CLEAN = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/nonexistent"}


class Parsed(msgspec.Struct, frozen=True):
    """The content of a config."""

    parameters: dict[str, object] = {}
    words: tuple[str, ...] = ()


async def parse(app: Application, folder: str, file: str) -> Parsed:
    """Read a config file; `file` is below the folder of the job."""
    if app.config is None:
        raise errors.Denied("the application reads no config")
    path = inside(folder, file)
    if app.config.program:
        printed = await _run(app.config, folder, path)
    else:
        printed = _head(path)
    return read(app.config, printed)


def read(config: Config, printed: bytes) -> Parsed:
    """Decode a config, or the output of its parser; values are not checked yet."""
    if config.format == "json":
        return Parsed(parameters=wire.load(printed))
    try:
        source = printed.decode("utf-8")
    except UnicodeDecodeError as error:
        raise errors.BadMessage(f"the config is not UTF-8: byte {error.start}") from None
    if config.format == "keys":
        return Parsed(parameters=dict(keys(source)))
    if len(source) > MOST_CONFIG_BYTES or "\0" in source:
        raise errors.BadMessage("the config has unreadable characters")
    try:
        return Parsed(words=tuple(shlex.split(source)))
    except ValueError as error:
        raise errors.BadMessage(f"the config cannot be split into words: {error}") from None


def keys(source: str) -> dict[str, str]:
    """Read lines of `key = value`; `#` begins a comment, and blank lines mean nothing."""
    found: dict[str, str] = {}
    lines = source.split("\n")
    if len(lines) > _MOST_LINES:
        raise errors.BadMessage(f"the config has {len(lines)} lines; the limit is {_MOST_LINES}")
    for number, line in enumerate(lines, start=1):
        bare = line.strip()
        if not bare or bare.startswith("#"):
            continue
        key, equals, value = (part.strip() for part in bare.partition("="))
        if not equals or not _KEY.fullmatch(key):
            raise errors.BadMessage(f"line {number} of the config is not `key = value`")
        if key in found:
            raise errors.BadMessage(f"line {number} of the config has `{key}` once more", field=key)
        found[key] = value
    return found


def inside(folder: str, file: str) -> str:
    """Return the absolute path of a file below a folder; a link may not lead out of it."""
    if reason := command.outside(file):
        raise errors.Denied(f"{text.show(file)} is not below the job's folder: {reason}")
    path = os.path.realpath(os.path.join(folder, file))
    if not paths.contains(folder, path):
        raise errors.Denied(f"{text.show(file)} leads out of the job's folder")
    if not os.path.isfile(path):
        raise errors.NotFound(f"there is no file {text.show(file)} in the job's folder")
    return path


def _head(path: str) -> bytes:
    try:
        return paths.read(path, MOST_CONFIG_BYTES)
    except errors.TooLarge:
        raise errors.TooLarge(f"the config has more than {MOST_CONFIG_BYTES} bytes") from None


async def _run(config: Config, folder: str, path: str) -> bytes:
    """Run a parser, and return what it printed."""
    seconds = units.seconds(config.time)
    limits = {
        "cpu": int(seconds) + 1, "as": units.size(config.memory), "fsize": _MOST_WRITTEN,
        "nofile": 64, "core": 0,
    }  # fmt: skip
    words = [path if word == "{file}" else word for word in config.program]
    argv = [
        sys.executable, "-I", "-S", bounded.__file__,
        *(f"{name}={value}" for name, value in limits.items()), "--", *words,
    ]  # fmt: skip
    process = await anyio.open_process(
        argv, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=folder, start_new_session=True,
        env=CLEAN,
    )  # fmt: skip
    printed, said = bytearray(), bytearray()
    try:
        with anyio.move_on_after(seconds) as scope:
            await _listen(process, printed, said)
    finally:
        _end(process)
        with anyio.CancelScope(shield=True):
            await process.aclose()
    name = Path(words[0]).name
    if scope.cancelled_caught:
        raise errors.TimedOut(f"{name} did not read the config within {seconds:g} s")
    if len(printed) > _MOST_PRINTED_BYTES:
        raise errors.TooLarge(f"{name} printed more than {_MOST_PRINTED_BYTES} bytes")
    if process.returncode:
        told = text.show(said.decode("utf-8", "replace").strip()[:_MOST_ERRORS])
        message = f"{name} refused the config with status {process.returncode}: {told}"
        raise errors.Denied(message)
    return bytes(printed)


async def _listen(process: Process, printed: bytearray, said: bytearray) -> None:
    """Read the output of a program until it ends or exceeds the limit."""

    async def take(stream: ByteReceiveStream, into: bytearray, most: int) -> None:
        async for part in stream:
            into += part[: most + 1 - len(into)]
            if len(into) > most and into is printed:
                _end(process)
                return

    async with anyio.create_task_group() as group:
        if process.stdout and process.stderr:
            group.start_soon(take, process.stdout, printed, _MOST_PRINTED_BYTES)
            group.start_soon(take, process.stderr, said, _MOST_ERRORS)
    await process.wait()


def _end(process: Process) -> None:
    """End a program and all that it started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
