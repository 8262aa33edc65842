"""Orders for Slurm: `sbatch`, `srun` and `scancel`; each option is one word."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from pilotage.batch.system.model import BatchCommand, BatchError, BatchOrder

_MEBI = 1 << 20
_NAMES = (
    ("partition", "queue"),
    ("account", "account"),
    ("qos", "qos"),
    ("constraint", "constraint"),
    ("reservation", "reservation"),
)
#: Variables that would change what `sbatch` and `srun` do, for us and behind our back.
_UNSET = ("SBATCH_ARRAY_INX", "SBATCH_WAIT", "SLURM_JOB_ID", "SLURM_JOBID")


def submit(order: BatchOrder) -> BatchCommand:
    """Have `sbatch` read the script, or let one `srun` run it, whose id only a listing shows."""
    clean = ("env", *(f"--unset={name}" for name in _UNSET))
    if order.step:
        script = f"{order.folder}/script.sh"
        return BatchCommand((*clean, "srun", *step(order), "/bin/sh", script), detach=True)
    return BatchCommand((*clean, "sbatch", "--parsable", *batch(order)), input=order.script)


def batch(order: BatchOrder) -> list[str]:
    """Return the options of `sbatch`, which reads the script as its input.

    What makes the job ours comes last, as the last of two equal options counts.
    """
    number = "%a" if order.count > 1 else "0"
    array = [f"--array=0-{order.count - 1}"] if order.count > 1 else []
    return [
        *_resources(order),
        *order.extra,
        "--no-requeue",
        *_identity(order),
        *array,
        f"--output={_pattern(order.folder)}/out.{number}",
        f"--error={_pattern(order.folder)}/err.{number}",
    ]


def step(order: BatchOrder) -> list[str]:
    """Return the options of `srun`, whose job is never requeued."""
    if order.count > 1:
        raise BatchError("a step cannot be an array", final=True)
    return [*_resources(order), *order.extra, *_identity(order)]


def _resources(order: BatchOrder) -> Iterator[str]:
    yield f"--nodes={order.nodes}"
    yield f"--ntasks-per-node={order.tasks}"
    yield f"--cpus-per-task={order.cpus}"
    if order.memory is not None:
        yield f"--mem={math.ceil(order.memory / _MEBI)}M"
    if order.gpus:
        # Understood with and without cons_tres, which `--gpus-per-node` needs.
        yield f"--gres=gpu:{order.gpus}"
    if order.time is not None:
        yield f"--time={math.ceil(order.time / 60)}"
    for option, field in _NAMES:
        if value := getattr(order, field):
            yield f"--{option}={value}"


def _identity(order: BatchOrder) -> Iterator[str]:
    yield f"--job-name={order.key}"
    # By this a listing tells a job from what remains of an array (see listing.py).
    yield f"--comment=count={order.count}"
    yield f"--chdir={order.folder}"


def _pattern(folder: str) -> str:
    """Write a path so that Slurm reads nothing into it."""
    if "\\" in folder:
        # A backslash turns off the meaning of `%` for the whole of the path, ours included.
        raise BatchError(f"{folder!r} has a backslash, which Slurm does not take", final=True)
    return folder.replace("%", "%%")


def joined(ids: Sequence[str]) -> list[str]:
    """Return the words for `scancel`, one for those of an array: each is a message of its own."""
    arrays: dict[str, list[int]] = {}
    whole: list[str] = []
    for name in ids:
        job, _, index = name.partition("_")
        if index:
            arrays.setdefault(job, []).append(int(index))
        else:
            whole.append(name)
    return whole + [_word(job, indices) for job, indices in arrays.items()]


def _word(job: str, indices: Iterable[int]) -> str:
    numbers = sorted(set(indices))
    if len(numbers) == 1:
        return f"{job}_{numbers[0]}"
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = (str(first) if first == last else f"{first}-{last}" for first, last in spans)
    return f"{job}_[{','.join(texts)}]"
