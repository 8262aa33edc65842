"""Every message that crosses the bus between a hub or a user and a site.

A *job*, a *control* and a *follow* go to the site; a *status*, a *log*, an *answer*, a *refusal*
and a *heartbeat* come from it. A *flow* goes to a hub, and a *course* comes from it. The schemas
are closed: unknown fields are refused, since a receiver must not seem to obey a field that it does
not know.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pilotage.bus.fields import (
    LARGEST_INT,
    MOST_LOG,
    Below,
    Bytes,
    Content,
    Count,
    Digest,
    Email,
    Json,
    Line,
    MaybeUrl,
    MaybeWord,
    Name,
    Option,
    Route,
    Seconds,
    Speech,
    State,
    Step,
    Text,
    Token,
    Url,
    Value,
    Variable,
    Verb,
    Whole,
    Word,
)  # fmt: skip

#: The version of these messages.
VERSION = 1
#: The most bytes of a body, and the deepest nesting of its lists and objects.
MOST_BODY_BYTES = 1_000_000
DEEPEST_BODY = 16


class Body(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind",
    tag=str.lower,
):  # fmt: skip
    """The body of a message; `kind` is the name of its class."""

    #: The version of messages.
    v: Literal[1] = 1


class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Resources of a job, beside nodes and tasks."""

    #: Cores of each task.
    cpus: Annotated[int, Meta(ge=1, le=100_000)] = 1
    #: Memory of each node in bytes; 0 means what the batch system gives.
    memory: Whole = 0
    #: GPUs of each node.
    gpus: Annotated[int, Meta(ge=0, le=1000)] = 0
    #: Disk of each node in bytes; 0 means what there is.
    disk: Whole = 0


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file or folder that is fetched before the job starts."""

    #: Where it comes from; a URL that ends with `/` is a folder.
    url: MaybeUrl = ""
    #: Its path below the folder of the job; empty means the folder itself.
    path: Below = ""
    #: Its SHA-256, if the sender knows it; of a folder, the digest of its manifest.
    sha256: Digest = ""
    #: Content of a small file in base64, instead of a URL; heartbeats list who allows that.
    content: Content | UnsetType = UNSET


class Output(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A file or folder that is sent after the job."""

    #: Its path below the folder of the job; empty means all of it.
    path: Below = ""
    #: Where it goes to.
    url: Url
    #: Its name below the URL; empty means that a file keeps its own name, and that the contents of
    #: a folder are sent without the folder.
    below: Below = ""


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Smaller sizes that a job accepts in order to start sooner; the site chooses."""

    #: Minimal nodes, if fewer than `nodes` are enough; 0 means that they are not.
    nodes_least: Annotated[int, Meta(ge=0, le=1_000_000)] = 0
    #: Minimal seconds, if less than `wall_time` is enough; 0 means that it is not.
    time_least: Annotated[int, Meta(ge=0, le=31_622_400)] = 0
    #: Minimal product of nodes and seconds, for every shape.
    work: Whole = 0


class Job(Body, frozen=True, kw_only=True):
    """Run an application of the site."""

    #: The site that shall run it.
    site: Word
    #: The name of the application in the site's registry.
    application: Word
    #: The same key is the same job; with another body it is refused. Empty: a digest of the body.
    key: Token = ""
    #: Counts the sender's own attempts: a new number with the same key is a new job.
    attempt: Annotated[int, Meta(ge=1, le=10_000)] = 1
    #: For people.
    name: Line = ""
    #: For people.
    description: Text = ""
    #: Parameters of the application, by name.
    parameters: Annotated[dict[Name, Value], Meta(max_length=256)] = {}
    #: Text that the site's parser turns into parameters.
    config: Annotated[str, Meta(max_length=262_144)] = ""
    #: The same in a file among the inputs.
    config_file: Below = ""
    #: Environment variables that the application allows.
    env: Annotated[
        dict[Variable, Annotated[str, Meta(max_length=4096)]], Meta(max_length=64)
    ] = {}  # fmt: skip
    #: Its resources.
    resources: Resources = Resources()
    #: Nodes.
    nodes: Count = 1
    #: Tasks on each node.
    tasks: Count = 1
    #: Queue or partition; empty means the site's default.
    queue: MaybeWord = ""
    #: The project to charge; empty means the site's default.
    project: MaybeWord = ""
    #: Wall time in seconds; 0 means the site's default.
    wall_time: Annotated[int, Meta(ge=0, le=31_622_400)] = 0
    #: Smaller sizes that it accepts; `nodes` and `wall_time` are the largest.
    shape: Shape = Shape()
    #: Options of the batch system that the site allows.
    options: Annotated[tuple[Option, ...], Meta(max_length=32)] = ()
    #: Files that are fetched before it.
    inputs: Annotated[tuple[Input, ...], Meta(max_length=1000)] = ()
    #: Files that are sent after it.
    outputs: Annotated[tuple[Output, ...], Meta(max_length=1000)] = ()
    #: The routing key of its status messages; empty means the site's own.
    reply: Route = ""
    #: The format of its status messages.
    speech: Speech = "pilotage"
    #: The sender's own numbers, which come back with each status.
    job_id: Whole = 0
    argo_job_id: Whole = 0


class Chain(Body, frozen=True, kw_only=True):
    """Jobs at one or more sites, each after the one before it."""

    #: As of a job.
    key: Token = ""
    #: For people.
    name: Line = ""
    #: For people.
    description: Text = ""
    #: Whatever the sender keeps track by.
    user_id: Line = ""
    group: Line = ""
    #: Address that is notified of its end.
    username: Line = ""
    email: Email = ""
    #: Files that are fetched before the first job.
    inputs: Annotated[tuple[Input, ...], Meta(max_length=1000)] = ()
    #: Files that are sent after the last job.
    outputs: Annotated[tuple[Output, ...], Meta(max_length=1000)] = ()
    #: Its jobs, in their order.
    jobs: Annotated[tuple[Job, ...], Meta(min_length=1, max_length=1000)]
    #: The routing key of its status messages.
    reply: Route = ""
    #: The format of its status messages.
    speech: Speech = "pilotage"


class Flow(Body, frozen=True, kw_only=True):
    """A workflow for a hub, which sends the jobs to their sites."""

    #: The same key again is the same workflow; with another one it is refused. Empty: its own.
    key: Token = ""
    #: The definition, as a file of JSON has it.
    flow: dict[str, Any]
    #: Values of parameters of the definition, by name.
    params: Annotated[dict[Name, Any], Meta(max_length=256)] = {}
    #: The routing key of its status messages; empty means the one in the definition.
    reply: Route = ""


class Course(Body, frozen=True, kw_only=True):
    """The state of a workflow; of two messages the one with the higher number is newer."""

    #: The number of the workflow at the hub; 0 if it was never accepted.
    flow: Whole
    #: The key that came with it.
    key: Token = ""
    #: For people.
    name: Line = ""
    #: Counts the messages on this workflow.
    seq: Annotated[int, Meta(ge=1, le=LARGEST_INT)]
    #: The step that it is about; empty means the whole workflow.
    step: Annotated[str, Meta(max_length=200)] = ""
    #: The task of that step, and its attempt; 0 means the step as a whole.
    task: Whole = 0
    attempt: Whole = 0
    #: Where it is.
    state: State | Literal["cancelling", "skipped", "lost"]
    #: Why.
    text: Annotated[str, Meta(max_length=2000)] = ""
    #: When, in seconds since 1970.
    time: Seconds


class Control(Body, frozen=True, kw_only=True):
    """Control jobs or the site."""

    #: The receiving site.
    site: Word
    #: What to do; `drain` and `resume` are about the site, and `query` may be. `resend` sends
    #: the outputs of done jobs again, and overwrites existing ones.
    verb: Verb
    #: Numbers of jobs at the site.
    jobs: Annotated[tuple[Whole, ...], Meta(max_length=10_000)] = ()
    #: Keys of jobs.
    keys: Annotated[tuple[Token, ...], Meta(max_length=10_000)] = ()
    #: Why, for the story of the job.
    reason: Line = ""
    #: The routing key of the answer.
    reply: Route = ""


class FollowedJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A job whose streams are followed, and how far the sender has them."""

    #: The key of the job.
    key: Token
    #: The number of the attempt at the site that the sender has something of; 0 if nothing.
    attempt: Whole = 0
    #: Bytes of its two streams that the sender has.
    stdout: Whole = 0
    stderr: Whole = 0


