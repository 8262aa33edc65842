"""Bursts: far more files in a moment than anyone can take in at once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from bench import ours, peers
from bench.load import Load, astray, write

#: Files appear in memory, so that writing them is as fast as can be.
_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system, not a temporary file


class Burst(msgspec.Struct, frozen=True):
    """What came of a burst."""

    #: Seconds from just before the first file was opened until the last job was durable.
    seconds: float
    #: Seconds that the writing of the files took.
    writing: float
    lost: int
    doubled: int
    #: Whether the kernel's queue of file events ran over.
    overflow: bool = False
    #: Processor time a job, in seconds.
    cpu: float = 0.0


def many(scratch: Path, *, files: int, folders: int, kinds: int, cap: float) -> Burst:
    """Write files into so many folders, each file for one of `folders` × `kinds` rules."""
    warnings: list[str] = []
    with _memory() as memory:
        places = [memory / f"d{number:03d}" for number in range(folders)]
        for place in places:
            place.mkdir()
        with ours.hub(_books(places, kinds), scratch, busy=True, warnings=warnings) as one:
            before = one.cpu()
            written = write(places, files, kinds=kinds)
            end = one.wait(lambda: one.jobs() >= files, cap)
            used = one.cpu() - before
            lost, doubled = astray(one.tally(), files)
    return Burst(
        seconds=end - written.first,
        writing=written.last - written.first,
        lost=lost,
        doubled=doubled,
        overflow=any("overflow" in line for line in warnings),
        cpu=used / files,
    )


def peer(*, files: int, cap: float) -> Burst:
    """Do the same to MEOW with one folder and one rule; only matching is waited for."""
    with _memory() as memory, peers.meow(Load(), memory, "matched") as one:
        written = write([one.root / "data" / "in"], files)
        _, end = one.reach(files, cap, quiet=15.0)
        lost, doubled = astray(one.tally(), files)
    return Burst(end - written.first, written.last - written.first, lost, doubled)


@contextmanager
def _memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=_MEMORY, prefix="pilotage-bench-") as folder:
        yield Path(folder)


def _books(places: list[Path], kinds: int) -> list[str]:
    return [
        "\n".join(
            f"[rule.{place.name}_k{kind}]\nfiles = '{place}/k{kind}_*.txt'\nrun = ['true']\n"
            for kind in range(kinds)
        )
        for place in places
    ]
