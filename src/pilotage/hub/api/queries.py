"""Parameters and bodies of requests; unknown fields are errors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pilotage.flow.model import FlowState
from pilotage.job.model import JobRequest
from pilotage.job.model import State as JobState
from pilotage.pilot.model import PilotState
from pilotage.project.tokens import TokenScope

_FAR = 2**53
_LONG = 200


def _some(states: Iterable[str]) -> str:
    one = "|".join(states)
    return f"^({one})(,({one}))*$"


Number = Annotated[int, Meta(ge=1, le=_FAR)]
Count = Annotated[int, Meta(ge=0, le=_FAR)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Text = Annotated[str, Meta(max_length=_LONG)]
JobStates = Annotated[str, Meta(pattern=_some(JobState), description="One state, or several.")]
PilotStates = Annotated[str, Meta(pattern=_some(PilotState), description="One state, or several.")]
FlowStates = Annotated[
    str,
    Meta(
        pattern=_some(("running", "cancelling", "staging_out", "done", "failed", "cancelled")),
        description="One state, or several.",
    ),
]
Owner = Annotated[str, Meta(pattern=r"^([A-Za-z0-9_.@-]{1,64}(/[A-Za-z0-9_.@-]{1,64})?)?$")]
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@-]{0,64}$")]
Sites = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_.@,-]{0,1300}$")]


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Body of a request."""


class One(Ask, frozen=True):
    """A thing by its number."""

    id: Number


class PilotNumber(Ask, frozen=True):
    """A pilot by its number; 0 is the hub's own machine."""

    id: Count


class Named(Ask, frozen=True):
    """A thing by its name."""

    name: Text


class ListAsk(Ask, frozen=True):
    """Filter of a list, the newest first."""

    #: Glob of the name.
    name: Text = ""
    owner: Text = ""
    tag: Text = ""
    #: Only those with lower numbers.
    before: Number | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100


class JobsAsk(ListAsk, frozen=True):
    """Filter of jobs."""

    state: JobStates | UnsetType = UNSET
    #: Part of the name, the tag or the reason, or the number.
    search: Text = ""


class SubmitJob(JobRequest, frozen=True):
    """A job to queue."""

    #: The same key twice is one job.
    key: Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")] = ""
    tag: Text = ""
    #: Jobs that must be done before it.
    after: Annotated[tuple[Number, ...], Meta(max_length=10_000)] = ()


class Submission(Ask, frozen=True):
    """Jobs to queue, all or none."""

    jobs: Annotated[tuple[SubmitJob, ...], Meta(min_length=1, max_length=10_000)]


class FlowsAsk(ListAsk, frozen=True):
    """Filter of workflows."""

    state: FlowStates | UnsetType = UNSET
    #: Include workflows that are steps of others.
    within: bool = False


class NewFlow(Ask, frozen=True):
    """A workflow to start."""

    #: As in a JSON file.
    flow: dict[str, Any]
    #: Values of its parameters.
    params: dict[str, Any] = {}
    #: The same key twice is one flow.
    key: Annotated[str, Meta(pattern="^[A-Za-z0-9_.-]{0,64}$")] = ""
    tag: Text = ""


class StepOf(Ask, frozen=True):
    """A step of a workflow."""

    id: Number
    name: Text


class StepAsk(Ask, frozen=True):
    """Filter of the tasks of a step."""

    state: Annotated[str, Meta(pattern=f"^({'|'.join(FlowState)})?$")] = ""
    #: Only those after this place in the list.
    after: Annotated[int, Meta(ge=-1, le=_FAR)] = -1
    limit: Annotated[int, Meta(ge=1, le=1000)] = 100
    #: Lines of the story, the newest.
    lines: Annotated[int, Meta(ge=1, le=1000)] = 50


class Again(Ask, frozen=True):
    """From where a workflow runs again."""

    #: None means from what failed or was cancelled.
    steps: Annotated[tuple[Text, ...], Meta(max_length=100)] = ()


class DrainAsk(Ask, frozen=True):
    """The reason to drain a site."""

    reason: Text = ""


class LogAsk(Ask, frozen=True):
    """Part of the output of an attempt."""

    stream: Literal["stdout", "stderr"] = "stdout"
    #: Nothing means the last one.
    attempt: Number | UnsetType = UNSET
    #: In bytes; below 0 it counts from the end.
    offset: Annotated[int, Meta(ge=-_FAR, le=_FAR)] = 0


class EndsAsk(Ask, frozen=True):
    """Filter of ends, and how long to wait for one."""

    tag: Text = ""
    #: Only ends after this line of the journal; nothing means from now on.
    after: Count | UnsetType = UNSET
    wait: Annotated[float, Meta(ge=0, le=60)] = 0.0


class PilotsAsk(Ask, frozen=True):
    """Filter of pilots."""

    state: PilotStates | UnsetType = UNSET
    before: Number | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=5000)] = 1000


class SamplesAsk(Ask, frozen=True):
    """Since when; nothing means the last hour."""

    since: Seconds | UnsetType = UNSET


class PoolSamplesAsk(Ask, frozen=True):
    """Since when, and how closely; nothing means the last hour of all pools."""

    since: Seconds | UnsetType = UNSET
    #: Only this pool.
    pool: Word = ""
    #: Points of a picture.
    points: Annotated[int, Meta(ge=2, le=2000)] = 1000


class Demand(Ask, frozen=True):
    """Cores that a pool shall have."""

    demand: Annotated[float, Meta(ge=0, le=1e9)]
    #: Who asks: the same each time, or two seem to.
    by: Annotated[str, Meta(min_length=1, max_length=_LONG)]
    #: Why, for people.
    words: Annotated[str, Meta(max_length=1000)] = ""


class NewToken(Ask, frozen=True):
    """A token to make."""

    scope: TokenScope
    owner: Owner = ""
    #: In seconds.
    lifetime: Annotated[float, Meta(ge=1, le=315_360_000)] = 30 * 86400.0
    label: Text = ""
    pool: Word = ""
    site: Sites = ""
    #: How often it may be used; nothing means as often as one likes.
    uses: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
