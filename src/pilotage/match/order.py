"""The nouns between queue and place: a job that enters, and a job that may start."""

from __future__ import annotations

import msgspec

from pilotage.match.bucket import Bucket
from pilotage.match.cluster import Cluster


class PickedJob(msgspec.Struct, frozen=True):
    """A job that may start at a place."""

    job: int
    priority: int
    bucket: Bucket
    charged: float


class QueuedJob(msgspec.Struct, frozen=True):
    """A job that enters the queue."""

    job: int
    priority: int
    owner: str
    cluster: Cluster
    limit: str = ""
    not_before: float = 0.0
