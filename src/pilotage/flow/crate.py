"""RO-Crate 1.1 of a flow: a Provenance Run Crate 0.5, from rows to JSON-LD.

The definition is the workflow, each step a part of it; each attempt that a site began is an action
that a tool did there with some files and values, and from which files came.
"""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from pilotage.base import text
from pilotage.flow import view
from pilotage.flow.model import Flow, Step
from pilotage.flow.records import AttemptRow
from pilotage.flow.view import FlowSheet, OutputFile, TaskDetail

Entity = dict[str, Any]

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
_ACTIVE = "http://schema.org/ActiveActionStatus"
_POTENTIAL = "http://schema.org/PotentialActionStatus"


class CrateFlow(NamedTuple):
    """A flow, with all of its tasks."""

    sheet: FlowSheet
    tasks: Sequence[TaskDetail]


class CrateRun(NamedTuple):
    """The contents of a crate."""

    main: CrateFlow
    files: Sequence[OutputFile]
    #: The licence of what is in it, and when it is made.
    license: str
    now: float
    #: The version of Pilotage that ran it, as far as it is known.
    version: str
    #: Flows within it, by the keys of the attempts that they are.
    within: Mapping[str, CrateFlow] = {}
    #: Files that are in the crate, by task, attempt and name: their path in it.
    inside: Mapping[tuple[int, int, str], str] = {}


def metadata(run: CrateRun) -> Entity:
    """Write `ro-crate-metadata.json`."""
    return {"@context": _CONTEXT, "@graph": list(_Graph(run).entities().values())}


