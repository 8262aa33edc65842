"""Format all details of a job."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from pilotage.base import units
from pilotage.cli import formatting, job_table
from pilotage.cli.answer import Cell, Shown, Styled, Table, columns, line
from pilotage.job import model
from pilotage.match.where import JobPlace

_ATTEMPTS = columns("TRY> STATE BEGAN TIME> CPU> MEMORY> ENDED")


def job(
    one: model.Job, attempts: Sequence[model.Attempt], now: float, sender: str | None = None,
    place: JobPlace | None = None,
) -> Iterator[Shown]:  # fmt: skip
    """Write a job with its definition and its attempts.

    `sender` is whose message it came by, `place` where it runs or ran.
    """
    yield line(Styled(f"job {one.id}", "bold"), f"  {one.name}  ", formatting.state(one.state))
    facts = {
        "reason": one.reason,
        "runs": runs(one.spec.recipe),
        "in": one.spec.cwd,
        "file": one.binding.path,
        "files": ", ".join(one.binding.paths),
        "sweep": _pairs(one.binding.sweep),
        "params": _pairs(one.spec.params),
        "outputs": _pairs(one.spec.outputs),
        "needs": needs(one.spec),
        "where": where(one.spec),
        "limit": one.limit_key and f"{one.limit_key.replace(':', ', ')} at once",
        "retry": f"{one.spec.retry.attempts} attempts" if one.spec.retry.attempts > 1 else "",
        "priority": str(one.priority or ""),
        "tag": one.tag,
        "cause": cause(one) if sender is None else f"a message of {sender}",
        "made": formatting.clock(one.created),
        "time": job_table.elapsed(one, now),
        "place": at(place),
        **_where_it_is(attempts),
    }
    for name, value in facts.items():
        if value:
            yield formatting.pair(name, value)
    if attempts:
        yield ""
        yield Table(_ATTEMPTS, tuple(_attempt(each, now) for each in attempts))


def _where_it_is(attempts: Sequence[model.Attempt]) -> dict[str, str]:
    """Name the folder of the last attempt, or the flow that it is."""
    if not attempts:
        return {}
    flow = attempts[-1].starter.removeprefix("flow:")
    return {"flow": flow} if flow != attempts[-1].starter else {"directory": attempts[-1].dir}


def at(place: JobPlace | None) -> str:
    """Write where a job runs or ran."""
    if place is None:
        return ""
    match place.kind:
        case "local":
            return "this machine"
        case "pilot":
            return f"pilot {place.pilot} at {place.site}"
        case "batch":
            return f"the batch queue of {place.site}"
        case "agent":
            return f"the site {place.site}, by its agent"
        case "hub":
            return "another hub"


def cause(one: model.Job) -> str:
    """Return what made a job."""
    parts = [f"rule {one.rule}" if one.rule else "submitted by hand"]
    parts += [f"event {one.event}"] if one.event is not None else []
    parts += [f"job {one.parent}"] if one.parent is not None else []
    return ", ".join(parts)


def runs(recipe: model.Recipe) -> str:
    """Write what runs on one line."""
    match recipe:
        case model.Command(argv=argv):
            return shlex.join(argv)
        case model.App(app=app, args=args):
            return shlex.join([app, *args])
        case model.Script(interpreter=interpreter, args=args):
            words = [
                *map(shlex.quote, interpreter),
                shlex.quote(recipe.file) if recipe.file else "(script)",
            ]
            return " ".join([*words, *map(shlex.quote, args)])
        case model.Python(function=function) | model.Call(function=function):
            return f"{recipe.file or '(Python)'}{':' if function else ''}{function}"
        case model.Notebook(file=file):
            return file or "(notebook)"
        case model.Workflow(file=file, flow=flow):
            return f"flow {flow.get('name', '')} of {file}" if file else f"flow {flow.get('name')}"


def needs(spec: model.JobSpec) -> str:
    """Write what a job needs on one line; a workflow needs nothing but what its steps do."""
    if isinstance(spec.recipe, model.Workflow):
        return ""
    resources = spec.resources
    parts = [formatting.count(resources.cpus, "cpu")]
    if resources.memory is not None:
        parts.append(f"{units.bytes_for_people(resources.memory)} of memory")
    if resources.gpus:
        parts.append(formatting.count(resources.gpus, "gpu"))
    if resources.disk is not None:
        parts.append(f"{units.bytes_for_people(resources.disk)} of disk")
    if resources.time is not None:
        parts.append(f"at most {units.for_people(resources.time)}")
    return ", ".join(parts)


def where(spec: model.JobSpec) -> str:
    """Write where a job may run and would rather run on one line."""
    asked = spec.allocation
    parts = (
        spec.site and f"at {spec.site}{f' by {spec.via}' if spec.via else ''}",
        asked.nodes * asked.tasks > 1 and f"{asked.nodes} × {asked.tasks} tasks",
        asked.queue and f"queue {asked.queue}",
        spec.site and spec.data == "mounted" and "its data mounted from here",
        spec.requirements,
        spec.rank and f"rather by {spec.rank}",
        spec.image and f"in {spec.image}",
    )
    return "; ".join(part for part in parts if part)


def _pairs(facts: Mapping[str, object]) -> str:
    return ", ".join(f"{name} = {value}" for name, value in facts.items())


def _attempt(one: model.Attempt, now: float) -> tuple[Cell, ...]:
    wall = one.wall if one.wall is not None else (one.ended or now) - one.started
    return (
        one.number,
        formatting.state(one.state),
        formatting.clock(one.started),
        units.for_people(max(0.0, wall)),
        "" if one.cpu is None else units.for_people(one.cpu),
        "" if one.max_rss is None else units.bytes_for_people(one.max_rss),
        how(one),
    )


def how(one: model.Attempt) -> str:
    """Return how an attempt ended."""
    if one.ended is None:
        return ""
    if one.reason:
        return one.reason
    if one.signal is not None:
        return f"signal {one.signal}"
    return "" if one.exit is None else f"exit {one.exit}"
