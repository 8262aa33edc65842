"""From jobs to orders: which of them go together, and what is asked of the batch system."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from pilotage.base import errors, units
from pilotage.batch.job import Guest
from pilotage.batch.login import Hello
from pilotage.batch.malleable import Fit
from pilotage.batch.model import Site
from pilotage.batch.system import known
from pilotage.batch.system.model import Order
from pilotage.job.model import JobSpec

#: A batch job has so much longer than its payload, in seconds: the evidence must be written.
LONGER_S = 60.0


def groups(guests: Iterable[Guest], site: Site) -> Iterator[list[Guest]]:
    """Put jobs together that ask for the same, as many as go into one array."""
    alike: dict[Any, list[Guest]] = {}
    for one in guests:
        spec = one.spec
        shape = (spec.resources, spec.allocation, spec.via, spec.priority)
        alike.setdefault(shape, []).append(one)
    for some in alike.values():
        # A step is one process that waits for one job.
        alone = some[0].spec.via == "srun" or not known.arrays(
            batch(some[0].spec, site), site.plugin
        )
        size = 1 if alone else site.array
        for at in range(0, len(some), size):
            yield some[at : at + size]


def batch(spec: JobSpec, site: Site) -> str:
    """Name the batch system that a job goes to."""
    return "local" if spec.via == "direct" else site.batch


def check(spec: JobSpec, name: str, site: Site) -> None:
    """Refuse what the site's file does not allow."""
    for word in spec.allocation.extra:
        if word not in site.allow and word.partition("=")[0] not in site.allow:
            message = f"the site {name} does not allow the option {word}"
            raise errors.Denied(message, hint=f"sites/{name}.toml says which: `allow`")
    needs, asked = spec.resources, spec.allocation
    bounds = (
        ("cores", needs.cpus * asked.nodes * asked.tasks, site.cpus),
        ("bytes of memory", needs.memory or 0, units.size(site.memory) if site.memory else 0),
        ("GPUs", needs.gpus, site.gpus or (0 if needs.gpus == 0 else -1)),
    )
    for what, wanted, most in bounds:
        if most and wanted > most:
            message = f"the site {name} gives a job at most {max(0, most)} {what}, not {wanted}"
            raise errors.Denied(message, hint=f"sites/{name}.toml says what it has")


def order(
    spec: JobSpec, site: Site, hello: Hello, key: str, count: int, fit: Fit | None = None
) -> Order:
    """Say what is asked of the batch system for so many equal jobs."""
    asked, needs, defaults = spec.allocation, spec.resources, site.defaults
    usual = units.seconds(defaults.time) if defaults.time else None
    folder = f"{hello.root}/s/{key}"
    program = f"{hello.root}/bin/{hello.version}.pyz"
    # Nothing of the user's own Python is wanted, and looking for it takes time.
    words = shlex.join([site.python, "-I", "-S", program, "job", folder])
    return Order(
        key=key, script=f"#!/bin/sh\nexec {words}\n", folder=folder, count=count,
        nodes=asked.nodes, tasks=asked.tasks, cpus=needs.cpus, memory=needs.memory,
        gpus=needs.gpus, time=usual if needs.time is None else needs.time + LONGER_S,
        queue=asked.queue or defaults.queue, account=asked.account or defaults.account,
        qos=asked.qos or defaults.qos, constraint=asked.constraint or defaults.constraint,
        reservation=asked.reservation or defaults.reservation, extra=asked.extra,
        step=spec.via == "srun", fit=fit,
    )  # fmt: skip
