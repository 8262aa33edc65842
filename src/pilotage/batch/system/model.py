"""Data types of batch systems: orders, commands, outputs and listed jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

import msgspec

from pilotage.batch.malleable import Fit, Gap, QueueBounds
from pilotage.bus.model import BatchQueue


class Phase(StrEnum):
    """The state of a batch job, as its scheduler reports it."""

    #: It waits for a node.
    QUEUED = "queued"
    #: A hold or an error keeps it from starting; `words` says why.
    HELD = "held"
    #: It runs, is suspended, or is being cleared away.
    RUNNING = "running"
    #: It is over; `cause` says why.
    OVER = "over"
    #: The scheduler used a word that we do not know: nothing may be concluded from it.
    UNKNOWN = "unknown"


class EndCause(StrEnum):
    """Why a batch job is over."""

    #: It ended by itself; `exit` holds its code.
    EXITED = "exited"
    #: A signal ended it; `signal` holds its number.
    SIGNALLED = "signalled"
    #: It used more memory than it asked for.
    MEMORY = "memory"
    #: It used up its wall time.
    TIMEOUT = "timeout"
    #: Its node failed, or could not start it.
    NODE = "node"
    #: Its place was given to another.
    PREEMPTED = "preempted"
    #: A user or an administrator cancelled it.
    CANCELLED = "cancelled"
    #: The scheduler does not say.
    UNKNOWN = "unknown"


class BatchOrder(msgspec.Struct, frozen=True, kw_only=True):
    """An order to a batch system: one job, or an array of equal ones."""

    #: The name by which it is found again, whatever happens: 15 letters and digits.
    key: str
    #: The text of the script; it holds nothing that a user wrote.
    script: str
    #: Absolute path at the site where it begins, and where its own output goes.
    folder: str
    #: The number of equal jobs, which are numbered from 0.
    count: int = 1
    nodes: int = 1
    #: Tasks on each node.
    tasks: int = 1
    #: Cores of each task.
    cpus: int = 1
    #: Bytes of memory on each node.
    memory: int | None = None
    #: GPUs on each node.
    gpus: int = 0
    #: Seconds of wall time.
    time: float | None = None
    queue: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    #: Further options, `--name=value` each, that the site's file allows.
    extra: tuple[str, ...] = ()
    #: Whether it is to be one blocking step (`srun`) instead of a script in the queue.
    step: bool = False
    #: The shape that was chosen, if there was a choice; a retry of the submission keeps it.
    fit: Fit | None = None


class BatchCommand(msgspec.Struct, frozen=True):
    """A command to run at the site."""

    argv: tuple[str, ...]
    #: What it reads.
    input: str = ""
    #: Whether it runs in the background, with its output in the order's folder.
    detach: bool = False


class Output(msgspec.Struct, frozen=True):
    """The exit code and output of a command."""

    exit: int
    out: str
    err: str = ""


class BatchItem(msgspec.Struct, frozen=True, kw_only=True):
    """One batch job, or one of an array, as a listing has it."""

    #: The name it was given: a `BatchOrder.key`.
    key: str
    #: The scheduler's id, of this one alone, as `cancel` takes it.
    id: str
    #: Its number in the array.
    index: int = 0
    phase: Phase
    cause: EndCause | None = None
    exit: int | None = None
    signal: int | None = None
    #: The scheduler's own words: a state, a reason, why it is held.
    words: str = ""
    node: str = ""
    started: float | None = None
    ended: float | None = None


class BatchEnd(NamedTuple):
    """Why a batch job is over; all is empty while it is not."""

    cause: EndCause | None = None
    exit: int | None = None
    signal: int | None = None


class BatchError(Exception):
    """A command of a batch system failed; the text is its output."""

    def __init__(self, words: str, *, final: bool = False) -> None:
        super().__init__(words)
        #: Whether the same order can never be accepted: a queue that does not exist, a limit.
        self.final = final


class BatchSystem(Protocol):
    """A batch system: commands to run, and parsers of their output; see `tools.Tools`.

    A listing must be complete and trustworthy, or `listed` raises `BatchError`: output that ends
    early, another format, an exit status that is not zero. Jobs whose name is no key of ours are
    left out.
    """

    @property
    def name(self) -> str:
        """Such as `slurm`."""
        ...

    @property
    def arrays(self) -> bool:
        """Whether it can run arrays."""
        ...

    def submit(self, order: BatchOrder) -> BatchCommand:
        """Return the command that submits an order; the scheduler must never requeue the job."""
        ...

    def submitted(self, said: Output) -> str:
        """Read the id that all of the order has; empty if it will only be known by a listing."""
        ...

    def listing(self) -> BatchCommand:
        """Return the command that lists all jobs of this user, also those that ended lately."""
        ...

    def listed(self, said: Output) -> list[BatchItem]:
        """Read a listing."""
        ...

    def history(self, since: float) -> BatchCommand | None:
        """Return the command that lists what ended since then; none if no history is kept."""
        ...

    def remembered(self, said: Output) -> list[BatchItem]:
        """Read a history."""
        ...

    def cancel(self, ids: Sequence[str]) -> BatchCommand:
        """Return the command that cancels jobs; those that are over already are no error."""
        ...

    def version(self) -> BatchCommand:
        """Return the command that shows whether the tools are there, and which they are."""
        ...


class Windows(msgspec.Struct, frozen=True, kw_only=True):
    """Commands and parsers that show when nodes are free; few batch systems have them."""

    #: Commands that show what is free, for all queues at once.
    looks: tuple[BatchCommand, ...]
    #: Read their output. The result has `now`, the time there, and `waits`: whether anything waits
    #: in the queue, and so how far a trial is believed. The rest only the batch system knows.
    seen: Callable[[Sequence[Output]], Any]
    #: Return what each queue has, and how much of it is free.
    queues: Callable[[Any], Sequence[BatchQueue]]
    #: Return what the queue of an order gives at most.
    bounds: Callable[[Any, BatchOrder], QueueBounds]
    #: Return when how many nodes are free for such an order.
    gaps: Callable[[Any, BatchOrder], list[Gap]]
    #: Return the command that finds out when an order would start; nothing is submitted.
    trial: Callable[[BatchOrder], BatchCommand]
    #: Read when it would start; `BatchError` means that it was refused.
    tried: Callable[[Output], float]
