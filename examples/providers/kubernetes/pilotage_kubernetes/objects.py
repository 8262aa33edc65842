"""The nouns of Kubernetes, as far as they matter here."""

from __future__ import annotations

import msgspec


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """What every object has."""

    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    creation_timestamp: str = ""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """Something that holds, or does not."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Ended(msgspec.Struct, frozen=True, rename="camel"):
    """A container that is over."""

    exit_code: int
    signal: int = 0
    reason: str = ""
    started_at: str | None = None
    finished_at: str | None = None


class Runs(msgspec.Struct, frozen=True, rename="camel"):
    """A container that runs."""

    started_at: str | None = None


class Waits(msgspec.Struct, frozen=True, rename="camel"):
    """A container that waits, and for what."""

    reason: str = ""
    message: str = ""


class State(msgspec.Struct, frozen=True, rename="camel"):
    """Where a container is: one of three."""

    waiting: Waits | None = None
    running: Runs | None = None
    terminated: Ended | None = None


class Container(msgspec.Struct, frozen=True, rename="camel"):
    """The one container of a pod."""

    state: State = State()


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a pod."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: list[Condition] = []
    container_statuses: list[Container] = []


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a pod is."""

    node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod, as far as it matters here."""

    metadata: Meta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def state(self) -> State:
        """That of its one container."""
        return (
            self.status.container_statuses[0].state if self.status.container_statuses else State()
        )


class JobStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What became of a job."""

    conditions: list[Condition] = []
    completion_time: str | None = None


class JobSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What was wanted of a job."""

    suspend: bool = False


class Job(msgspec.Struct, frozen=True):
    """A job, as far as it matters here."""

    metadata: Meta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()

    def condition(self, kind: str) -> Condition | None:
        """Return a condition that holds."""
        held = (one for one in self.status.conditions if one.type == kind and one.status == "True")
        return next(held, None)
