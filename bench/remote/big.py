"""Big files: how fast they get to a site beside `scp`, and that each gets there once."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, Goal, figure
from bench.remote.bed import ARRAYS, Bed
from bench.remote.found import Found
from bench.remote.ours import again, files, reads, run, staging

_MEGA = 1e6
_LITTLE = 1000
_folders = (f"big{number}" for number in itertools.count())


def alone(bed: Bed, size: int, found: Found) -> None:
    """Bring one file to the site in both ways; who is first changes each time."""
    file = _fresh(bed, 1, size)[0]
    acts = {
        "scp": lambda: _copied(bed, file),
        "staged": lambda: staging(bed, reads(file, ARRAYS, most=_LITTLE)),
    }
    order = list(acts) if len(found["scp"]) % 2 else [*acts][::-1]
    for name in order:
        # What one has written is on disk before the other begins.
        os.sync()
        found.add(name, size / acts[name]() / _MEGA)
    bed.login.ssh(f"rm {file.name}")
    shutil.rmtree(file.parent)


def shared(bed: Bed, size: int, readers: int, found: Found) -> None:
    """Let many jobs read a file that is not at the site yet, and then once more."""
    file = _fresh(bed, 1, size)[0]
    jobs = [again(reads(file, ARRAYS, most=_LITTLE), number) for number in range(readers)]
    os.sync()
    found.add("readers, at first", run(bed, jobs))
    bed.settle()
    found.add("readers, again", run(bed, jobs))
    bed.settle()
    shutil.rmtree(file.parent)


def different(bed: Bed, size: int, count: int, found: Found) -> None:
    """Run jobs that each read all of a file of their own."""
    made = _fresh(bed, count, size)
    os.sync()
    found.add("different", run(bed, [reads(one, ARRAYS) for one in made]))
    shutil.rmtree(made[0].parent)


def _fresh(bed: Bed, count: int, size: int) -> list[Path]:
    return files(bed.root / next(_folders), count, size)


def _copied(bed: Bed, file: Path) -> float:
    begun = time.monotonic()
    bed.login.copy([file], ".")
    return time.monotonic() - begun


def figures(found: Found, size: int, readers: int, many: int) -> Iterator[Figure]:
    """Say what was found."""
    words = f"{size / 1e9:g} GB"
    yield figure(
        f"{words} staged", "MB/s", found["staged"], better="more", peers={"scp": found["scp"]},
        goal=Goal(0.8, "scp"), note="ours is hashed at both ends and on disk for certain",
    )  # fmt: skip
    beyond = found.difference("readers, at first", "readers, again", 1)
    transfers = [size / _MEGA / rate for rate in found["staged"]]
    yield figure(
        f"{readers} jobs that read the same {words}: all done", "s", found["readers, at first"],
        note=f"{min(found['readers, again']):.3g} s and more if the file is at the site",
    )  # fmt: skip
    yield figure(
        f"{readers} jobs that read the same {words}: time beyond the runs, in transfers", "",
        [one / transfer for one, transfer in zip(beyond, transfers, strict=True)],
        goal=Goal(1.5),
    )  # fmt: skip
    yield figure(
        f"{many} jobs, each reads {words} of its own: all done", "s", found["different"],
        note="the paper on MEOW and Slurm: 2025 s for 25, which is 81 s for each",
    )  # fmt: skip
