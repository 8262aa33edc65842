"""The chain of jobs of a legacy definition, as a workflow.

The original put the data of all its jobs into one folder, whatever URLs these had themselves. Here
each job gets what the one before it has left, all of it, and what it names itself beside that; what
comes of the last one goes to where the whole was to go.
"""

from __future__ import annotations

import re
from typing import Any

from pilotage.bus.model import Chain, Input, Job
from pilotage.edge.handoff import Take
from pilotage.flow.check import LONGEST, check
from pilotage.flow.model import Flow, Notify, Span, Step

_ODD = re.compile(r"[^\w-]+")
_NUMBER = re.compile(r"argo:(\d+)")
#: What a step is called for people, at most.
_LONGEST = 80


def from_chain(chain: Chain) -> Flow:
    """Return the flow of a chain: steps `1-NAME`, `2-NAME` and so on."""
    steps: dict[str, Step] = {}
    before = ""
    for number, job in enumerate(chain.jobs, 1):
        name = f"{number}-{_word(job.name or job.application)}"
        steps[name] = _step(job, before, () if before else chain.inputs)
        before = name
    known = _NUMBER.fullmatch(chain.key)
    to = chain.outputs or chain.jobs[-1].outputs
    flow = Flow(
        name=_title(chain.name) or "chain",
        description=chain.description,
        steps=steps,
        outputs={"last": before},
        to=_plain(to[0].url) if to else "",
        notify=Notify(
            reply=chain.reply,
            speech="argo" if chain.speech == "argo" else "pilotage",
            number=int(known[1]) if known else 0,
            email=chain.email,
        ),
    )
    check(flow)
    return flow


def _step(job: Job, before: str, first: tuple[Input, ...]) -> Step:
    own = [Take(url=_plain(one.url), path=_plain(one.path), sha256=one.sha256)
           for one in (*first, *job.inputs)]  # fmt: skip
    shape = job.shape
    return Step(
        needs=(before,) if before else (),
        sites=(job.site,),
        application=job.application,
        parameters=_plain(job.parameters),
        config=_plain(job.config),
        config_file=job.config_file,
        env=_plain(job.env),
        inputs=(*([Take(step=before)] if before else []), *own),
        outputs=("",),
        nodes=Span(shape.nodes_least or job.nodes, job.nodes),
        tasks=job.tasks,
        time=Span(shape.time_least or job.wall_time, job.wall_time),
        work=shape.work,
        cpus=job.resources.cpus,
        memory=job.resources.memory,
        gpus=job.resources.gpus,
        disk=job.resources.disk,
        queue=job.queue,
        project=job.project,
        options=_plain(job.options),
    )


def _word(name: str) -> str:
    return _ODD.sub("-", name).strip("-")[:_LONGEST] or "job"


def _title(name: str) -> str:
    """Write the name of a flow as one can be: legacy names can be anything."""
    return "".join(one if one.isprintable() else " " for one in name)[:LONGEST].strip()


def _plain(value: Any) -> Any:  # noqa: ANN401 - texts in whatever holds them
    """Keep braces what they are: a legacy definition has no templates."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, tuple):
        return tuple(_plain(inner) for inner in value)
    return value
