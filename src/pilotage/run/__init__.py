"""Run payloads: a `Launch` comes in, `Started` and one `Ending` go out.

`starter` is the program that payloads are children of, `run` speaks with it, `remains` is for
when it has died, and `call` is the program of payloads whose recipe is a Python function.
"""

from __future__ import annotations

from pilotage.run.model import Ending, Launch, Report, Started, Usage, Why
from pilotage.run.remains import alive, end_orphans, evidence
from pilotage.run.starter import Starter

__all__ = [
    "Ending",
    "Launch",
    "Report",
    "Started",
    "Starter",
    "Usage",
    "Why",
    "alive",
    "end_orphans",
    "evidence",
]
