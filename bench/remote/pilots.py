"""Tiny jobs on one pilot that was started at the site, and reaches the hub through SSH."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

from bench.figure import Figure, Goal, figure
from bench.remote.bed import CORES, Bed
from bench.remote.found import Found
from bench.remote.ours import dismiss, nothing, on_pilot, recruit, run

_BWRAP = (
    "bwrap --unshare-all --share-net --die-with-parent --ro-bind /usr /usr --symlink usr/lib /lib "
    "--symlink usr/lib64 /lib64 --symlink usr/bin /bin --proc /proc --dev /dev --tmpfs /tmp true"
)


def tiny(bed: Bed, count: int, found: Found) -> None:
    """Run jobs that do nothing on a pilot, and on this machine."""
    recruit(bed)
    found.add("pilot", 1e3 * run(bed, on_pilot(count)) / count)
    dismiss(bed)
    found.add("local", 1e3 * run(bed, [nothing()] * count) / count)


def boxed(bed: Bed, count: int, found: Found) -> None:
    """Run jobs in sandboxes on a pilot, and the same program in bare sandboxes."""
    recruit(bed)
    found.add("pilot, boxed", 1e3 * run(bed, on_pilot(count)) / count)
    dismiss(bed)
    found.add("bubblewrap", 1e3 * _bare(count))


def _bare(count: int) -> float:
    """Return the seconds that one sandbox takes, as many at once as a pilot has cores."""
    loop = ["sh", "-c", f"for i in $(seq {count // CORES}); do {_BWRAP}; done"]
    begun = time.monotonic()
    running = [subprocess.Popen(loop) for _ in range(CORES)]
    for one in running:
        if one.wait():
            raise RuntimeError("bubblewrap does not work here")
    return (time.monotonic() - begun) / count


def figures(found: Found, count: int) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        f"{count} tiny jobs on a pilot over SSH: a job", "ms", found["pilot"],
        peers={"this machine": found["local"]}, goal=Goal(5), note='`sandbox = "none"`',
    )  # fmt: skip
    yield figure(
        f"{count // 4} tiny jobs on a pilot over SSH, in sandboxes: a job", "ms",
        found["pilot, boxed"], limit=found["bubblewrap"], goal=Goal(5),
        note=f"the limit is {CORES} loops of `bwrap … true`",
    )  # fmt: skip
