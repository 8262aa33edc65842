"""What the steps of a flow and of flows within it did, as entities of an RO-Crate."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pilotage import text
from pilotage.flow import look
from pilotage.flow.detail import Left, Task
from pilotage.flow.entity import Entities, between, named, path, plain, ref, refs, time
from pilotage.flow.look import Sheet
from pilotage.flow.model import Flow, Step
from pilotage.flow.records import AttemptRow

LANGUAGE, ENGINE = "#pilotage-flow", "#pilotage"
STATUS = {
    "done": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "cancelled": "http://schema.org/FailedActionStatus",
    "rejected": "http://schema.org/FailedActionStatus",
    "lost": "http://schema.org/FailedActionStatus",
}
ACTIVE = "http://schema.org/ActiveActionStatus"
_POTENTIAL = "http://schema.org/PotentialActionStatus"


class Part(NamedTuple):
    """A flow, with all of its tasks."""

    sheet: Sheet
    tasks: Sequence[Task]


class Run(NamedTuple):
    """All that a crate tells of."""

    main: Part
    files: Sequence[Left]
    #: The licence of what is in it, and when it is made.
    license: str
    now: float
    #: The version of Pilotage that ran it, as far as anybody knows.
    version: str
    #: Flows within it, by the keys of the attempts that they are.
    within: Mapping[str, Part] = {}
    #: Files that are in the crate, by task, attempt and name: their path in it.
    inside: Mapping[tuple[int, int, str], str] = {}
    #: Whether the report is in it.
    report: bool = False


class Happened(Entities):
    """Tools, steps, actions and files."""

    def __init__(self, run: Run) -> None:
        """Sort what there is to tell."""
        super().__init__()
        self.run = run
        #: What the crate as a whole consists of.
        self.parts: list[str] = []
        self._left: dict[tuple[int, int], list[Left]] = {}
        for one in run.files:
            self._left.setdefault((one.task, one.number), []).append(one)
        self._of_step: dict[tuple[int, str], list[Task]] = {}
        for part in (run.main, *run.within.values()):
            for task in part.tasks:
                self._of_step.setdefault((part.sheet.row.id, task.step), []).append(task)

    # -- what is asked for -----------------------------------------------------------------------

    def steps(self, flow: Flow, base: str) -> list[str]:
        """Tell of the steps of a flow, each with what it runs."""
        return [
            self.add(
                _step(base, name), "HowToStep", name=name, position=str(place),
                workExample=ref(self.tool(one)),
            )
            for place, (name, one) in enumerate(flow.steps.items())
        ]  # fmt: skip

    def tool(self, one: Step) -> str:
        """Tell of what a step runs: an application, a program, or a flow of its own."""
        if one.flow is not None:
            return self._flow(one.flow)
        word = look.runs(one) or "tool"
        argv = one.recipe.get("argv")
        return self.add(
            f"#tool-{named(word)}", "SoftwareApplication", name=word,
            description=f"A command of the hub: {text.dump(argv)}" if argv else "",
        )  # fmt: skip

    def _flow(self, flow: Flow) -> str:
        key = _flow_key(flow)
        if key in self.found:
            return key
        tools = dict.fromkeys(self.tool(one) for one in flow.steps.values())
        steps = self.steps(flow, key)
        return self.add(
            key, ["SoftwareSourceCode", "ComputationalWorkflow", "HowTo"], name=flow.name,
            programmingLanguage=ref(LANGUAGE), description=flow.description, step=refs(steps),
            hasPart=refs(tools),
        )  # fmt: skip

    # -- what happened ---------------------------------------------------------------------------

    def controls(self, part: Part, base: str) -> list[str]:
        """Tell of each step what was done for it."""
        number = part.sheet.row.id
        whys = {one.name: one.reason or one.state for one in part.sheet.steps}
        found = []
        for name, asked in part.sheet.flow.steps.items():
            actions = [
                self._action(part, name, task, one)
                for task in self._of_step.get((number, name), ())
                for one in task.attempts
                if one.started is not None or one.ended is not None
            ] or [self._not_run(number, name, asked, whys.get(name, ""))]
            found.append(
                self.add(
                    f"#control-{number}-{named(name)}", "ControlAction", name=f"Orchestrate {name}",
                    instrument=ref(_step(base, name)), object=refs(actions),
                )
            )  # fmt: skip
        return found

    def organize(self, part: Part, base: str, agent: str, run: str) -> None:
        """Tell that the engine ran a flow."""
        row = part.sheet.row
        self.add(
            f"#engine-run-{row.id}", "OrganizeAction",
            name=f"Pilotage {self.run.version} ran {row.name}", agent=ref(agent),
            instrument=ref(ENGINE), object=refs(self.controls(part, base)), result=ref(run),
            **between(row.created, row.ended),
        )  # fmt: skip

    def _not_run(self, number: int, name: str, asked: Step, why: str) -> str:
        """Tell of what did not take place: a tool must have an action, by the profile."""
        for inner, one in asked.flow.steps.items() if asked.flow else ():
            self._not_run(number, f"{name}/{inner}", one, why)
        return self.add(
            f"#not-run-{number}-{named(name)}", "CreateAction", name=f"{name} was not run",
            instrument=ref(self.tool(asked)), actionStatus=_POTENTIAL, description=why,
        )  # fmt: skip

    def _action(self, part: Part, step: str, task: Task, one: AttemptRow) -> str:
        asked = part.sheet.flow.steps[step]
        where = look.place(one.way, one.site)
        counts = one.number == task.attempt and not one.fenced
        made = self._made(task, one) if counts else []
        item = f" for item {task.item}" if asked.each is not None else ""
        again = f", attempt {one.number}" if one.number > 1 else ""
        state = task.state if counts and one.state not in STATUS else one.state
        key = self.add(
            f"#{named(one.key)}", "CreateAction", name=f"Run of {step}{item}{again} at {where}",
            instrument=ref(self.tool(asked)),
            object=refs([*self._read(part, asked), *self._values(asked, task)]),
            result=refs(made), agent=ref(ENGINE),
            location=ref(self.add(f"#site-{named(where)}", "Place", name=where)),
            **between(one.started or one.created, one.ended),
            actionStatus=STATUS.get(state, ACTIVE),
            error=(one.reason or state) if STATUS.get(state) == STATUS["failed"] else "",
        )  # fmt: skip
        within = self.run.within.get(one.key)
        if asked.flow is not None and within is not None:
            self.organize(within, _flow_key(asked.flow), ENGINE, key)
        elif asked.flow is not None:
            self._not_run(part.sheet.row.id, step, asked, one.reason)
        return key

    def _read(self, part: Part, asked: Step) -> Iterable[str]:
        """Name what an attempt was given."""
        for take in asked.inputs:
            if take.step:
                for task in self._of_step.get((part.sheet.row.id, take.step), ()):
                    yield from self._outputs(task, take.output)
            elif take.url and "{" not in take.url:
                self.parts.append(path(take.url))
                yield self.add(
                    path(take.url), "File", name=take.url.rsplit("/", 1)[-1], sha256=take.sha256,
                    sdDatePublished=time(part.sheet.row.created),
                )  # fmt: skip

    def _values(self, asked: Step, task: Task) -> Iterable[str]:
        if asked.each is not None:
            yield self.value(f"#item-{task.id}", "item", task.value)
        for name, value in asked.parameters.items():
            yield self.value(f"#value-{named(task.step)}-{named(name)}", name, value)

    def value(self, key: str, name: str, value: Any, of: str = "") -> str:  # noqa: ANN401
        """Tell of a value, and of which parameter it is one."""
        return self.add(
            key, "PropertyValue", name=name, value=plain(value),
            exampleOfWork=ref(of) if of else "",
        )  # fmt: skip

    # -- what was left ---------------------------------------------------------------------------

    def results(self, part: Part, output: str = "") -> dict[str, list[str]]:
        """Name what comes out of a flow, by the names of its outputs."""
        return {
            name: [
                each
                for task in self._of_step.get((part.sheet.row.id, what.partition("/")[0]), ())
                for each in self._outputs(task, what.partition("/")[2])
            ]
            for name, what in part.sheet.flow.outputs.items()
            if output in ("", name)
        }

    def last(self, part: Part) -> list[str]:
        """Name what the last steps of a flow left."""
        flow = part.sheet.flow
        needed = {each for one in flow.steps.values() for each in one.needs}
        return [
            one
            for name in flow.steps
            if name not in needed
            for task in self._of_step.get((part.sheet.row.id, name), ())
            for one in self._outputs(task, "")
        ]

    def _outputs(self, task: Task, output: str) -> list[str]:
        """Name what counts of a task: all, one file, or what is below one folder."""
        current = next((one for one in task.attempts if one.number == task.attempt), None)
        return [] if current is None else self._made(task, current, output)

    def _made(self, task: Task, one: AttemptRow, output: str = "") -> list[str]:
        within = self.run.within.get(one.key)
        if within is not None:
            found = self.results(within, output)
            return [each for some in found.values() for each in some]
        folder = output.rstrip("/") + "/"
        return [
            self._file(left, one)
            for left in self._left.get((task.id, one.number), ())
            if not output or left.name == output or left.name.startswith(folder)
        ]

    def _file(self, left: Left, one: AttemptRow) -> str:
        inside = self.run.inside.get((left.task, left.number, left.name))
        cleared = self.run.main.sheet.row.cleared
        name = path(inside or f"{one.place}{left.name}")
        self.parts.append(name)
        return self.add(
            name, "File", name=left.name, contentSize=str(left.size), sha256=left.sha256,
            encodingFormat=mimetypes.guess_type(left.name)[0] or "application/octet-stream",
            dateModified=time(one.ended) if one.ended else "",
            description="" if inside or not cleared else "It was cleared away since.",
        )  # fmt: skip


def _step(base: str, name: str) -> str:
    return f"{base}{'/' if base.startswith('#') else '#'}{named(name)}"


def _flow_key(flow: Flow) -> str:
    # Two flows of one name may be different.
    digest = hashlib.sha256(text.dump(flow).encode()).hexdigest()
    return f"#flow-{named(flow.name)}-{digest[:8]}"
