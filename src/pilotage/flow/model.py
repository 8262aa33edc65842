"""Nouns of a workflow: its definition, and the states and ends of its parts."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

import msgspec

from pilotage.edge.handoff import Take
from pilotage.job.model import Limit


class FlowState(StrEnum):
    """The state of a flow, a step or a task; a task at a site has the states of a job."""

    WAITING = "waiting"
    QUEUED = "queued"
    STAGING_IN = "staging_in"
    READY = "ready"
    SUBMITTED = "submitted"
    RUNNING = "running"
    STAGING_OUT = "staging_out"
    HELD = "held"
    CANCELLING = "cancelling"
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


#: Final states.
FINAL = frozenset({FlowState.DONE, FlowState.FAILED, FlowState.SKIPPED, FlowState.CANCELLED})

#: The effect of a failure of a step: on the flow, or a retry.
OnFailure = Literal["fail", "continue", "retry", "other_site"]
#: How a task runs: as a job at a site with an agent, as another job, or as a flow of its own.
Way = Literal["edge", "here", "flow"]


class IntRange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number that the site may choose, within bounds."""

    least: int
    most: int


class Step(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The definition of a step; texts in `parameters`, `recipe` and `env` are templates."""

    #: Steps that must be over before it; those that it reads from are among them.
    needs: tuple[str, ...] = ()
    #: The site, or those among which one is chosen; none means any that `requirements` allow.
    sites: tuple[str, ...] = ()
    #: An expression over a site that must hold.
    requirements: str = ""
    #: Exactly one of three: an application of a site, a recipe of this hub, a flow of its own.
    application: str = ""
    #: A recipe as a rule has it, such as `{"kind": "command", "argv": [...]}`.
    recipe: dict[str, Any] = {}
    flow: Flow | None = None
    #: Parameters of the application, the recipe or the flow.
    parameters: dict[str, Any] = {}
    #: Text for the parser of the application.
    config: str = ""
    #: The same in a file among the inputs.
    config_file: str = ""
    env: dict[str, str] = {}
    #: A list, or the template of one that is known only later; nothing means one task.
    each: list[Any] | str | None = None
    #: An expression; if it does not hold the step is skipped.
    when: str = ""
    #: What it reads.
    inputs: tuple[Take, ...] = ()
    #: Names below its folder that it leaves; a name that ends with `/` is a folder.
    outputs: tuple[str, ...] = ()
    #: The output that is a small JSON file: its content is the result of the task.
    result: str = ""
    #: The effect of a failure, and the retries of a task.
    on_failure: OnFailure = "fail"
    retries: int = 0
    #: Seconds before the next try.
    delay: float = 1.0
    #: How many jobs with the same key run at once, those of other steps, rules and submissions
    #: included; the key is a template.
    limit: Limit | None = None
    #: What it asks the batch system for.
    nodes: IntRange = IntRange(1, 1)
    tasks: int = 1
    #: Seconds of wall time; 0 means what the site gives.
    time: IntRange = IntRange(0, 0)
    #: Node-seconds that it needs at least, whatever the shape.
    work: int = 0
    cpus: int = 1
    memory: int = 0
    gpus: int = 0
    disk: int = 0
    queue: str = ""
    project: str = ""
    options: tuple[str, ...] = ()


class Notify(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """Receivers of notifications on a flow."""

    #: A routing key; each change of a step is sent there.
    reply: str = ""
    #: The format of those messages.
    speech: Literal["pilotage", "argo", "balsam"] = "pilotage"
    #: The number by which the sender of a legacy definition knows it.
    number: int = 0
    #: A URL that is notified of the end.
    webhook: str = ""
    #: An e-mail address that is notified of the end.
    email: str = ""


class Flow(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """The definition of a workflow."""

    name: str
    description: str = ""
    #: Values that templates may use; those that have none must be given.
    params: dict[str, Any] = {}
    #: Steps by name, in the order in which they were written.
    steps: dict[str, Step]
    #: Outputs of the flow: by name, a step or `step/output`.
    outputs: dict[str, str] = {}
    #: A URL, or a path below the project's folder, that those go to at the end.
    to: str = ""
    #: Whether each run has a folder of its own there.
    runs: bool = False
    #: Retries of all tasks together.
    retries: int = 100
    notify: Notify = Notify()


#: The prefix of the keys of flows that are jobs.
_OF_JOB = "job:"


def job_key(job: int) -> str:
    """Return the key of the flow of a job; it is the same for all attempts."""
    return f"{_OF_JOB}{job}"


def job_of(key: str) -> int:
    """Return the job of a flow, by its key; 0 if it has none."""
    return int(key.removeprefix(_OF_JOB)) if key.startswith(_OF_JOB) else 0


class NewFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A flow about to enter the store."""

    flow: Flow
    #: The same key again is the same flow; with another definition it is refused. Never empty.
    key: str
    owner: str
    #: Where it came from: `command`, `message`, `api`, `flow` or `rule`.
    source: str = "command"
    #: The task that it belongs to, if it is a flow within another.
    parent: int | None = None
    tag: str = ""


class AttemptEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The end of an attempt."""

    state: Literal["done", "failed", "cancelled", "rejected", "lost"]
    reason: str = ""
    #: The kind of the reason, as in `bus.model.Reason`; `application` is the step's own failure.
    kind: str = ""
    code: str = ""
