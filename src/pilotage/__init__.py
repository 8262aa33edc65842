"""Pilotage: events become jobs, jobs run where there is room, results are events again.

    from pilotage import Project

    with Project.find() as project:
        project.emit("beam.on", {"energy": 12.4})

    with pilotage.connect() as client:
        areas = list(client.map(measure, paths))

Rules in Python are written with `pilotage.book`, workflows with `pilotage.Flow`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilotage.client.file import File
    from pilotage.client.sync import connect
    from pilotage.flow.build import Flow
    from pilotage.hub.project import Project

__all__ = ["File", "Flow", "Project", "__version__", "connect"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import the rest only when it is asked for: payloads and commands must start fast."""
    if name == "Project":
        from pilotage.hub.project import Project

        return Project
    if name == "Flow":
        from pilotage.flow.build import Flow

        return Flow
    if name == "File":
        from pilotage.client.file import File

        return File
    if name == "connect":
        from pilotage.client.sync import connect

        return connect
    message = f"module 'pilotage' has no attribute {name!r}"
    raise AttributeError(message)
