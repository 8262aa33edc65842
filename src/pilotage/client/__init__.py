"""Python client of a hub: functions and commands in, futures of their results out.

    with pilotage.connect() as client:
        for area in client.map(measure, paths):
            ...

`core` decides without I/O; `sync` and `aio` connect it to a hub. After a lost connection the client
reconnects: each job is submitted exactly once, and no result is lost.
"""

from __future__ import annotations

from concurrent.futures import as_completed

from pilotage.client.aio import AsyncClient, AsyncFuture
from pilotage.client.file import File
from pilotage.client.flow import AsyncFlowRun, FlowRun
from pilotage.client.future import Future
from pilotage.client.options import Options
from pilotage.client.sync import Client, Executor, connect
from pilotage.job.model import Ended

__all__ = [
    "AsyncClient",
    "AsyncFlowRun",
    "AsyncFuture",
    "Client",
    "Ended",
    "Executor",
    "File",
    "FlowRun",
    "Future",
    "Options",
    "as_completed",
    "connect",
]
