"""`pilotage up`: run the project here."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path
from typing import Annotated

import anyio
import msgspec
from cyclopts import Parameter

from pilotage import errors, units
from pilotage.cli import facts, init, shape
from pilotage.cli.answer import Answer, Styled
from pilotage.cli.common import HERE, Common
from pilotage.cli.rule import trigger_texts
from pilotage.cli.watch import Watch, Words
from pilotage.hub import config, wiring
from pilotage.hub.project import Project
from pilotage.job.model import State

_INTERRUPTED = 130
_FEW = 10


def up(
    *,
    until_idle: Annotated[
        bool, Parameter(negative="", help="End when nothing is left to do; 1 if a job failed.")
    ] = False,
    cpus: Annotated[
        int | None, Parameter(help="Cores for jobs; else those of the settings.")
    ] = None,
    at: Common = HERE,
) -> Answer:
    """Run the project here: watch, match and run jobs until Ctrl-C."""
    with _open(at) as project:
        if cpus is not None:
            _limit(project, cpus)
        began = time.monotonic()
        watch = Watch(project.db.path)
        logger = logging.getLogger("pilotage")
        logger.addHandler(Words(watch))
        logger.setLevel(logging.INFO)
        try:
            interrupted = anyio.run(_run, project, watch, until_idle)
        except* errors.PilotageError as group:
            raise _first(group) from None
        finally:
            counts = watch.finish()
        took = time.monotonic() - began
        return _answer(project, counts, took, until_idle=until_idle, interrupted=interrupted)


def _open(at: Common) -> Project:
    """Open the project that is meant, or make one here."""
    try:
        return at.open()
    except errors.NoProject:
        if at.project is not None:
            raise
        init.make(Path.cwd())
        return Project(Path.cwd())


def _limit(project: Project, cpus: int) -> None:
    if cpus < 1:
        message = f"cannot run jobs on {cpus} cores"
        raise errors.UsageError(message, hint="`--cpus` is 1 or more")
    site = msgspec.structs.replace(project.settings.site, cpus=cpus)
    project.settings = msgspec.structs.replace(project.settings, site=site)


async def _run(project: Project, watch: Watch, until_idle: bool) -> int:  # noqa: FBT001
    """Run until the end, or until a signal; return that signal."""
    heard: list[int] = []
    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            tasks.start_soon(_listen, scope, watch, heard)
            tasks.start_soon(watch.run)
            await wiring.up(project, until_idle=until_idle, ready=lambda: _announce(project, watch))
        tasks.cancel_scope.cancel()
    return heard[0] if heard else 0


async def _listen(scope: anyio.CancelScope, watch: Watch, heard: list[int]) -> None:
    with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async for number in signals:
            heard.append(number)
            if len(heard) > 1:
                os._exit(_INTERRUPTED)
            watch.say("\nstopping: jobs that run are asked to end; Ctrl-C again stops at once")
            scope.cancel()


def _announce(project: Project, watch: Watch) -> None:
    offer = config.offer(project.settings)
    facts.note_offer(project, offer)
    known = {name: one.rule for name, one in project.rules().items() if one.enabled}
    memory = units.bytes_for_people(offer.memory)
    watch.say(
        Styled("pilotage", "bold"), f" runs {project.root} with {shape.count(offer.cpus, 'core')} "
        f"and {memory}; {shape.count(len(known), 'rule')}, Ctrl-C stops",
    )  # fmt: skip
    texts = trigger_texts(known, str(project.root))
    wide = max((len(name) for name in known), default=0)
    for name in list(known)[:_FEW]:
        watch.say(f"  {name:<{wide}}  ", Styled(texts[name], "dim"))
    if len(known) > _FEW:
        watch.say(f"  … and {len(known) - _FEW} more: `pilotage rule ls`")
    if not known:
        watch.say(f"  no rules in {project.settings.rules.folder}/; `pilotage submit` queues jobs")


def _first(group: BaseExceptionGroup[errors.PilotageError]) -> errors.PilotageError:
    found = group.exceptions[0]
    return _first(found) if isinstance(found, BaseExceptionGroup) else found


def _answer(
    project: Project, counts: dict[str, int], took: float, *, until_idle: bool, interrupted: int
) -> Answer:
    words = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    bad = counts.get(State.FAILED, 0) + counts.get(State.REJECTED, 0)
    status = 1 if until_idle and bad else 0
    if interrupted == signal.SIGINT:
        status = _INTERRUPTED
    notes = [f"{words or 'no jobs ended'} in {units.for_people(took)}"]
    if bad:
        notes.append("hint: `pilotage status` shows what failed")
    data = {"project": str(project.root), "ended": counts, "seconds": round(took, 3)}
    return Answer(data, notes=tuple(notes), status=status)
