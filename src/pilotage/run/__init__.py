"""This machine as a place: jobs become processes, which a starter runs and reports on.

A `Launch` comes in; `Started` and one `Ending` go out, and `classify` says what that means.
"""

from __future__ import annotations

from pilotage.run.model import Ending, EndReason, Launch, Report, Started, Usage
from pilotage.run.starter import Starter, alive, end_orphans, evidence

__all__ = [
    "EndReason",
    "Ending",
    "Launch",
    "Report",
    "Started",
    "Starter",
    "Usage",
    "alive",
    "end_orphans",
    "evidence",
]
