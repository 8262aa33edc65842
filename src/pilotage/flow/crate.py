"""What a flow did, as RO-Crate 1.1 has it: a Provenance Run Crate 0.5, from rows to JSON-LD.

The definition is the workflow, each step a part of it; each attempt that a site began is an action
that a tool did there with some files and values, and from which files came.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from pilotage import __version__, text
from pilotage.flow import look
from pilotage.flow.detail import Left, Task
from pilotage.flow.entity import (
    Entities,
    Entity,
    between,
    kind_of,
    named,
    path,
    plain,
    ref,
    refs,
    time,
)
from pilotage.flow.look import Sheet
from pilotage.flow.model import Flow, Step
from pilotage.flow.records import AttemptRow

#: The definition and the report within the crate, and the folder of data.
DEFINITION, REPORT, DATA = "flow.json", "report.html", "data"
_CONTEXT = [
    "https://w3id.org/ro/crate/1.1/context",
    "https://w3id.org/ro/terms/workflow-run/context",
]
_PROFILES = {
    "https://w3id.org/ro/wfrun/process/0.5": ("Process Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/workflow/0.5": ("Workflow Run Crate", "0.5"),
    "https://w3id.org/ro/wfrun/provenance/0.5": ("Provenance Run Crate", "0.5"),
    "https://w3id.org/workflowhub/workflow-ro-crate/1.0": ("Workflow RO-Crate", "1.0"),
}
_COMPUTATIONAL = "https://bioschemas.org/profiles/ComputationalWorkflow/1.0-RELEASE"
_FORMAL = "https://bioschemas.org/profiles/FormalParameter/1.0-RELEASE"
_LANGUAGE, _ENGINE = "#pilotage-flow", "#pilotage"
_STATUS = {
    "done": "http://schema.org/CompletedActionStatus",
    "failed": "http://schema.org/FailedActionStatus",
    "cancelled": "http://schema.org/FailedActionStatus",
    "rejected": "http://schema.org/FailedActionStatus",
    "lost": "http://schema.org/FailedActionStatus",
}
_POTENTIAL = "http://schema.org/PotentialActionStatus"
_ACTIVE = "http://schema.org/ActiveActionStatus"


class Run(NamedTuple):
    """All that a crate tells of."""

    sheet: Sheet
    tasks: Sequence[Task]
    files: Sequence[Left]
    #: The licence of what is in it, and when it is made.
    license: str
    now: float
    #: Files that are in the crate, by task, attempt and name: their path in it.
    inside: Mapping[tuple[int, int, str], str] = {}
    #: Whether the report is in it.
    report: bool = False


def metadata(run: Run) -> Entity:
    """Write `ro-crate-metadata.json`."""
    return {"@context": _CONTEXT, "@graph": list(_Graph(run).entities().values())}


class _Graph(Entities):
    """All that a crate tells of one run."""

    def __init__(self, run: Run) -> None:
        super().__init__()
        self._run = run
        self._flow = run.sheet.flow
        self._row = run.sheet.row
        #: The files of each attempt, and the attempt of each task that counts.
        self._left: dict[tuple[int, int], list[Left]] = {}
        for one in run.files:
            self._left.setdefault((one.task, one.number), []).append(one)
        self._of_step: dict[str, list[Task]] = {}
        for task in run.tasks:
            self._of_step.setdefault(task.step, []).append(task)
        self._parts: list[str] = [DEFINITION]

    def entities(self) -> dict[str, Entity]:
        """Return all, the root first."""
        self._describe()
        owner = self.add(f"#person-{named(self._row.owner or 'nobody')}", "Person",
                          name=self._row.owner or "nobody")  # fmt: skip
        steps = [self._step(name, one, at) for at, (name, one) in
                 enumerate(self._flow.steps.items())]  # fmt: skip
        inputs = [self._input(name, value) for name, value in self._flow.params.items()]
        outputs = [self._output(name) for name in self._flow.outputs]
        controls = [self._control(name) for name in self._flow.steps]
        results = self._results()
        run = self.add(
            f"#run-{self._row.id}", "CreateAction",
            name=f"Run of {self._row.name} as flow {self._row.id}",
            instrument=ref(DEFINITION), agent=ref(owner), **self._times(self._row),
            object=refs(f"#param-{named(one)}-value" for one in self._flow.params),
            result=refs(results),
        )  # fmt: skip
        self.add(
            f"#engine-run-{self._row.id}", "OrganizeAction",
            name=f"Pilotage {__version__} ran {self._row.name}", agent=ref(owner),
            instrument=ref(_ENGINE), object=refs(controls), result=ref(run),
            **between(self._row.created, self._row.ended),
        )  # fmt: skip
        self._workflow(steps, inputs, outputs, owner)
        if self._run.report:
            self._parts.append(REPORT)
            self.add(
                REPORT, "File", name="How the flow went, for people", encodingFormat="text/html",
                about=ref(run),
            )  # fmt: skip
        self._root(run)
        return self.found

    # -- what is asked for -----------------------------------------------------------------------

    def _describe(self) -> None:
        self.add(
            "ro-crate-metadata.json", "CreativeWork", about=ref("./"),
            conformsTo=refs(("https://w3id.org/ro/crate/1.1", list(_PROFILES)[-1])),
        )  # fmt: skip
        self.found["./"] = {}
        for profile, (name, version) in _PROFILES.items():
            self.add(profile, "CreativeWork", name=name, version=version)
        self.add(
            _LANGUAGE, "ComputerLanguage", name="Pilotage flow", alternateName="pilotage-flow",
            version=__version__,
        )  # fmt: skip
        self.add(_ENGINE, "SoftwareApplication", name=f"Pilotage {__version__}",
                  softwareVersion=__version__)  # fmt: skip

    def _root(self, run: str) -> None:
        words = self._flow.description or f"The workflow {self._row.name}, and how one run went."
        self.found["./"] = {
            "@id": "./", "@type": "Dataset", "name": f"{self._row.name}, flow {self._row.id}",
            "description": words, "datePublished": time(self._run.now),
            "license": self._run.license, "conformsTo": refs(_PROFILES),
            "hasPart": refs(dict.fromkeys(self._parts)), "mainEntity": ref(DEFINITION),
            "mentions": refs([run]),
        }  # fmt: skip

    def _workflow(
        self, steps: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], owner: str
    ) -> None:
        tools = dict.fromkeys(self._tool(one) for one in self._flow.steps.values())
        body = definition(self._flow)
        digest = hashlib.sha256(body).hexdigest()
        self.add(
            DEFINITION, ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name=self._row.name, programmingLanguage=ref(_LANGUAGE), step=refs(steps),
            hasPart=refs(tools), input=refs(inputs), output=refs(outputs),
            encodingFormat="application/json", creator=ref(owner),
            dateCreated=time(self._row.created), description=self._flow.description,
            license=self._run.license, conformsTo=ref(_COMPUTATIONAL), version=digest[:12],
            contentSize=str(len(body)), sha256=digest,
        )  # fmt: skip

    def _step(self, name: str, one: Step, place: int) -> str:
        return self.add(
            f"{DEFINITION}#{named(name)}", "HowToStep", name=name, position=str(place),
            workExample=ref(self._tool(one)),
        )  # fmt: skip

    def _tool(self, one: Step) -> str:
        word = look.runs(one) or "tool"
        if one.flow is not None:
            return self.add(
                f"#flow-{named(one.flow.name)}", ["SoftwareSourceCode", "ComputationalWorkflow"],
                name=one.flow.name, programmingLanguage=ref(_LANGUAGE),
                description=one.flow.description,
            )  # fmt: skip
        argv = one.recipe.get("argv")
        words = text.dump(argv) if argv else ""
        return self.add(
            f"#tool-{named(word)}", "SoftwareApplication", name=word,
            description=f"A command of the hub: {words}" if words else "",
        )  # fmt: skip

    def _input(self, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
        formal = f"#param-{named(name)}"
        self._value(f"{formal}-value", name, value, formal)
        return self.add(
            formal, "FormalParameter", name=name, additionalType=kind_of(value),
            conformsTo=ref(_FORMAL), workExample=ref(f"{formal}-value"),
        )  # fmt: skip

    def _output(self, name: str) -> str:
        return self.add(
            f"#output-{named(name)}", "FormalParameter", name=name, additionalType="File",
            conformsTo=ref(_FORMAL),
        )  # fmt: skip

    # -- what happened ---------------------------------------------------------------------------

    def _control(self, step: str) -> str:
        actions = [
            self._action(step, task, one)
            for task in self._of_step.get(step, ())
            for one in task.attempts
            if one.started is not None or one.ended is not None
        ] or [self._not_run(step)]
        return self.add(
            f"#control-{named(step)}", "ControlAction", name=f"Orchestrate {step}",
            instrument=ref(f"{DEFINITION}#{named(step)}"), object=refs(actions),
        )  # fmt: skip

    def _not_run(self, step: str) -> str:
        """Tell of what did not take place: a tool must have an action, by the profile."""
        row = next((one for one in self._run.sheet.steps if one.name == step), None)
        why = (row.reason or row.state) if row else ""
        return self.add(
            f"#not-run-{named(step)}", "CreateAction", name=f"{step} was not run",
            instrument=ref(self._tool(self._flow.steps[step])), actionStatus=_POTENTIAL,
            description=why,
        )  # fmt: skip

    def _action(self, step: str, task: Task, one: AttemptRow) -> str:
        asked = self._flow.steps[step]
        where = look.place(one.way, one.site)
        site = self.add(f"#site-{named(where)}", "Place", name=where)
        counts = one.number == task.attempt and not one.fenced
        used = [*self._read(asked), *self._values(asked, task)]
        item = f" for item {task.item}" if asked.each is not None else ""
        again = f", attempt {one.number}" if one.number > 1 else ""
        made = [self._file(left, one) for left in self._left.get((one.task, one.number), [])]
        state = task.state if counts and one.state not in _STATUS else one.state
        return self.add(
            f"#{named(one.key)}", "CreateAction", name=f"Run of {step}{item}{again} at {where}",
            instrument=ref(self._tool(asked)), object=refs(used),
            result=refs(made if counts else ()), location=ref(site),
            agent=ref(_ENGINE), **between(one.started or one.created, one.ended),
            actionStatus=_STATUS.get(state, _ACTIVE),
            error=(one.reason or state) if _STATUS.get(state) == _STATUS["failed"] else "",
        )  # fmt: skip

    def _read(self, asked: Step) -> Iterable[str]:
        """Name what an attempt was given."""
        for take in asked.inputs:
            if take.step:
                for task in self._of_step.get(take.step, ()):
                    yield from self._outputs(task, take.output)
            elif take.url and "{" not in take.url:
                yield self.add(
                    path(take.url), "File", name=take.url.rsplit("/", 1)[-1], sha256=take.sha256,
                    sdDatePublished=time(self._row.created),
                )  # fmt: skip
                self._parts.append(path(take.url))

    def _values(self, asked: Step, task: Task) -> Iterable[str]:
        if asked.each is not None:
            yield self._value(f"#item-{task.id}", "item", task.value)
        for name, value in asked.parameters.items():
            yield self._value(f"#value-{named(task.step)}-{named(name)}", name, value)

    def _results(self) -> list[str]:
        """Name what comes out of the flow; without outputs, what its last steps left."""
        found: list[str] = []
        if self._flow.outputs:
            for name, what in self._flow.outputs.items():
                step, _, output = what.partition("/")
                for task in self._of_step.get(step, ()):
                    for one in self._outputs(task, output):
                        self.found[one].setdefault("exampleOfWork", ref(f"#output-{named(name)}"))
                        found.append(one)
            return list(dict.fromkeys(found))
        needed = {each for one in self._flow.steps.values() for each in one.needs}
        last = [name for name in self._flow.steps if name not in needed]
        return [
            one
            for name in last
            for task in self._of_step.get(name, ())
            for one in self._outputs(task, "")
        ]

    def _outputs(self, task: Task, output: str) -> list[str]:
        """Name what counts of a task: all, one file, or what is below one folder."""
        current = next((one for one in task.attempts if one.number == task.attempt), None)
        if current is None:
            return []
        folder = output.rstrip("/") + "/"
        return [
            self._file(left, current)
            for left in self._left.get((task.id, current.number), ())
            if not output or left.name == output or left.name.startswith(folder)
        ]

    def _file(self, left: Left, one: AttemptRow) -> str:
        inside = self._run.inside.get((left.task, left.number, left.name))
        name = path(inside or f"{one.place}{left.name}")
        self._parts.append(name)
        return self.add(
            name, "File", name=left.name, contentSize=str(left.size), sha256=left.sha256,
            encodingFormat=mimetypes.guess_type(left.name)[0] or "application/octet-stream",
            dateModified=time(one.ended) if one.ended else "",
            description="" if inside or not self._row.cleared else "It was cleared away since.",
        )  # fmt: skip

    def _value(self, key: str, name: str, value: Any, of: str = "") -> str:  # noqa: ANN401
        return self.add(
            key, "PropertyValue", name=name, value=plain(value),
            exampleOfWork=ref(of) if of else "",
        )  # fmt: skip

    def _times(self, row: look.Row) -> Entity:
        failed = row.state in ("failed", "cancelled")
        return {
            **between(row.created, row.ended),
            "actionStatus": _STATUS.get(row.state, _ACTIVE),
            "error": (row.reason or row.state) if failed else "",
        }


def definition(flow: Flow) -> bytes:
    """Write the definition as the crate has it."""
    return msgspec.json.format(msgspec.json.encode(flow), indent=2) + b"\n"
