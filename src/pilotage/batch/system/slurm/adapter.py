"""Orders for Slurm, and what its tools say."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import ClassVar

from pilotage.batch.malleable import Bounds, Gap
from pilotage.batch.system import words
from pilotage.batch.system.model import BatchError, BatchQueue, Call, Item, Order, Said

from . import cancel, gaps, listing, options, refusal, windows

_ANSWER = re.compile(r"(?P<id>[1-9][0-9]*)(;[\w.-]+)?")
#: Variables that would change what `sbatch` and `srun` do, for us and behind our back.
_UNSET = ("SBATCH_ARRAY_INX", "SBATCH_WAIT", "SLURM_JOB_ID", "SLURM_JOBID")


class Slurm:
    """Slurm by its commands."""

    name: ClassVar[str] = "slurm"
    arrays: ClassVar[bool] = True

    def submit(self, order: Order) -> Call:
        """Have `sbatch` read the script, or let one `srun` run it."""
        words.check(order)
        clean = ("env", *(f"--unset={name}" for name in _UNSET))
        if order.step:
            script = f"{order.folder}/script.sh"
            return Call((*clean, "srun", *options.step(order), "/bin/sh", script), detach=True)
        return Call((*clean, "sbatch", *options.batch(order)), input=order.script)

    def submitted(self, said: Said) -> str:
        """Read the id of the job or of the array; a step's is known by a listing only."""
        if said.exit != 0:
            # An id beside an error says that it was accepted, whatever the error says.
            accepted = _ANSWER.fullmatch(said.out.strip()) is not None
            final = not accepted and refusal.is_final(said.err)
            raise BatchError(f"sbatch: {words.complaint(said)}", final=final)
        if found := _ANSWER.fullmatch(said.out.strip()):
            return found["id"]
        raise BatchError(f"sbatch gave no id but {said.out[:200]!r}")

    def listing(self) -> Call:
        """Ask `squeue` for all jobs of this user, also those that ended lately."""
        return listing.SQUEUE

    def listed(self, said: Said) -> list[Item]:
        """Read what `squeue` said."""
        return listing.listed(said)

    def history(self, since: float) -> Call | None:
        """Ask `sacct`; it says so itself if there is no accounting."""
        return listing.sacct(since)

    def remembered(self, said: Said) -> list[Item]:
        """Read what `sacct` said."""
        return listing.remembered(said)

    def cancel(self, ids: Sequence[str]) -> Call:
        """Call jobs off, those of one array together."""
        return Call(("scancel", "--quiet", *cancel.joined(ids)))

    def version(self) -> Call:
        """Ask `sbatch`, which no site with Slurm is without."""
        return Call(("sbatch", "--version"))

    # -- what is free ----------------------------------------------------------------------------

    def looks(self) -> Sequence[Call]:
        """Ask `sinfo` and `squeue`."""
        return windows.LOOKS

    def seen(self, said: Sequence[Said]) -> windows.Seen:
        """Read what they said."""
        return windows.seen(said)

    def queues(self, seen: windows.Seen) -> list[BatchQueue]:
        """Say what partitions have."""
        return windows.queues(seen)

    def bounds(self, seen: windows.Seen, order: Order) -> Bounds:
        """Read what the partition of an order gives."""
        return gaps.bounds(seen, order)

    def gaps(self, seen: windows.Seen, order: Order) -> list[Gap]:
        """Say when nodes are free for an order."""
        return gaps.gaps(seen, order)

    def trial(self, order: Order) -> Call:
        """Ask `sbatch --test-only`."""
        words.check(order)
        return windows.trial(order)

    def tried(self, said: Said) -> float:
        """Read what it said."""
        return windows.tried(said)
