"""Pilotage: events become jobs, jobs run where there is room, results are events again.

    from pilotage import Project, rule

    @rule(files="raw/*.csv")
    def clean(path): ...

    with Project.find() as project:
        project.emit("beam.on", {"energy": 12.4})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pilotage.hub.project import Project
    from pilotage.rule.python import recipe, rule

__all__ = ["Project", "__version__", "recipe", "rule"]
__version__ = "0.1.0"

_HOMES = {
    "Project": "pilotage.hub.project",
    "recipe": "pilotage.rule.python",
    "rule": "pilotage.rule.python",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - PEP 562
    """Import what is asked for only then: a command must not pay for what it does not use."""
    if name not in _HOMES:
        message = f"module 'pilotage' has no attribute {name!r}"
        raise AttributeError(message)
    import importlib  # noqa: PLC0415 - as above

    return getattr(importlib.import_module(_HOMES[name]), name)
