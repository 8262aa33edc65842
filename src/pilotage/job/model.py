"""Data types of jobs: definition, binding, state and attempts."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

import msgspec

from pilotage.job.outcome import Cause


class State(StrEnum):
    """The state of a job; `FACTS` describes each."""

    WAITING = "waiting"
    QUEUED = "queued"
    STAGING_IN = "staging_in"
    READY = "ready"
    SUBMITTED = "submitted"
    RUNNING = "running"
    STAGING_OUT = "staging_out"
    HELD = "held"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REJECTED = "rejected"


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Resources of a job."""

    #: Processor cores.
    cpus: int = 1
    #: Memory in bytes; a job that uses more is ended.
    memory: int | None = None
    #: GPUs.
    gpus: int = 0
    #: Disk in bytes.
    disk: int | None = None
    #: Wall time in seconds; a job that takes longer is ended.
    time: float | None = None


class Retry(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """When and how often a failed job is tried again."""

    #: Attempts in all that may fail on their own account.
    attempts: int = 1
    #: Seconds before the second attempt.
    delay: float = 1.0
    #: By how much each further wait is longer.
    factor: float = 2.0
    #: The longest wait in seconds.
    longest: float = 3600.0


class Limit(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """At most this many jobs with the same key run at once."""

    #: Template of the key, such as `"{dir}"` or `"camera"`.
    key: str
    #: Jobs at once.
    most: int = 1


class Command(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="command", tag_field="kind"
):
    """A program with its arguments; never a shell line."""

    #: Program and arguments; each may hold `{keywords}`; `"{paths}"` alone becomes many arguments.
    argv: tuple[str, ...]


class Script(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="script", tag_field="kind"
):
    """A script for an interpreter; parameters reach it as environment variables and JSON."""

    #: The text of the script, unless `file` names one.
    source: str = ""
    #: Absolute path of the script.
    file: str = ""
    #: The interpreter and its options; empty means the `#!` line of the script, or bash.
    interpreter: tuple[str, ...] = ()
    #: Further arguments; each may hold `{keywords}`.
    args: tuple[str, ...] = ()


class Python(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="python", tag_field="kind"
):
    """A Python file or one of its functions, called with typed parameters."""

    #: Absolute path of the file, unless `source` holds its text.
    file: str = ""
    #: The text of the file.
    source: str = ""
    #: The function to call; empty runs the file as a script with the parameters as globals.
    function: str = ""
    #: The interpreter; empty means the one that runs Pilotage.
    python: str = ""


class Notebook(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="notebook", tag_field="kind"
):
    """A Jupyter notebook, run by papermill."""

    #: Absolute path of the notebook, unless `source` holds its JSON.
    file: str = ""
    #: The JSON text of the notebook.
    source: str = ""
    #: Where the executed notebook goes (a template); empty means the job's directory.
    output: str = ""
    #: The kernel; empty means the notebook's own.
    kernel: str = ""
    #: The interpreter that has papermill; empty means the one that runs Pilotage.
    python: str = ""


class App(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="app", tag_field="kind"):
    """An application registered in the project's configuration."""

    #: Its name.
    app: str
    #: Arguments after those of the registration; each may hold `{keywords}`.
    args: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="call", tag_field="kind"):
    """A Python function, called in a worker that stays; one job may hold many calls."""

    #: The function to call.
    function: str
    #: The text of its file, unless `file` names one.
    source: str = ""
    #: Absolute path of its file.
    file: str = ""
    #: The interpreter; empty means the one that runs Pilotage.
    python: str = ""


class Workflow(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="flow", tag_field="kind"
):
    """A workflow of its own: it starts with the job, and its end is that of the job."""

    #: Its definition, a `flow.model.Flow`; the job's parameters are values of its own.
    flow: dict[str, Any] = {}
    #: Absolute path of the file that it was read from, and all files that were read with it.
    file: str = ""
    files: tuple[str, ...] = ()


Recipe = Command | Script | Python | Notebook | App | Call | Workflow

#: How a job runs at a site: by a pilot or whatever is there, as a batch job of its own, as a
#: blocking step, or straight on the host that one logs in to.
Via = Literal["", "batch", "srun", "direct"]
#: How a job at a site reaches its data: copied there and back, or mounted from here.
Data = Literal["staged", "mounted"]


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The least size of a malleable job; the site chooses a size that starts sooner."""

    #: Nodes; 0 means as many as it asks for.
    nodes_least: int = 0
    #: Seconds of wall time; 0 means as long as it asks for.
    time_least: float = 0.0
    #: Node-seconds that it needs, whatever its shape.
    work: float = 0.0


#: What starts the tasks of a parallel job.
Launcher = Literal["", "none", "srun", "mpirun"]


class BatchOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Options for the batch system of a job that is its own batch job, beside resources."""

    nodes: int = 1
    #: Tasks on each node; cores, memory and GPUs are those of a task, a node and a node.
    tasks: int = 1
    #: Queue or partition; empty means the site's default, as with all that follows.
    queue: str = ""
    account: str = ""
    qos: str = ""
    constraint: str = ""
    reservation: str = ""
    #: Further options that the site's file allows, as `--name=value`.
    extra: tuple[str, ...] = ()
    #: What starts its tasks: `none`, `srun` or `mpirun`; empty means the site's default.
    launcher: Launcher = ""


class Allocation(BatchOptions, frozen=True):
    """What a job asks the batch system for."""

    #: What it could do with instead; `nodes`, and `time` of the resources, are the most.
    shape: Shape = Shape()


#: What happens when the input is another version at start than it was at match time.
OnChange = Literal["cancel", "latest", "ignore"]


class JobSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The definition of a job without what differs from one job of a rule to the next."""

    #: What runs.
    recipe: Recipe
    #: For people; the rule's name where a rule made it.
    name: str
    #: Parameters; text values are templates.
    params: dict[str, Any] = {}
    #: Names and paths (templates) of files that must exist after the run.
    outputs: dict[str, str] = {}
    #: Names and paths (templates) of files that a run may write or not; what they fire knows
    #: its cause.
    optional_outputs: dict[str, str] = {}
    #: Environment variables; values are templates.
    env: dict[str, str] = {}
    #: Working directory (a template); empty means the job's own directory.
    cwd: str = ""
    #: Where `{base}`, `{rel}` and relative paths start; empty means the project's folder.
    base: str = ""
    #: What it needs.
    resources: Resources = Resources()
    #: When it is tried again.
    retry: Retry = Retry()
    #: Where it may run: an expression over the job and the offer.
    requirements: str = ""
    #: Where it would rather run: an expression, the higher the better.
    rank: str = ""
    #: The container image that it wants to run in.
    image: str = ""
    #: The site that it runs at; empty means any that pilots come from, or this machine.
    site: str = ""
    #: How it runs there.
    via: Via = ""
    #: What it asks the batch system for.
    allocation: Allocation = Allocation()
    #: How it reaches its data there.
    data: Data = "staged"
    #: Files and folders (templates, globs) that it reads beside its trigger.
    inputs: tuple[str, ...] = ()
    #: Whether it uses files of the project that it does not declare: then it runs only where that
    #: folder can be seen.
    needs_folder: bool = False
    #: Higher runs first.
    priority: int = 0
    #: How many may run at once by key.
    limit: Limit | None = None
    #: What a changed input means.
    on_change: OnChange = "cancel"
    #: Exit codes that count as success.
    ok_codes: tuple[int, ...] = (0,)

    def changed(self, values: Mapping[str, Any]) -> JobSpec:
        """Return it with other values, each by its name, also within `resources` and so on."""
        given, parts = dict(values), {}
        for part in ("resources", "allocation"):
            old = getattr(self, part)
            if inner := {name: given.pop(name) for name in values if name in _fields(old)}:
                parts[part] = msgspec.structs.replace(old, **inner)
        return msgspec.structs.replace(self, **parts, **given)


def _fields(of: msgspec.Struct) -> tuple[str, ...]:
    return of.__struct_fields__


class Binding(msgspec.Struct, frozen=True, omit_defaults=True):
    """The values that differ between jobs of one rule; stored with the job."""

    #: The triggering file, or the file that holds a message.
    path: str = ""
    #: Its version at match time.
    version: str = ""
    #: Its SHA-256 at match time, when the rule asks for it.
    sha256: str = ""
    #: The files of a gathered set.
    paths: tuple[str, ...] = ()
    #: The other end of a move.
    other: str = ""
    #: Groups that the pattern captured.
    match: dict[str, str] = {}
    #: The point of the sweep.
    sweep: dict[str, Any] = {}
    #: Fields of a message or facts of an ended job.
    data: dict[str, Any] = {}
    #: For a step of a workflow at a site with an agent, an `edge.message.Handoff`: its data.
    handoff: dict[str, Any] | None = None


class JobRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A job that a program submits."""

    #: The definition.
    spec: JobSpec
    #: What differs.
    binding: Binding = Binding()
    #: What must be unique among all jobs, as 32 hexadecimal digits; empty for submissions by hand.
    key: str = ""
    #: Labels for selection.
    tag: str = ""
    #: Jobs that must be done before it.
    after: tuple[int, ...] = ()


class NewJob(JobRequest, frozen=True):
    """A job about to enter the store."""

    #: The state in which it enters: waiting, queued or held.
    state: State = State.QUEUED
    #: Why it is held or waits.
    reason: str = ""
    #: Not to start before this time.
    not_before: float = 0.0
    #: The rendered key of its limit.
    limit_key: str = ""
    #: The job that caused it, and how many times its own rule is among its ancestors.
    parent: int | None = None
    depth: int = 0
    #: Who it belongs to, as `user` or `group/user`.
    owner: str = ""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the store knows it."""

    id: int
    name: str
    state: State
    #: Why it is in this state, in words.
    reason: str
    spec: JobSpec
    binding: Binding
    #: The number of the present or last attempt; 0 before the first.
    attempt: int
    priority: int
    not_before: float
    limit_key: str
    created: float
    started: float | None
    ended: float | None
    rule: str
    event: int | None
    parent: int | None
    depth: int
    tag: str
    owner: str = ""


class Ended(msgspec.Struct, frozen=True):
    """How a job ended."""

    #: Its number.
    job: int
    #: `done`, `failed`, `cancelled` or `rejected`.
    state: str
    #: The reason as text.
    reason: str = ""
    #: What its function returned.
    result: Any = None


class JobEnd(Ended, frozen=True):
    """The end of a job, as a hub reports it."""

    #: Its line in the journal.
    seq: int = 0
    #: What it returned; unset if it returned nothing.
    result: Any = msgspec.UNSET


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run a job."""

    job: int
    number: int
    #: `running`, `done`, `failed`, `cancelled` or `lost`.
    state: str
    #: Directory that holds its stdout, stderr and files.
    dir: str
    #: Lock file of the starter that holds it.
    starter: str
    started: float
    ended: float | None = None
    pid: int | None = None
    exit: int | None = None
    signal: int | None = None
    reason: str = ""
    #: What ended it, unless it succeeded; empty if that was not kept.
    cause: Cause = Cause.NONE
    cpu: float | None = None
    wall: float | None = None
    max_rss: int | None = None
    read_bytes: int | None = None
    written_bytes: int | None = None
