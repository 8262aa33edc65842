"""A task that is a job of this hub: on this machine, by pilots, or at a site of the project."""

from __future__ import annotations

import glob
import hashlib
from typing import Any

import msgspec

from pilotage import errors
from pilotage.flow.model import Step
from pilotage.hub import submission
from pilotage.hub.flows import results
from pilotage.hub.flows.model import Order, Prepared, Unfit
from pilotage.job.model import (
    Allocation,
    App,
    Binding,
    JobSpec,
    NewJob,
    Recipe,
    Resources,
    Shape,
)
from pilotage.site.apps.command import literal

_LONGEST = 200


class _Item(msgspec.Struct, frozen=True):
    """A job as `submission.check` wants it."""

    spec: JobSpec
    binding: Binding = Binding()
    key: str = ""
    tag: str = ""
    after: tuple[int, ...] = ()


def job(order: Order, prepared: Prepared) -> NewJob:
    """Write the job of an attempt; one that could never run is `Unfit`."""
    try:
        spec = _spec(order, prepared)
        submission.check(_Item(spec))
    except (errors.PilotageError, msgspec.ValidationError) as error:
        raise Unfit(f"it cannot be a job of this hub: {error}") from None
    return NewJob(spec, key=key(order.key), tag=f"flow:{order.flow}", owner=order.owner)


def key(attempt: str) -> str:
    """Return the key of the job of an attempt: the same attempt is the same job."""
    return hashlib.blake2b(attempt.encode(), digest_size=16).hexdigest()


def _spec(order: Order, prepared: Prepared) -> JobSpec:
    step = order.definition
    batch = bool(order.site)
    return JobSpec(
        recipe=_recipe(step),
        name=f"{order.name}/{order.step}"[:_LONGEST],
        params=_literal(step.parameters),
        env=_literal(step.env),
        cwd=literal(prepared.folder),
        inputs=_inputs(order, prepared) if batch else (),
        outputs=_outputs(step, prepared) if batch else {},
        resources=Resources(
            cpus=step.cpus, memory=step.memory or None, gpus=step.gpus, disk=step.disk or None,
            time=float(step.time.most) or None,
        ),
        requirements="" if batch else step.requirements,
        site=order.site,
        via="batch" if batch else "",
        allocation=Allocation(
            nodes=step.nodes.most, tasks=step.tasks, queue=step.queue, account=step.project,
            extra=step.options,
            shape=Shape(
                nodes_least=0 if step.nodes.least == step.nodes.most else step.nodes.least,
                time_least=0.0 if step.time.least == step.time.most else float(step.time.least),
                work=float(step.work),
            ),
        ) if batch else Allocation(),
    )  # fmt: skip


def _inputs(order: Order, prepared: Prepared) -> tuple[str, ...]:
    """Name the folder that the inputs of a job were brought to: all of it goes to the site."""
    if not (prepared.folder and order.inputs):
        return ()
    return (literal(glob.escape(prepared.folder)),)


def _outputs(step: Step, prepared: Prepared) -> dict[str, str]:
    """Name what comes home from the site, into the folder where outputs are looked for."""
    if not prepared.folder:
        return {}
    return {
        one or ".": literal(f"{prepared.folder}/{one}".rstrip("/"))
        for one in results.leaves(step).outputs
    }


def _recipe(step: Step) -> Recipe:
    if step.application:
        return App(app=step.application)
    found = {
        name: _literal(value) if name in ("argv", "args") else value
        for name, value in step.recipe.items()
    }
    made: Recipe = msgspec.convert(found, Recipe)
    return made


def _literal(value: Any) -> Any:  # noqa: ANN401 - plain values
    """Write all texts so that they say just themselves: what a job's definition has are templates.

    Those of the flow are filled in already.
    """
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, dict):
        return {name: _literal(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_literal(one) for one in value]
    return value
