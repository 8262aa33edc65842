"""What a flow did, as RO-Crate 1.1 has it: a Provenance Run Crate 0.5, from rows to JSON-LD.

The definition is the workflow, each step a part of it; each attempt that a site began is an action
that a tool did there with some files and values, and from which files came.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from pilotage.flow import look
from pilotage.flow.crate_run import ACTIVE, ENGINE, LANGUAGE, STATUS, Happened, Run
from pilotage.flow.entity import Entity, between, kind_of, named, ref, refs, time
from pilotage.flow.model import Flow

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


def metadata(run: Run) -> Entity:
    """Write `ro-crate-metadata.json`."""
    return {"@context": _CONTEXT, "@graph": list(_Graph(run).entities().values())}


class _Graph(Happened):
    """All that a crate tells of one run."""

    def __init__(self, run: Run) -> None:
        super().__init__(run)
        self._flow_of = run.main.sheet.flow
        self._row = run.main.sheet.row
        self.parts.append(DEFINITION)

    def entities(self) -> dict[str, Entity]:
        """Return all, the root first."""
        self._describe()
        flow, row = self._flow_of, self._row
        owner = self.add(
            f"#person-{named(row.owner or 'nobody')}", "Person", name=row.owner or "nobody"
        )
        self._workflow(owner)
        run = self.add(
            f"#run-{row.id}", "CreateAction", name=f"Run of {row.name} as flow {row.id}",
            instrument=ref(DEFINITION), agent=ref(owner), **_ended(row),
            object=refs(f"#param-{named(one)}-value" for one in flow.params),
            result=refs(self._results()),
        )  # fmt: skip
        self.organize(self.run.main, DEFINITION, owner, run)
        if self.run.report:
            self.parts.append(REPORT)
            self.add(
                REPORT, "File", name="How the flow went, for people", encodingFormat="text/html",
                about=ref(run),
            )  # fmt: skip
        self._root(run)
        return self.found

    def _describe(self) -> None:
        self.add(
            "ro-crate-metadata.json", "CreativeWork", about=ref("./"),
            conformsTo=refs(("https://w3id.org/ro/crate/1.1", list(_PROFILES)[-1])),
        )  # fmt: skip
        self.found["./"] = {}
        for profile, (name, version) in _PROFILES.items():
            self.add(profile, "CreativeWork", name=name, version=version)
        self.add(
            LANGUAGE, "ComputerLanguage", name="Pilotage flow", alternateName="pilotage-flow",
            version=self.run.version,
        )  # fmt: skip
        self.add(
            ENGINE, "SoftwareApplication", name=f"Pilotage {self.run.version}",
            softwareVersion=self.run.version,
        )  # fmt: skip

    def _root(self, run: str) -> None:
        row = self._row
        words = self._flow_of.description or f"The workflow {row.name}, and how one run went."
        self.found["./"] = {
            "@id": "./", "@type": "Dataset", "name": f"{row.name}, flow {row.id}",
            "description": words, "datePublished": time(self.run.now),
            "license": self.run.license, "conformsTo": refs(_PROFILES),
            "hasPart": refs(self.parts), "mainEntity": ref(DEFINITION), "mentions": refs([run]),
        }  # fmt: skip

    def _workflow(self, owner: str) -> None:
        flow = self._flow_of
        body = definition(flow)
        digest = hashlib.sha256(body).hexdigest()
        self.add(
            DEFINITION, ["File", "SoftwareSourceCode", "ComputationalWorkflow", "HowTo"],
            name=self._row.name, programmingLanguage=ref(LANGUAGE),
            step=refs(self.steps(flow, DEFINITION)),
            hasPart=refs(self.tool(one) for one in flow.steps.values()),
            input=refs([self._input(name, value) for name, value in flow.params.items()]),
            output=refs([self._output(name) for name in flow.outputs]),
            encodingFormat="application/json", creator=ref(owner),
            dateCreated=time(self._row.created), description=flow.description,
            license=self.run.license, conformsTo=ref(_COMPUTATIONAL), version=digest[:12],
            contentSize=str(len(body)), sha256=digest,
        )  # fmt: skip

    def _input(self, name: str, value: Any) -> str:  # noqa: ANN401 - any JSON value
        formal = f"#param-{named(name)}"
        self.value(f"{formal}-value", name, value, formal)
        return self.add(
            formal, "FormalParameter", name=name, additionalType=kind_of(value),
            conformsTo=ref(_FORMAL), workExample=ref(f"{formal}-value"),
        )  # fmt: skip

    def _output(self, name: str) -> str:
        return self.add(
            f"#output-{named(name)}", "FormalParameter", name=name, additionalType="File",
            conformsTo=ref(_FORMAL),
        )  # fmt: skip

    def _results(self) -> list[str]:
        """Name what comes out of the flow; without outputs, what its last steps left."""
        if not self._flow_of.outputs:
            return self.last(self.run.main)
        found = self.results(self.run.main)
        for name, files in found.items():
            for one in files:
                self.found[one].setdefault("exampleOfWork", ref(f"#output-{named(name)}"))
        return [one for files in found.values() for one in files]


def _ended(row: look.Row) -> Entity:
    failed = row.state in ("failed", "cancelled")
    return {
        **between(row.created, row.ended),
        "actionStatus": STATUS.get(row.state, ACTIVE),
        "error": (row.reason or row.state) if failed else "",
    }


def definition(flow: Flow) -> bytes:
    """Write the definition as the crate has it."""
    return msgspec.json.format(msgspec.json.encode(flow), indent=2) + b"\n"
