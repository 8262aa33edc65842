"""What a step costs in small and in large workflows: all at once, then one that waits for all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bench.edge.bed import processor
from bench.figure import Figure, Goal, figure
from bench.flows.bed import SITES, Bed
from bench.remote.found import Found
from pilotage.flow.model import Flow, Step

_MS = 1000
#: What a task took of the hub's processor before each was a job, and how many times that it may.
_BEFORE_MS, _TIMES = 0.33, 1.15
_PROCESSOR_MS = round(_BEFORE_MS * _TIMES, 2)


def measure(one: Bed, sizes: Sequence[int], found: Found) -> None:
    """Run fans of several sizes: tasks of one step, and steps of one flow."""
    with one.sites("wide"), one.hub.up():
        one.run(_tasks(10))
        for size in sizes:
            before = processor(one.hub.process.pid)
            found.add(f"tasks, {size}", _MS * one.run(_tasks(size)) / size)
            used = processor(one.hub.process.pid) - before
            found.add(f"tasks, processor, {size}", _MS * used / size)
            found.add(f"steps, {size}", _MS * one.run(_steps(size)) / size)


def _tasks(size: int) -> Flow:
    fan = Step(application="nothing", sites=(SITES[0],), each=[*range(size)])
    last = Step(application="nothing", sites=(SITES[1],), needs=("fan",))
    return Flow(name="tasks", steps={"fan": fan, "last": last})


def _steps(size: int) -> Flow:
    made = {
        f"s{at}": Step(application="nothing", sites=(SITES[at % 2],)) for at in range(size)
    }  # fmt: skip
    last = Step(application="nothing", sites=(SITES[1],), needs=tuple(made))
    return Flow(name="steps", steps={**made, "last": last})


def figures(found: Found, sizes: Sequence[int]) -> Iterator[Figure]:
    """Say what was found."""
    yield figure(
        f"a fan of {sizes[0]} tasks of one step: processor time of the hub for each", "ms",
        found[f"tasks, processor, {sizes[0]}"], goal=Goal(_PROCESSOR_MS),
        note=f"at most {_TIMES:g} times the {_BEFORE_MS:g} ms that it was before tasks were jobs",
    )  # fmt: skip
    for kind, words in (("tasks", "tasks of one step"), ("steps", "steps of one flow")):
        for size in sizes:
            yield figure(
                f"a fan of {size} {words} and one that waits for all: time for each", "ms",
                found[f"{kind}, {size}"],
            )  # fmt: skip
        pairs = zip(found[f"{kind}, {sizes[-1]}"], found[f"{kind}, {sizes[0]}"], strict=True)
        times = [more / less for more, less in pairs]
        name = f"the same: {sizes[-1]} beside {sizes[0]}"
        yield figure(name, "times", times, goal=Goal(1.25), note="1 is flat")
