"""Answers of the API."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.edge.view import BrokerView
from pilotage.flow.records import StoryLine
from pilotage.flow.view import FlowSummary as FlowRow
from pilotage.flow.view import StepSummary, TaskDetail
from pilotage.job.model import Attempt, Binding, JobEnd, JobSpec
from pilotage.match.share import OwnerUsage
from pilotage.match.where import JobPlace
from pilotage.pilot.model import NodeFacts
from pilotage.pilot.view import PilotSummary
from pilotage.pool.view import PoolSample, PoolView
from pilotage.result.story import Child, Moment
from pilotage.status.sites import SiteStatus


class JobRow(msgspec.Struct, frozen=True):
    """A job in a list."""

    id: int
    name: str
    state: str
    reason: str
    owner: str
    priority: int
    attempt: int
    created: float
    started: float | None
    ended: float | None
    rule: str
    tag: str
    #: The pilot that runs or last ran it.
    pilot: int | None
    #: Where it runs or ran last: what the matchmaker chose, and the site where that is.
    place: JobPlace | None


class Jobs(msgspec.Struct, frozen=True):
    """Jobs, the newest first."""

    jobs: list[JobRow]
    #: What to give as `before` for more; nothing if there are no more.
    next: int | None


class JobSheet(JobRow, frozen=True):
    """All about a job."""

    not_before: float
    limit_key: str
    event: int | None
    parent: int | None
    spec: JobSpec
    binding: Binding
    attempts: list[Attempt]
    #: What its function returned.
    result: Any = None


class Numbers(msgspec.Struct, frozen=True, omit_defaults=True):
    """The numbers of jobs, in the order in which they were given."""

    ids: list[int]
    #: Why some of them will wait for their sites.
    notes: list[str] = []


class Became(msgspec.Struct, frozen=True):
    """The new state of a job."""

    state: str


class WhyView(msgspec.Struct, frozen=True):
    """The explanation of the state of a job."""

    id: int
    state: str
    headline: str
    reasons: list[WhyReason]
    suggestion: str


class WhyReason(msgspec.Struct, frozen=True):
    """One reason."""

    text: str
    detail: str


class Told(msgspec.Struct, frozen=True):
    """The history of a job."""

    id: int
    name: str
    state: str
    moments: list[Moment]
    outputs: list[str]
    children: list[Child]


class Written(msgspec.Struct, frozen=True):
    """A part of the log of an attempt."""

    attempt: int
    text: str
    #: The offset of what follows.
    next: int
    #: Whether nothing will follow.
    end: bool


class EndPage(msgspec.Struct, frozen=True):
    """Ends of jobs, in order."""

    ends: list[JobEnd]
    #: What to give as `after` for those that follow.
    after: int


class FlowPage(msgspec.Struct, frozen=True):
    """Workflows, the newest first."""

    flows: list[FlowRow]
    #: What to give as `before` for more; nothing if there are no more.
    next: int | None


class FlowSheet(FlowRow, frozen=True, kw_only=True):
    """All about a workflow."""

    description: str
    params: dict[str, Any]
    #: What comes out, and where that goes.
    outputs: dict[str, str]
    to: str
    #: The results of its outputs by their names, once it is done.
    result: dict[str, Any] | None
    #: The files that came out, once it is done: paths of the hub's machine, or URLs.
    files: list[str]
    #: Its steps, each with how far it is and why it waits.
    rows: list[StepSummary]
    #: Whether the caller may change it.
    steer: bool


class FlowTask(TaskDetail, frozen=True, kw_only=True):
    """A task of a step, and why it does not go on."""

    why: str


class FlowStep(msgspec.Struct, frozen=True):
    """A step of a workflow with its tasks, and what happened to it, the oldest first."""

    step: StepSummary
    tasks: list[FlowTask]
    story: list[StoryLine]


class FlowMade(msgspec.Struct, frozen=True, omit_defaults=True):
    """A workflow that was started."""

    id: int
    steps: int
    #: Why some of its steps will wait for their sites.
    notes: list[str] = []


class FlowAgain(msgspec.Struct, frozen=True):
    """The steps that run again."""

    steps: list[str]


class Rates(msgspec.Struct, frozen=True):
    """Per second, over the last minute."""

    submitted: float
    started: float
    ended: float


class Alarm(msgspec.Struct, frozen=True):
    """A problem that needs a person."""

    name: str
    since: float
    words: str


class Overview(msgspec.Struct, frozen=True):
    """Summary of the hub."""

    now: float
    #: Jobs and pilots by state.
    counts: dict[str, int]
    rates: Rates
    pilots: dict[str, int]
    cpus: int
    used: int
    alarms: list[Alarm]
    #: Time, running jobs, cores, cores in use.
    history: list[tuple[float, int, int, int]]


class RuleRow(msgspec.Struct, frozen=True):
    """A rule in force."""

    name: str
    book: str
    line: int | None
    #: What it waits for.
    trigger: str
    enabled: bool
    #: Jobs that it made, and when it made the last one, if that is not long ago.
    hits: int
    last: float | None


class RuleList(msgspec.Struct, frozen=True):
    """The rules in force."""

    rules: list[RuleRow]


class Switched(msgspec.Struct, frozen=True):
    """Whether a rule is enabled."""

    enabled: bool


class SiteList(msgspec.Struct, frozen=True):
    """All sites."""

    sites: list[SiteStatus]
    #: State of the broker of edge sites; nothing if there is none.
    broker: BrokerView | None


class Pools(msgspec.Struct, frozen=True):
    """The pools of the project."""

    pools: list[PoolView]
    #: Whether the caller may control them.
    steer: bool


class PoolSamples(msgspec.Struct, frozen=True):
    """Samples of pools, the oldest first."""

    samples: list[PoolSample]


class PilotRow(PilotSummary, frozen=True, kw_only=True):
    """A pilot in a list, and what its node has."""

    host: str
    cpus: int
    memory: int
    gpus: int


class Pilots(msgspec.Struct, frozen=True):
    """Pilots, the newest first."""

    pilots: list[PilotRow]
    next: int | None


class PilotJob(msgspec.Struct, frozen=True):
    """A job that a pilot runs."""

    id: int
    name: str
    state: str


class PilotSheet(PilotRow, frozen=True, kw_only=True):
    """All about a pilot."""

    facts: NodeFacts | None
    jobs: list[PilotJob]


class SiteSample(msgspec.Struct, frozen=True):
    """Use of a site at one time."""

    time: float
    site: str
    pilots: int
    cpus: int
    used: int
    running: int


class Samples(msgspec.Struct, frozen=True):
    """Use of sites, the oldest first."""

    samples: list[SiteSample]


class Shares(msgspec.Struct, frozen=True):
    """Shares of owners."""

    half_life: float
    shares: list[OwnerUsage]


class NewTokenView(msgspec.Struct, frozen=True):
    """A new token; its text is shown only once."""

    id: int
    token: str


class TokenRow(msgspec.Struct, frozen=True):
    """A token, without its text."""

    id: int
    scope: str
    owner: str
    pool: str
    site: str
    label: str
    created: float
    expires: float
    uses: int | None
    revoked: float | None


class Tokens(msgspec.Struct, frozen=True):
    """All tokens, the newest first."""

    tokens: list[TokenRow]


class Problem(msgspec.Struct, frozen=True):
    """The reason of a refusal."""

    code: str
    message: str
    hint: str


class Health(msgspec.Struct, frozen=True):
    """State of health."""

    status: str
    why: list[str] = []