class Follow(Body, frozen=True, kw_only=True):
    """Send the output of running jobs for a while; hubs repeat it while the log is followed."""

    #: The receiving site.
    site: Word
    #: How long, in seconds.
    seconds: Annotated[float, Meta(ge=1, le=60)] = 15.0
    #: Which jobs.
    jobs: Annotated[tuple[FollowedJob, ...], Meta(min_length=1, max_length=1000)]


class Log(Body, frozen=True, kw_only=True):
    """A part of what a running job has written; it may be lost, or come twice."""

    #: The sending site.
    site: Word
    #: The number of the job at the site, and the key that came with it.
    job: Whole
    key: Token
    #: The number of the attempt at the site; each has streams of its own. 0 before the first.
    attempt: Whole = 0
    #: Where the part of each stream begins, in bytes, and the part in base64.
    stdout_at: Whole = 0
    stdout: Bytes = ""
    stderr_at: Whole = 0
    stderr: Bytes = ""


#: Codes of refusals that pass: the job is more than the limits of the site allow, the site does
#: not have its application now, or its sender has as many jobs there as may be.
LIMITS, NO_APPLICATION, BUSY = "limits", "no_application", "busy"


class Reason(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The reason of the state of a job."""

    #: Class of the reason; failures of the `application` are not retried automatically.
    kind: Literal[
        "", "application", "infrastructure", "policy", "message", "staging", "credential", "person"
    ] = msgspec.field(default="", name="class")  # fmt: skip
    #: A word for programs, such as `exit`, `timeout`, `memory`, `node_lost` or `conflict`.
    code: Annotated[str, Meta(pattern=r"^([a-z][a-z0-9_]{0,63})?$(?!\n)")] = ""
    #: A sentence for people.
    text: Annotated[str, Meta(max_length=10_000)] = ""


class Left(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Outputs that a job has sent to one URL."""

    #: Where it is now.
    url: Url
    #: The digest of the manifest there.
    digest: Digest
    #: How much that is.
    files: Whole
    bytes: Whole


class Status(Body, frozen=True, kw_only=True):
    """The state of a job; of two messages the one with the higher number is newer."""

    #: The sending site.
    site: Word
    #: The number of the job at the site; 0 if it was never accepted.
    job: Whole
    #: The key and the numbers that came with the job.
    key: Token = ""
    job_id: Whole = 0
    argo_job_id: Whole = 0
    #: The number of the attempt at the site; 0 before the first.
    attempt: Whole = 0
    #: Counts the messages on this job.
    seq: Annotated[int, Meta(ge=1, le=LARGEST_INT)]
    #: Where it is.
    state: State
    #: The step in that state, or at its end.
    step: Step = ""
    #: Why.
    reason: Reason = Reason()
    #: The number that the batch system gave it.
    scheduler_id: Line = ""
    #: When, in seconds since 1970.
    time: Seconds
    #: Progress from 0 to 1, if known.
    progress: Annotated[float, Meta(ge=0, le=1)] | None = None
    #: Outputs that it has sent, reported when it is done; each as it was sent last.
    left: Annotated[tuple[Left, ...], Meta(max_length=1000)] = ()
    #: Bytes of its inputs, reported at its end.
    read: Whole = 0
    #: The ends of its two streams in base64, reported at its end.
    stdout: Bytes = ""
    stderr: Bytes = ""
    #: Where those begin, in bytes; reported for jobs that were followed.
    stdout_at: Whole | UnsetType = UNSET
    stderr_at: Whole | UnsetType = UNSET
    #: The result of its function as JSON, reported at its end.
    result: Json = ""


class BatchQueue(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A queue of the batch system when it was last read."""

    #: Its name.
    name: Word
    #: Whether jobs go there that name none.
    default: bool = False
    #: Whether it takes jobs.
    open: bool = True
    #: Nodes that take jobs.
    nodes: Whole = 0
    #: Those of them that are empty.
    free_nodes: Whole = 0
    #: Cores of its largest node.
    cpus: Whole = 0
    #: Bytes of memory of its largest node.
    memory: Whole = 0
    #: Seconds of wall time that a job may have; 0 means any.
    time: Seconds = 0.0
    #: Jobs of this site that may be there at once; 0 means any number.
    jobs: Whole = 0


class Scheduler(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The state of the batch system."""

    #: Which it is.
    batch: MaybeWord = ""
    #: Whether it answers.
    well: bool = True
    #: Since when that is so, in seconds since 1970.
    since: Seconds = 0.0
    #: What it said.
    text: Annotated[str, Meta(max_length=2000)] = ""
    #: Its queues, if it shows them.
    queues: Annotated[tuple[BatchQueue, ...], Meta(max_length=200)] = ()
    #: When those were read, in seconds since 1970.
    seen: Seconds = 0.0


class Drain(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The drain of a site, which takes no more jobs."""

    #: The user who drained it.
    by: Line = ""
    #: Why.
    why: Line = ""
    #: Since when, in seconds since 1970.
    since: Seconds = 0.0


class Heartbeat(Body, frozen=True, kw_only=True):
    """The state of a site, sent periodically."""

    #: The sending site.
    site: Word
    #: When, in seconds since 1970.
    time: Seconds
    #: The version of Pilotage there.
    version: Line
    #: Increases each time that an agent takes the site over.
    epoch: Whole = 0
    #: Since when the agent runs.
    since: Seconds = 0.0
    #: Whether it takes no more jobs.
    draining: bool = False
    #: Who drained it, when and why, if that is known.
    drain: Drain = Drain()
    #: Jobs by state.
    counts: dict[State, Whole] = {}
    #: Status messages that wait to be sent.
    outbox: Whole = 0
    #: Days until the certificate expires; below 0 it has expired.
    certificate_days: float | None = None
    #: Free bytes where jobs have their folders.
    disk_free: Whole = 0
    #: The state of the batch system.
    scheduler: Scheduler = Scheduler()
    #: Applications that the site runs.
    applications: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    #: Those of them whose jobs may carry small inputs in their messages.
    carries: Annotated[tuple[Word, ...], Meta(max_length=1000)] = ()
    #: Bytes of such inputs that one message may carry.
    carried: Whole = MOST_LOG
    #: A digest of the rules for jobs: after a change the site may accept jobs that it refused.
    rules: MaybeWord = ""


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The result of a control for one job."""

    #: The number of the job; 0 if there is no such job of the sender's.
    job: Whole = 0
    #: The key that it was named by.
    key: Token = ""
    #: Whether it is now as was asked for, or will be.
    ok: bool = True
    #: Where it is now; empty if there is no such job.
    state: State | Literal[""] = ""
    step: Step = ""
    attempt: Whole = 0
    #: Why it is in that state, or why the control failed.
    text: Annotated[str, Meta(max_length=400)] = ""


class Answer(Body, frozen=True, kw_only=True):
    """The result of a control."""

    #: The sending site.
    site: Word
    #: When, in seconds since 1970.
    time: Seconds
    #: What was asked for; empty if it could not be read.
    verb: Verb | Literal[""] = ""
    #: Whether it was executed; `results` has the details on single jobs.
    ok: bool = True
    #: Why not.
    text: Annotated[str, Meta(max_length=10_000)] = ""
    #: Whether the site takes no more jobs.
    draining: bool = False
    #: Jobs of the sender by state, or of all users for an administrator; only with `query`.
    counts: dict[State, Whole] = {}
    #: What was done to each job, in the order in which they were named.
    results: Annotated[tuple[Result, ...], Meta(max_length=20_000)] = ()
    #: Whether a further answer follows, since this one would be too long.
    more: bool = False


class Refusal(Body, frozen=True, kw_only=True):
    """A message that a site refused; its body stays there, since it may hold secrets."""

    #: The sending site.
    site: Word
    #: When, in seconds since 1970.
    time: Seconds
    #: Who sent it, as the broker has verified; empty if unknown.
    user: Annotated[str, Meta(max_length=300)] = ""
    #: The topic that it came by.
    topic: Annotated[str, Meta(max_length=300)] = ""
    #: The key and the numbers that came with it, as far as they could be read.
    key: Token = ""
    job_id: Whole = 0
    argo_job_id: Whole = 0
    #: Why.
    reason: Reason = Reason()
    #: The SHA-256 of its body, and how many bytes that has.
    sha256: Digest = ""
    size: Whole = 0


Message = (
    Job | Chain | Flow | Course | Control | Follow | Status | Log | Heartbeat | Answer | Refusal
)
