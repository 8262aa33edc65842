"""Jobs by Pilotage, as a program submits them: to a site, to a pilot there, to this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from bench.remote.bed import ARRAYS, CORES, Bed
from pilotage.batch.pilot_request import PilotRequest
from pilotage.client import Ended, Future
from pilotage.hub.project import Project
from pilotage.job.model import Allocation, Command, JobSpec

_LOCAL = 'site == "local"'
_GLANCE_S = 0.05
_PATIENCE_S = 300.0
_SUBMITTED = """
SELECT time FROM journal WHERE state = 'submitted' AND job IN (SELECT value FROM json_each(:jobs))
"""
_INTENDED = """
SELECT created FROM submission JOIN submitted ON submission = submission.id
WHERE job IN (SELECT value FROM json_each(:jobs))
"""


def nothing(site: str = "", **more: Any) -> JobSpec:  # noqa: ANN401 - as `JobSpec` has them
    """Define a job that does nothing: at a site by its batch system, else on this machine."""
    where = {"site": site, "via": "batch"} if site else {"requirements": _LOCAL}
    return JobSpec(Command(("/bin/true",)), "nothing", **{**where, **more})


def reads(file: Path, site: str = "", *, most: int | None = None) -> JobSpec:
    """Define the paper's job: it reads a file (all of it, unless said) and writes one byte."""
    out = f"out/{file.name}"
    script = f'head -c {most or file.stat().st_size} "$0" > /dev/null && printf 1 > "$1"'
    where: dict[str, Any] = (
        {"site": site, "via": "batch", "inputs": (str(file),)} if site else {"requirements": _LOCAL}
    )
    recipe = Command(("/bin/sh", "-c", script, f"{{base}}/{file.parent.name}/{file.name}", out))
    return JobSpec(recipe, "reads", cwd="{base}", outputs={"byte": out}, **where)


def files(folder: Path, count: int, size: int) -> list[Path]:
    """Write files that nobody has seen before."""
    folder.mkdir()
    made = []
    for number in range(count):
        path = folder / f"{folder.name}-{number}.bin"
        with path.open("wb") as file:
            for start in range(0, size, 1 << 24):
                file.write(os.urandom(min(1 << 24, size - start)))
        made.append(path)
    return made


def run(bed: Bed, specs: Sequence[JobSpec]) -> float:
    """Run jobs that are submitted at once; return the seconds until the caller has all ends."""
    begun = time.monotonic()
    futures = [bed.client.submit(spec) for spec in specs]
    ended = [one.result(_PATIENCE_S) for one in futures]
    took = time.monotonic() - begun
    _check(ended)
    return took


def staging(bed: Bed, spec: JobSpec) -> float:
    """Run one job; return the seconds from its submission until its data is at the site."""
    begun = time.time()
    future = bed.client.submit(spec)
    _check([future.result(_PATIENCE_S)])
    return max(bed.times(_INTENDED, _numbers([future]))) - begun


def _check(ended: Iterable[Ended]) -> None:
    if bad := [one for one in ended if one.state != "done"]:
        raise RuntimeError(f"{len(bad)} jobs failed: {bad[0]}")


def _numbers(futures: Iterable[Future[Ended]]) -> list[int]:
    return [number for one in futures if (number := one.job) is not None]


class Held:
    """Jobs that wait in the queue of a site until they are called off."""

    def __init__(self, bed: Bed, site: str, count: int) -> None:
        """Submit them, and wait until the batch system has all."""
        self._bed = bed
        spec = nothing(site, allocation=Allocation(extra=("--hold",)))
        begun = time.time()
        self._futures = [bed.client.submit(spec) for _ in range(count)]
        times: list[float] = []
        while len(times) < count:
            time.sleep(_GLANCE_S)
            times = bed.times(_SUBMITTED, _numbers(self._futures))
        #: Jobs in a second.
        self.rate = count / (max(times) - begun)

    def cancel(self) -> None:
        """Call them off, and wait until they have gone."""
        self._bed.client.cancel(*_numbers(self._futures))
        for one in self._futures:
            one.exception(_PATIENCE_S)
        self._bed.settle()


def recruit(bed: Bed) -> None:
    """Have a pilot started at the site, and wait until it works."""
    with Project(bed.root) as project:
        project.want_pilots(ARRAYS, PilotRequest(cpus=CORES, idle=_PATIENCE_S), 1, "")
    run(bed, on_pilot(CORES))


def on_pilot(count: int) -> list[JobSpec]:
    """Define jobs that do nothing, for a pilot at the site."""
    return [nothing(requirements=f'site == "{ARRAYS}"')] * count


def dismiss(bed: Bed) -> None:
    """Let the pilot go."""
    bed.login.ssh("scancel --me")
    bed.settle()


def again(spec: JobSpec, number: int) -> JobSpec:
    """Let a job write elsewhere, so that many may read the same."""
    recipe = spec.recipe
    if not isinstance(recipe, Command):
        raise TypeError(f"{recipe} is no command")
    out = f"out/{number}"
    argv = (*recipe.argv[:-1], out)
    return msgspec.structs.replace(
        spec, recipe=msgspec.structs.replace(recipe, argv=argv), outputs={"byte": out}
    )
