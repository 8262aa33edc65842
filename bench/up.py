"""The process that is measured: what `pilotage up` runs, telling when it is ready."""

from __future__ import annotations

import functools
import logging
import signal
import sys
from pathlib import Path

import anyio

from pilotage.hub import process
from pilotage.hub.project import Project


def main() -> None:
    """Run the project that is named, until told to end."""
    logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.WARNING)
    with Project(Path(sys.argv[1])) as project:
        anyio.run(_run, project)


async def _run(project: Project) -> None:
    async with anyio.create_task_group() as tasks:
        with anyio.open_signal_receiver(signal.SIGTERM) as signals:
            tasks.start_soon(functools.partial(process.up, project, ready=lambda: _say("ready")))
            async for _ in signals:
                tasks.cancel_scope.cancel()
                return


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
