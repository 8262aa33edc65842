"""Pilotage: events become jobs, jobs run where there is room, results are events again.

    from pilotage import Project

    with Project.find() as project:
        project.emit("beam.on", {"energy": 12.4})

Rules in Python are written with `pilotage.book`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilotage.hub.project import Project

__all__ = ["Project", "__version__"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import the project only when it is asked for: payloads and commands must start fast."""
    if name != "Project":
        message = f"module 'pilotage' has no attribute {name!r}"
        raise AttributeError(message)
    from pilotage.hub.project import Project

    return Project
