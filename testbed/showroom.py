"""Several systems together, and how one uses them."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from .bed import Bed
from .condor import Condor
from .gridengine import GridEngine
from .network import Sites
from .rabbit import Rabbit
from .slurm import Slurm
from .ssh import Sshd

#: What can be asked for.
KINDS: dict[str, Callable[[], Bed]] = {
    "slurm": Slurm,
    "slurm-accounting": lambda: Slurm(accounting=True),
    "condor": Condor,
    "gridengine": GridEngine,
    "rabbit": Rabbit,
    "sites": lambda: Sites(slurm=True),
    "sshd": Sshd,
}

#: The last line that `up` prints.
READY = "Everything is up; Ctrl-C takes it down."


@contextmanager
def up(names: list[str]) -> Iterator[list[str]]:
    """Bring systems up; yield what to say of them."""
    with ExitStack() as stack:
        beds = {name: stack.enter_context(KINDS[name]()) for name in names if name != "sshd"}
        if "sshd" in names:
            beds["sshd"] = stack.enter_context(_sshd(beds))
        yield [line for name, bed in beds.items() for line in _describe(name, bed)]


def _sshd(others: dict[str, Bed]) -> Sshd:
    """Return servers where who logs in finds the commands of the other systems."""
    condor = others.get("condor")
    env = {name: value for bed in others.values() for name, value in bed.env.items()}
    # Jobs of HTCondor see a home only there.
    return Sshd(condor.shared if isinstance(condor, Condor) else None, env=env)


def _describe(name: str, bed: Bed) -> Iterator[str]:
    yield f"{name}: {bed.folder}"
    for variable, value in bed.env.items():
        shown = f"{bed.folder}/bin:$PATH" if variable == "PATH" else shlex.quote(value)
        yield f"    export {variable}={shown}"
    if isinstance(bed, Condor):
        yield f"    jobs see {bed.shared}"
    if isinstance(bed, Sshd):
        yield f"    ssh -F {bed.config} {{{','.join(bed.servers)}}}"
    if isinstance(bed, Sites):
        yield f"    ssh -F {bed.config} {{one,two}}"
