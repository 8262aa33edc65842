"""Direct jobs over SSH: what each costs beyond the `sbatch` that it is."""

from __future__ import annotations

import functools
import itertools
import shutil
import time
from collections.abc import Callable, Iterator

from bench.figure import Figure, Goal, figure
from bench.remote.bed import ARRAYS, SINGLE, Bed
from bench.remote.found import Found
from bench.remote.ours import files, nothing, reads, run

_MEGA = 10**6
_OURS_MS = Goal(30)
_AT_ONCE = 4
#: Ways to run jobs: the plain ones, and ours.
_LOOP, _LOOPS = "ssh + sbatch", f"{_AT_ONCE} ssh + sbatch"
_WAYS = {"each an sbatch": SINGLE, "as an array": ARRAYS, "this machine": ""}
_folders = (f"in{number}" for number in itertools.count())


def empty(bed: Bed, count: int, found: Found) -> None:
    """Run jobs that do nothing in all ways."""
    for way, site in _WAYS.items():
        found.add(f"empty, {way}", run(bed, [nothing(site)] * count))
        bed.settle()
    for way, at_once in ((_LOOP, 1), (_LOOPS, _AT_ONCE)):
        found.add(
            f"empty, {way}", _timed(functools.partial(_plain, bed, ["true"] * count, at_once))
        )
        bed.settle()


def data(bed: Bed, few: int, count: int, found: Found) -> None:
    """Run the paper's jobs in all ways, each with files that nobody has seen."""
    for way, site in _WAYS.items():
        for number in (few, count):
            folder = bed.root / next(_folders)
            made = files(folder, number, _MEGA)
            found.add(f"data {number}, {way}", run(bed, [reads(one, site) for one in made]))
            bed.settle()
            shutil.rmtree(folder)
    for way, at_once in ((_LOOP, 1), (_LOOPS, _AT_ONCE)):
        found.add(f"data {count}, {way}", _plain_data(bed, count, at_once))
        bed.settle()


def _plain(bed: Bed, commands: list[str], at_once: int) -> None:
    bed.login.submit(commands, at_once=at_once)
    bed.login.wait()


def _plain_data(bed: Bed, count: int, at_once: int) -> float:
    """Do what a person would: one `scp` there for all, the jobs, one `scp` home for all."""
    folder, home = bed.root / next(_folders), bed.root / next(_folders)
    made = files(folder, count, _MEGA)

    def go() -> None:
        bed.login.ssh("mkdir -p there/in there/out")
        bed.login.copy(made, "there/in")
        commands = [
            f"cat there/in/{one.name} > /dev/null && printf 1 > there/out/{one.name}"
            for one in made
        ]
        _plain(bed, commands, at_once)
        bed.login.fetch("there/out", home)

    took = _timed(go)
    if len(list(home.iterdir())) != count:
        raise RuntimeError("not all results came home")
    bed.login.ssh("rm -r there")
    shutil.rmtree(folder)
    shutil.rmtree(home)
    return took


def _timed(act: Callable[[], object]) -> float:
    begun = time.monotonic()
    act()
    return time.monotonic() - begun


def figures(found: Found, few: int, count: int) -> Iterator[Figure]:
    """Say what was found."""
    yield from _all(found, "empty", f"{count} empty jobs", count)
    yield from _all(found, f"data {count}", f"{count} jobs, 1 MB there, 1 byte home", count)
    for way in _WAYS:
        more = found.difference(f"data {count}, {way}", f"data {few}, {way}", count - few)
        fixed = [
            whole - count * one
            for whole, one in zip(found[f"data {count}, {way}"], more, strict=True)
        ]
        paper = "0.08 s and 5.37 s" if way == "this machine" else "1.4 s and 7.6 s"
        note = f"the paper on MEOW and Slurm: {paper}"
        yield figure(f"1 MB there, 1 byte home, {way}: each job more", "s", more, note=note)
        yield figure(f"1 MB there, 1 byte home, {way}: and once", "s", fixed)


def _all(found: Found, what: str, name: str, count: int) -> Iterator[Figure]:
    plain = {way: found[f"{what}, {way}"] for way in (_LOOP, _LOOPS)}
    for way in _WAYS:
        yield figure(f"{name}, {way}: last one done", "s", found[f"{what}, {way}"], peers=plain)
    for way in plain:
        beyond = found.difference(f"{what}, each an sbatch", f"{what}, {way}", count / 1e3)
        yield figure(f"{name}: our overhead a job beyond {way}", "ms", beyond, goal=_OURS_MS)
