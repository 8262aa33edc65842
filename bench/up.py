"""The process that is measured: what `pilotage up` runs, telling when it is ready."""

from __future__ import annotations

import functools
import signal
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import anyio

from pilotage.event.file.source import FileSource
from pilotage.hub import wiring
from pilotage.hub.project import Project


class _Telling(FileSource):
    """A file source whose warnings, as of an overflow, are printed."""

    def __init__(self, *parts: Any, **more: Any) -> None:  # noqa: ANN401 - passed on as they are
        super().__init__(*parts, **more)
        self.warnings = _say


def main() -> None:
    """Run the project that is named, until told to end."""
    told = mock.patch.object(wiring, "FileSource", _Telling)
    with told, Project(Path(sys.argv[1])) as project:
        anyio.run(_run, project)


async def _run(project: Project) -> None:
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            tasks.start_soon(functools.partial(wiring.up, project, ready=lambda: _say("ready")))
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
