"""Launches for pilots, as JSON: a definition is filled in once, and then only numbers change."""

from __future__ import annotations

import secrets

import msgspec

from pilotage.base import text
from pilotage.job import model, moves, records
from pilotage.pilot.model import NodeFacts
from pilotage.run import launch
from pilotage.run.model import Sandbox

#: Definitions that are cached, in all and for one node.
_MOST = 10_000
_MOST_CUT = 4
#: Bytes of a launch that is kept for one node; there may be very many nodes.
_LARGE = 4096
#: A launch in which only the numbers of the attempt are missing, and the files it names.
Template = tuple[bytes, list[str]]
Templates = dict[int, Template]
_PLAIN = text.dump(model.Binding())
#: Sandboxes that can run an image.
_CONTAINERS = ("podman", "apptainer")


class NotRunnable(Exception):
    """A job cannot run on this node; the text says why."""


class JobCancelled(Exception):
    """A job must not run at all any more; the text says why."""


class LaunchTemplates:
    """Makes launches from templates in which marks stand for what differs between jobs.

    The marks are random, so that no text of a user's can hold them by accident or by design.
    """

    def __init__(self, place: launch.LaunchContext, sandbox: str) -> None:
        self._sandbox = sandbox
        self._job, self._attempt = (b"%d" % (10**17 + secrets.randbelow(10**17)) for _ in "ja")
        self._work = f"/{secrets.token_hex(16)}"
        self._python = f"/{secrets.token_hex(16)}"
        self._place = place
        self._known: dict[tuple[int, str], Template] = {}

    def fill(
        self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts, cuts: Templates
    ) -> tuple[bytes, list[str], model.Binding]:
        """Write the launch of a claimed job, the files it says it writes, and what made it.

        `cuts` is where what has been written for this node is kept.
        """
        if claim.binding != _PLAIN or isinstance(spec.recipe, model.Call):
            return self._whole(claim, spec, facts, self.sandbox(spec, facts))
        known = cuts.get(claim.spec)
        if known is None:
            known = self._cut(claim, spec, facts)
            if len(cuts) >= _MOST_CUT:
                cuts.clear()
            if len(known[0]) <= _LARGE:
                cuts[claim.spec] = known
        body, outputs = known
        body = body.replace(self._job, b"%d" % claim.job)
        return body.replace(self._attempt, b"%d" % claim.attempt), outputs, model.Binding()

    def sandbox(self, spec: model.JobSpec, facts: NodeFacts) -> str:
        """Choose the kind of sandbox for a job on a node."""
        if spec.image.startswith(("file:", "local:")):
            raise NotRunnable(f"{spec.image} is brought to batch queues of sites only: use `via`")
        if spec.image:
            kind = next((one for one in _CONTAINERS if one in facts.sandboxes), "")
            if not kind:
                raise NotRunnable(f"{facts.host} has no container runtime for {spec.image}")
            return kind
        if self._sandbox == "auto":
            return strongest(facts)
        if self._sandbox != "none" and self._sandbox not in facts.sandboxes:
            raise NotRunnable(f"{facts.host} has no sandbox `{self._sandbox}`")
        return self._sandbox

    def _cut(self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts) -> Template:
        """Fill a definition in for a node; marks stand for the job and the attempt."""
        kind = self.sandbox(spec, facts)
        known = self._known.get((claim.spec, kind))
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            marked = msgspec.structs.replace(claim, job=int(self._job), attempt=int(self._attempt))
            node = NodeFacts(host="", work=self._work, cpus=1, memory=1, python=self._python)
            body, outputs, _ = self._whole(marked, spec, node, kind)
            known = self._known[claim.spec, kind] = (body, outputs)
        body, outputs = known
        for mark, value in ((self._work, facts.work), (self._python, facts.python)):
            body = body.replace(mark.encode(), _inside(value).encode())
        return body, outputs

    def _whole(
        self, claim: moves.Claim, spec: model.JobSpec, facts: NodeFacts, kind: str
    ) -> tuple[bytes, list[str], model.Binding]:
        binding = records.read_binding(claim.binding)
        if objection := launch.objection(binding, spec.on_change):
            raise JobCancelled(objection)
        launch.require_inputs(spec, binding, self._place.base, claim.job)
        place = msgspec.structs.replace(self._place, python=facts.python, programs=facts.work)
        sandbox = None if kind == "none" else Sandbox(kind=kind, image=spec.image)
        prepared = launch.prepare(
            place, launch.carried(spec), binding, job=claim.job, attempt=claim.attempt,
            folder=f"{facts.work}/jobs/{claim.job}.{claim.attempt}", owner=claim.owner,
            sandbox=sandbox,
        )  # fmt: skip
        written = msgspec.structs.asdict(prepared.launch) | {
            "outputs": prepared.outputs, "cpus": spec.resources.cpus,
        }  # fmt: skip
        declared = [*prepared.outputs.values(), *prepared.optional.values()]
        return text.dump(written).encode(), declared, binding


def strongest(facts: NodeFacts) -> str:
    """Name the strongest sandbox without an image that a node has; `none` if it has none."""
    return next((one for one in facts.sandboxes if one not in _CONTAINERS), "none")


def _inside(path: str) -> str:
    """Write a path as it stands inside JSON text."""
    return text.dump(path)[1:-1]