class _Graph:
    """All entities of a crate by their `@id`; one that is added twice is one."""

    def __init__(self, run: CrateRun) -> None:
        self.run = run
        self.found: dict[str, Entity] = {}
        self._flow_of = run.main.sheet.flow
        self._row = run.main.sheet.row
        #: What the crate as a whole consists of.
        self.parts = [DEFINITION]
        self._left: dict[tuple[int, int], list[OutputFile]] = {}
        for one in run.files:
            self._left.setdefault((one.task, one.number), []).append(one)
        self._of_step: dict[tuple[int, str], list[TaskDetail]] = {}
        for part in (run.main, *run.within.values()):
            for task in part.tasks:
                self._of_step.setdefault((part.sheet.row.id, task.step), []).append(task)

    # -- the crate as a whole --------------------------------------------------------------------

    def entities(self) -> dict[str, Entity]:
        """Return all, the root first."""
        self._describe()
        flow, row = self._flow_of, self._row
        owner = self.add(
            f"#person-{_named(row.owner or 'unknown')}", "Person", name=row.owner or "unknown"
        )
        self._workflow(owner)
        run = self.add(
            f"#run-{row.id}", "CreateAction", name=f"Run of {row.name} as flow {row.id}",
            instrument=_ref(DEFINITION), agent=_ref(owner), **_ended(row),
            object=_refs(f"#param-{_named(one)}-value" for one in flow.params),
            result=_refs(self._results()),
        )  # fmt: skip
        self.organize(self.run.main, DEFINITION, owner, run)
        self.parts.append(REPORT)
        self.add(
            REPORT, "File", name="How the flow went, for people", encodingFormat="text/html",
            about=_ref(run),
        )  # fmt: skip
        self._root(run)
        return self.found

    def _describe(self) -> None:
        self.add(
            "ro-crate-metadata.json", "CreativeWork", about=_ref("./"),
            conformsTo=_refs(("https://w3id.org/ro/crate/1.1", list(_PROFILES)[-1])),
        )  # fmt: skip
        self.found["./"] = {}
        for profile, (name, version) in _PROFILES.items():
            self.add(profile, "CreativeWork", name=name, version=version)
        self.add(
            _LANGUAGE, "ComputerLanguage", name="Pilotage flow", alternateName="pilotage-flow",
            version=self.run.version,
        )  # fmt: skip
        self.add(
            _ENGINE, "SoftwareApplication", name=f"Pilotage {self.run.version}",
            softwareVersion=self.run.version,
        )  # fmt: skip

    def _root(self, run: str) -> None:
        row = self._row
        words = self._flow_of.description or f"The workflow {row.name}, and how one run went."
        self.found["./"] = {
            "@id": "./", "@type": "Dataset", "name": f"{row.name}, flow {row.id}",
            "description": words, "datePublished": _time(self.run.now),
            "license": self.run.license, "conformsTo": _refs(_PROFILES),
            "hasPart": _refs(self.parts), "mainEntity": _ref(DEFINITION), "mentions": _refs([run]),
        }  # fmt: skip

    def _workflow(self, owner: str) -> None:
        flow = self._flow_of
        body = definition(flow)
        digest = hashlib.sha256(body).hexdigest()
        self.add(
            DEFINITION, ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name=self._row.name, programmingLanguage=_ref(_LANGUAGE),
            step=_refs(self.steps(flow, DEFINITION)),
            hasPart=_refs(self.tool(one) for one in flow.steps.values()),
            input=_refs([self._input(name, value) for name, value in flow.params.items()]),
            output=_refs([self._output(name) for name in flow.outputs]),
            encodingFormat="application/json", creator=_ref(owner),
            dateCreated=_time(self._row.created), description=flow.description,
            license=self.run.license, conformsTo=_ref(_COMPUTATIONAL), version=digest[:12],
            contentSize=str(len(body)), sha256=digest,
        )  # fmt: skip

    def _input(self, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
        formal = f"#param-{_named(name)}"
        self.value(f"{formal}-value", name, value, formal)
        return self.add(
            formal, "FormalParameter", name=name, additionalType=_kind_of(value),
            conformsTo=_ref(_FORMAL), workExample=_ref(f"{formal}-value"),
        )  # fmt: skip

    def _output(self, name: str) -> str:
        return self.add(
            f"#output-{_named(name)}", "FormalParameter", name=name, additionalType="File",
            conformsTo=_ref(_FORMAL),
        )  # fmt: skip

    def _results(self) -> list[str]:
        """Name what comes out of the flow; without outputs, what its last steps left."""
        if not self._flow_of.outputs:
            return self.last(self.run.main)
        found = self.results(self.run.main)
        for name, files in found.items():
            for one in files:
                self.found[one].setdefault("exampleOfWork", _ref(f"#output-{_named(name)}"))
        return [one for files in found.values() for one in files]

    # -- what is asked for -----------------------------------------------------------------------

    def steps(self, flow: Flow, base: str) -> list[str]:
        """Add the steps of a flow, each with what it runs."""
        return [
            self.add(
                _step(base, name), "HowToStep", name=name, position=str(place),
                workExample=_ref(self.tool(one)),
            )
            for place, (name, one) in enumerate(flow.steps.items())
        ]  # fmt: skip

    def tool(self, one: Step) -> str:
        """Add what a step runs: an application, a program, or a flow of its own."""
        if one.flow is not None:
            return self._flow(one.flow)
        word = view.runs(one) or "tool"
        argv = one.recipe.get("argv")
        return self.add(
            f"#tool-{_named(word)}", "SoftwareApplication", name=word,
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
            programmingLanguage=_ref(_LANGUAGE), description=flow.description, step=_refs(steps),
            hasPart=_refs(tools),
        )  # fmt: skip

    # -- what happened ---------------------------------------------------------------------------

    def controls(self, part: CrateFlow, base: str) -> list[str]:
        """Add the actions of each step."""
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
                    f"#control-{number}-{_named(name)}", "ControlAction",
                    name=f"Orchestrate {name}",
                    instrument=_ref(_step(base, name)), object=_refs(actions),
                )
            )  # fmt: skip
        return found

    def organize(self, part: CrateFlow, base: str, agent: str, run: str) -> None:
        """Add the run of a flow by the engine."""
        row = part.sheet.row
        self.add(
            f"#engine-run-{row.id}", "OrganizeAction",
            name=f"Pilotage {self.run.version} ran {row.name}", agent=_ref(agent),
            instrument=_ref(_ENGINE), object=_refs(self.controls(part, base)), result=_ref(run),
            **_between(row.created, row.ended),
        )  # fmt: skip

    def _not_run(self, number: int, name: str, asked: Step, why: str) -> str:
        """Add actions of steps that did not run: the profile demands an action for each tool."""
        for inner, one in asked.flow.steps.items() if asked.flow else ():
            self._not_run(number, f"{name}/{inner}", one, why)
        return self.add(
            f"#not-run-{number}-{_named(name)}", "CreateAction", name=f"{name} was not run",
            instrument=_ref(self.tool(asked)), actionStatus=_POTENTIAL, description=why,
        )  # fmt: skip

    def _action(self, part: CrateFlow, step: str, task: TaskDetail, one: AttemptRow) -> str:
        asked = part.sheet.flow.steps[step]
        where = view.place(one.way, one.site)
        counts = one.number == task.attempt and not one.fenced
        made = self._made(task, one) if counts else []
        item = f" for item {task.item}" if asked.each is not None else ""
        again = f", attempt {one.number}" if one.number > 1 else ""
        state = task.state if counts and one.state not in _STATUS else one.state
        key = self.add(
            f"#{_named(one.key)}", "CreateAction", name=f"Run of {step}{item}{again} at {where}",
            instrument=_ref(self.tool(asked)),
            object=_refs([*self._read(part, asked), *self._values(asked, task)]),
            result=_refs(made), agent=_ref(_ENGINE),
            location=_ref(self.add(f"#site-{_named(where)}", "Place", name=where)),
            **_between(one.started or one.created, one.ended),
            actionStatus=_STATUS.get(state, _ACTIVE),
            error=(one.reason or state) if _STATUS.get(state) == _STATUS["failed"] else "",
        )  # fmt: skip
        within = self.run.within.get(one.key)
        if asked.flow is not None and within is not None:
            self.organize(within, _flow_key(asked.flow), _ENGINE, key)
        elif asked.flow is not None:
            self._not_run(part.sheet.row.id, step, asked, one.reason)
        return key

    def _read(self, part: CrateFlow, asked: Step) -> Iterable[str]:
        """Name what an attempt was given."""
        for take in asked.inputs:
            if take.step:
                for task in self._of_step.get((part.sheet.row.id, take.step), ()):
                    yield from self._outputs(task, take.output)
            elif take.url and "{" not in take.url:
                self.parts.append(_path(take.url))
                yield self.add(
                    _path(take.url), "File", name=take.url.rsplit("/", 1)[-1], sha256=take.sha256,
                    sdDatePublished=_time(part.sheet.row.created),
                )  # fmt: skip

    def _values(self, asked: Step, task: TaskDetail) -> Iterable[str]:
        if asked.each is not None:
            yield self.value(f"#item-{task.id}", "item", task.value)
        for name, value in asked.parameters.items():
            yield self.value(f"#value-{_named(task.step)}-{_named(name)}", name, value)

    def value(self, key: str, name: str, value: Any, of: str = "") -> str:  # noqa: ANN401
        """Add a value of a parameter."""
        return self.add(
            key, "PropertyValue", name=name, value=_plain(value),
            exampleOfWork=_ref(of) if of else "",
        )  # fmt: skip

    # -- what was left ---------------------------------------------------------------------------

    def results(self, part: CrateFlow, output: str = "") -> dict[str, list[str]]:
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

    def last(self, part: CrateFlow) -> list[str]:
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

    def _outputs(self, task: TaskDetail, output: str) -> list[str]:
        """Name what counts of a task: all, one file, or what is below one folder."""
        current = next((one for one in task.attempts if one.number == task.attempt), None)
        return [] if current is None else self._made(task, current, output)

    def _made(self, task: TaskDetail, one: AttemptRow, output: str = "") -> list[str]:
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

    def _file(self, left: OutputFile, one: AttemptRow) -> str:
        inside = self.run.inside.get((left.task, left.number, left.name))
        cleared = self.run.main.sheet.row.cleared
        name = _path(inside or f"{one.place}{left.name}")
        self.parts.append(name)
        return self.add(
            name, "File", name=left.name, contentSize=str(left.size), sha256=left.sha256,
            encodingFormat=mimetypes.guess_type(left.name)[0] or "application/octet-stream",
            dateModified=_time(one.ended) if one.ended else "",
            description="" if inside or not cleared else "It was cleared away since.",
        )  # fmt: skip

    def add(self, key: str, kind: str | list[str], **facts: Any) -> str:  # noqa: ANN401
        """Note an entity and return its name; what has no value is left out."""
        if key not in self.found:
            known = {name: value for name, value in facts.items() if value not in ("", None, [])}
            self.found[key] = {"@id": key, "@type": kind, **known}
        return key


