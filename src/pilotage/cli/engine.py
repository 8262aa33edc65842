"""The engine of `pilotage up`: the whole process, with a watch beside it and an ear for signals."""

from __future__ import annotations

import logging
import os
import signal

import anyio

from pilotage import errors, units
from pilotage.cli import shape
from pilotage.cli.answer import Styled
from pilotage.cli.rule import trigger_texts
from pilotage.cli.watch import Watch, Words
from pilotage.hub import config, facts, wiring
from pilotage.hub.project import Project

INTERRUPTED = 130
_FEW = 10


def drive(project: Project, *, until_idle: bool) -> tuple[dict[str, int], int]:
    """Run a project; return how many jobs ended in which state, and the signal that ended it."""
    watch = Watch(project.db.path)
    logger = logging.getLogger("pilotage")
    logger.addHandler(Words(watch))
    logger.setLevel(logging.INFO)
    try:
        heard = anyio.run(_run, project, watch, until_idle)
    except* errors.PilotageError as group:
        raise _first(group) from None
    finally:
        counts = watch.finish()
    return counts, heard


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
                os._exit(INTERRUPTED)
            watch.say("\nstopping: jobs that run are asked to end; Ctrl-C again stops at once")
            scope.cancel()


def _announce(project: Project, watch: Watch) -> None:
    offer = config.offer(project.settings)
    facts.note_offer(project.db, offer)
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
