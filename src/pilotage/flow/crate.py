"""What a flow did, as RO-Crate 1.1 has it: a Provenance Run Crate 0.5, from rows to JSON-LD.

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

from pilotage import __version__, text
from pilotage.flow import look
from pilotage.flow.detail import Left, Task
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

Entity = dict[str, Any]


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


class _Graph:
    """Entities by their names; one that is told of twice is one."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._flow = run.sheet.flow
        self._row = run.sheet.row
        self._found: dict[str, Entity] = {}
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
        owner = self._add(f"#person-{_name(self._row.owner or 'nobody')}", "Person",
                          name=self._row.owner or "nobody")  # fmt: skip
        steps = [self._step(name, one, at) for at, (name, one) in
                 enumerate(self._flow.steps.items())]  # fmt: skip
        inputs = [self._input(name, value) for name, value in self._flow.params.items()]
        outputs = [self._output(name) for name in self._flow.outputs]
        controls = [self._control(name) for name in self._flow.steps]
        results = self._results()
        run = self._add(
            f"#run-{self._row.id}", "CreateAction",
            name=f"Run of {self._row.name} as flow {self._row.id}",
            instrument=_ref(DEFINITION), agent=_ref(owner), **self._times(self._row),
            object=_refs(f"#param-{_name(one)}-value" for one in self._flow.params),
            result=_refs(results),
        )  # fmt: skip
        self._add(
            f"#engine-run-{self._row.id}", "OrganizeAction",
            name=f"Pilotage {__version__} ran {self._row.name}", agent=_ref(owner),
            instrument=_ref(_ENGINE), object=_refs(controls), result=_ref(run),
            **_between(self._row.created, self._row.ended),
        )  # fmt: skip
        self._workflow(steps, inputs, outputs, owner)
        if self._run.report:
            self._parts.append(REPORT)
            self._add(
                REPORT, "File", name="How the flow went, for people", encodingFormat="text/html",
                about=_ref(run),
            )  # fmt: skip
        self._root(run)
        return self._found

    # -- what is asked for -----------------------------------------------------------------------

    def _describe(self) -> None:
        self._add(
            "ro-crate-metadata.json", "CreativeWork", about=_ref("./"),
            conformsTo=_refs(("https://w3id.org/ro/crate/1.1", list(_PROFILES)[-1])),
        )  # fmt: skip
        self._found["./"] = {}
        for profile, (name, version) in _PROFILES.items():
            self._add(profile, "CreativeWork", name=name, version=version)
        self._add(
            _LANGUAGE, "ComputerLanguage", name="Pilotage flow", alternateName="pilotage-flow",
            version=__version__,
        )  # fmt: skip
        self._add(_ENGINE, "SoftwareApplication", name=f"Pilotage {__version__}",
                  softwareVersion=__version__)  # fmt: skip

    def _root(self, run: str) -> None:
        words = self._flow.description or f"The workflow {self._row.name}, and how one run went."
        self._found["./"] = {
            "@id": "./", "@type": "Dataset", "name": f"{self._row.name}, flow {self._row.id}",
            "description": words, "datePublished": _time(self._run.now),
            "license": self._run.license, "conformsTo": _refs(_PROFILES),
            "hasPart": _refs(dict.fromkeys(self._parts)), "mainEntity": _ref(DEFINITION),
            "mentions": _refs([run]),
        }  # fmt: skip

    def _workflow(
        self, steps: Sequence[str], inputs: Sequence[str], outputs: Sequence[str], owner: str
    ) -> None:
        tools = dict.fromkeys(self._tool(one) for one in self._flow.steps.values())
        body = definition(self._flow)
        digest = hashlib.sha256(body).hexdigest()
        self._add(
            DEFINITION, ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name=self._row.name, programmingLanguage=_ref(_LANGUAGE), step=_refs(steps),
            hasPart=_refs(tools), input=_refs(inputs), output=_refs(outputs),
            encodingFormat="application/json", creator=_ref(owner),
            dateCreated=_time(self._row.created), description=self._flow.description,
            license=self._run.license, conformsTo=_ref(_COMPUTATIONAL), version=digest[:12],
            contentSize=str(len(body)), sha256=digest,
        )  # fmt: skip

    def _step(self, name: str, one: Step, place: int) -> str:
        return self._add(
            f"{DEFINITION}#{_name(name)}", "HowToStep", name=name, position=str(place),
            workExample=_ref(self._tool(one)),
        )  # fmt: skip

    def _tool(self, one: Step) -> str:
        word = look.runs(one) or "tool"
        if one.flow is not None:
            return self._add(
                f"#flow-{_name(one.flow.name)}", ["SoftwareSourceCode", "ComputationalWorkflow"],
                name=one.flow.name, programmingLanguage=_ref(_LANGUAGE),
                description=one.flow.description,
            )  # fmt: skip
        argv = one.recipe.get("argv")
        words = text.dump(argv) if argv else ""
        return self._add(
            f"#tool-{_name(word)}", "SoftwareApplication", name=word,
            description=f"A command of the hub: {words}" if words else "",
        )  # fmt: skip

    def _input(self, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
        formal = f"#param-{_name(name)}"
        self._value(f"{formal}-value", name, value, formal)
        return self._add(
            formal, "FormalParameter", name=name, additionalType=_kind(value),
            conformsTo=_ref(_FORMAL), workExample=_ref(f"{formal}-value"),
        )  # fmt: skip

    def _output(self, name: str) -> str:
        return self._add(
            f"#output-{_name(name)}", "FormalParameter", name=name, additionalType="File",
            conformsTo=_ref(_FORMAL),
        )  # fmt: skip

    # -- what happened ---------------------------------------------------------------------------

    def _control(self, step: str) -> str:
        actions = [
            self._action(step, task, one)
            for task in self._of_step.get(step, ())
            for one in task.attempts
            if one.started is not None or one.ended is not None
        ] or [self._not_run(step)]
        return self._add(
            f"#control-{_name(step)}", "ControlAction", name=f"Orchestrate {step}",
            instrument=_ref(f"{DEFINITION}#{_name(step)}"), object=_refs(actions),
        )  # fmt: skip

    def _not_run(self, step: str) -> str:
        """Tell of what did not take place: a tool must have an action, by the profile."""
        row = next((one for one in self._run.sheet.steps if one.name == step), None)
        why = (row.reason or row.state) if row else ""
        return self._add(
            f"#not-run-{_name(step)}", "CreateAction", name=f"{step} was not run",
            instrument=_ref(self._tool(self._flow.steps[step])), actionStatus=_POTENTIAL,
            description=why,
        )  # fmt: skip

    def _action(self, step: str, task: Task, one: AttemptRow) -> str:
        asked = self._flow.steps[step]
        where = look.place(one.way, one.site)
        site = self._add(f"#site-{_name(where)}", "Place", name=where)
        counts = one.number == task.attempt and not one.fenced
        used = [*self._read(asked), *self._values(asked, task)]
        item = f" for item {task.item}" if asked.each is not None else ""
        again = f", attempt {one.number}" if one.number > 1 else ""
        made = [self._file(left, one) for left in self._left.get((one.task, one.number), [])]
        state = task.state if counts and one.state not in _STATUS else one.state
        return self._add(
            f"#{_name(one.key)}", "CreateAction", name=f"Run of {step}{item}{again} at {where}",
            instrument=_ref(self._tool(asked)), object=_refs(used),
            result=_refs(made if counts else ()), location=_ref(site),
            agent=_ref(_ENGINE), **_between(one.started or one.created, one.ended),
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
                yield self._add(
                    _path(take.url), "File", name=take.url.rsplit("/", 1)[-1], sha256=take.sha256,
                    sdDatePublished=_time(self._row.created),
                )  # fmt: skip
                self._parts.append(_path(take.url))

    def _values(self, asked: Step, task: Task) -> Iterable[str]:
        if asked.each is not None:
            yield self._value(f"#item-{task.id}", "item", task.value)
        for name, value in asked.parameters.items():
            yield self._value(f"#value-{_name(task.step)}-{_name(name)}", name, value)

    def _results(self) -> list[str]:
        """Name what comes out of the flow; without outputs, what its last steps left."""
        found: list[str] = []
        if self._flow.outputs:
            for name, what in self._flow.outputs.items():
                step, _, output = what.partition("/")
                for task in self._of_step.get(step, ()):
                    for one in self._outputs(task, output):
                        self._found[one].setdefault("exampleOfWork", _ref(f"#output-{_name(name)}"))
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
        name = _path(inside or f"{one.place}{left.name}")
        self._parts.append(name)
        return self._add(
            name, "File", name=left.name, contentSize=str(left.size), sha256=left.sha256,
            encodingFormat=mimetypes.guess_type(left.name)[0] or "application/octet-stream",
            dateModified=_time(one.ended) if one.ended else "",
            description="" if inside or not self._row.cleared else "It was cleared away since.",
        )  # fmt: skip

    def _value(self, key: str, name: str, value: Any, of: str = "") -> str:  # noqa: ANN401
        return self._add(
            key, "PropertyValue", name=name, value=_plain(value),
            exampleOfWork=_ref(of) if of else "",
        )  # fmt: skip

    def _times(self, row: look.Row) -> Entity:
        failed = row.state in ("failed", "cancelled")
        return {
            **_between(row.created, row.ended),
            "actionStatus": _STATUS.get(row.state, _ACTIVE),
            "error": (row.reason or row.state) if failed else "",
        }

    def _add(self, key: str, kind: str | list[str], **facts: Any) -> str:  # noqa: ANN401
        """Note an entity; what has no value is left out."""
        if key not in self._found:
            known = {name: value for name, value in facts.items() if value not in ("", None, [])}
            self._found[key] = {"@id": key, "@type": kind, **known}
        return key


def definition(flow: Flow) -> bytes:
    """Write the definition as the crate has it."""
    return msgspec.json.format(msgspec.json.encode(flow), indent=2) + b"\n"


def _ref(key: str) -> Entity:
    return {"@id": key}


def _refs(keys: Iterable[str]) -> list[Entity]:
    return [_ref(key) for key in dict.fromkeys(keys)]


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


def _between(begin: float | None, end: float | None) -> Entity:
    return {
        "startTime": _time(begin) if begin is not None else "",
        "endTime": _time(end) if end is not None else "",
    }


def _kind(value: Any) -> str:  # noqa: ANN401 - any JSON value
    kinds: Sequence[tuple[type, str]] = (
        (bool, "Boolean"), (int, "Integer"), (float, "Float"), (str, "Text")
    )  # fmt: skip
    return next((word for kind, word in kinds if isinstance(value, kind)), "PropertyValue")


def _plain(value: Any) -> str | int | float:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, (str, int, float)) else text.dump(value)


def _name(value: str) -> str:
    return quote(value, safe="")


def _path(value: str) -> str:
    # Addresses may hold what an identifier may not.
    return quote(value, safe="/:@%?&=+,;~!$'()*.#[]")
