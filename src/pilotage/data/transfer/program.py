"""External programs that move data: argv lists, a minimal environment, no terminal."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

import msgspec

from pilotage.base import errors

_LONGEST_LINE = 1 << 16
_TAIL = 4000
#: What a program may know of our environment: where things are, and the agent of ssh's keys.
_PASSED = ("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "KRB5CCNAME")


class ProgramResult(msgspec.Struct, frozen=True):
    """The exit code of a program, and the last lines of its errors."""

    status: int
    words: str


@contextlib.asynccontextmanager
async def running(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None, stdin: int = DEVNULL,
    stdout: int = PIPE,
) -> AsyncIterator[Process]:  # fmt: skip
    """Have a program run within the block; it and its children end with the block."""
    bare = {name: os.environ[name] for name in _PASSED if name in os.environ}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, env=bare | {"LC_ALL": "C.UTF-8", "TZ": "UTC"} | dict(env or {}), stdin=stdin,
            stdout=stdout, stderr=PIPE, start_new_session=True, limit=_LONGEST_LINE,
        )  # fmt: skip
    except FileNotFoundError as error:
        hint = f"install {argv[0]} at the site"
        raise errors.PilotageError(f"there is no program {argv[0]}", hint=hint) from error
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        await asyncio.shield(process.wait())
        # Pipes are closed in the next round of the loop, which may be its last.
        await asyncio.sleep(0)


async def words(process: Process) -> str:
    """Read the error output of a program; the last lines are kept."""
    said = b""
    while process.stderr is not None and (data := await process.stderr.read(_LONGEST_LINE)):
        said = (said + data)[-_TAIL:]
    return said.decode("utf-8", "replace")


async def run(
    argv: Sequence[str], *, given: bytes = b"", env: Mapping[str, str] | None = None
) -> ProgramResult:
    """Run a program to its end; discard its output."""
    async with running(argv, env=env, stdin=PIPE, stdout=DEVNULL) as process:
        said = asyncio.create_task(words(process))
        assert process.stdin is not None  # noqa: S101 - asked for above
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(given)
            await process.stdin.drain()
        process.stdin.close()
        status = await process.wait()
        return ProgramResult(status, await said)


async def lines(
    argv: Sequence[str], *, env: Mapping[str, str] | None = None
) -> AsyncGenerator[bytes | ProgramResult, None]:
    """Yield the output of a program line by line, and at last its result."""
    async with running(argv, env=env) as process:
        said = asyncio.create_task(words(process))
        assert process.stdout is not None  # noqa: S101 - asked for above
        try:
            async for line in process.stdout:
                yield line.rstrip(b"\n")
        except ValueError as error:
            raise errors.Unavailable(f"{argv[0]} wrote invalid output") from error
        status = await process.wait()
        yield ProgramResult(status, await said)