def _step(base: str, name: str) -> str:
    return f"{base}{'/' if base.startswith('#') else '#'}{_named(name)}"


def _flow_key(flow: Flow) -> str:
    # Two flows of one name may be different.
    digest = hashlib.sha256(text.dump(flow).encode()).hexdigest()
    return f"#flow-{_named(flow.name)}-{digest[:8]}"


def _ended(row: view.FlowSummary) -> Entity:
    failed = row.state in ("failed", "cancelled")
    return {
        **_between(row.created, row.ended),
        "actionStatus": _STATUS.get(row.state, _ACTIVE),
        "error": (row.reason or row.state) if failed else "",
    }


def definition(flow: Flow) -> bytes:
    """Write the definition as the crate has it."""
    return msgspec.json.format(msgspec.json.encode(flow), indent=2) + b"\n"


def _ref(key: str) -> Entity:
    """Refer to an entity."""
    return {"@id": key}


def _refs(keys: Iterable[str]) -> list[Entity]:
    """Refer to several, each once."""
    return [_ref(key) for key in dict.fromkeys(keys)]


def _time(at: float) -> str:
    """Write a time."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _between(begin: float | None, end: float | None) -> Entity:
    """Write when an action began and ended."""
    return {
        "startTime": _time(begin) if begin is not None else "",
        "endTime": _time(end) if end is not None else "",
    }


def _kind_of(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Name the type of a value, as schema.org does."""
    kinds: Sequence[tuple[type, str]] = (
        (bool, "Boolean"), (int, "Integer"), (float, "Float"), (str, "Text")
    )  # fmt: skip
    return next((word for kind, word in kinds if isinstance(value, kind)), "PropertyValue")


def _plain(value: Any) -> str | int | float:  # noqa: ANN401 - any JSON value
    """Write a value as one word or number."""
    return value if isinstance(value, (str, int, float)) else text.dump(value)


def _named(value: str) -> str:
    """Make a word fit for a name."""
    return quote(value, safe="")


def _path(value: str) -> str:
    """Make an address fit for a name; it may hold what a name may not."""
    return quote(value, safe="/:@%?&=+,;~!$'()*.#[]")
