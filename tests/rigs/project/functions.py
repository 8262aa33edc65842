"""Functions for workers; this file needs nothing, so that it is loaded at once."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path


def double(value: int) -> int:
    return 2 * value


def add(first: int, second: int = 1) -> int:
    return first + second


def twice(text: str) -> str:
    return text + text


def fail(value: int) -> int:
    raise LookupError(f"no {value}")


def fail_at_seven(value: int) -> int:
    if value == 7:
        raise LookupError("seven")
    return value


def die_at_seven(value: int) -> int:
    if value == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return value


def sleep(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


def note(file: str, value: int) -> int:
    with Path(file).open("a", encoding="utf-8") as out:
        out.write(f"{value}\n")
    return value


async def later(value: int) -> int:
    import asyncio

    await asyncio.sleep(0)
    return value
