"""Launches for pilots, as JSON: a definition is filled in once, and then only numbers change."""

from __future__ import annotations

import secrets

import msgspec

from pilotage import text
from pilotage.job import model, moves, records
from pilotage.payload.model import Sandbox
from pilotage.pilot.model import Facts
from pilotage.site import launch, unchanged

#: Definitions kept at hand.
_MOST = 10_000
_PLAIN = text.dump(model.Binding())
#: Sandboxes that can run an image.
_CONTAINERS = ("podman", "apptainer")


class Refused(Exception):
    """The job must not start; the text says why."""


class Stencils:
    """Makes launches; whatever differs between jobs of one definition stands in as a mark.

    The marks are random, so that no text of a user's can hold them by accident or by design.
    """

    def __init__(self, place: launch.Place, sandbox: str) -> None:
        self._sandbox = sandbox
        self._job = 10**17 + secrets.randbelow(10**17)
        self._attempt = 10**17 + secrets.randbelow(10**17)
        self._work = f"/{secrets.token_hex(16)}"
        self._python = f"/{secrets.token_hex(16)}"
        self._place = place
        self._known: dict[tuple[int, str], tuple[bytes, list[str]]] = {}

    def fill(
        self, claim: moves.Claim, spec: model.JobSpec, facts: Facts, owner: str
    ) -> tuple[bytes, list[str], model.Binding]:
        """Write the launch of a claimed job, the files it says it writes, and what made it."""
        kind = self.sandbox(spec, facts)
        if claim.binding != _PLAIN:
            return self._whole(claim, spec, facts, owner, kind)
        known = self._known.get((claim.spec, kind))
        if known is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            known = self._known[claim.spec, kind] = self._cut(claim, spec, owner, kind)
        body, outputs = known
        for mark, value in (
            (str(self._job), str(claim.job)),
            (str(self._attempt), str(claim.attempt)),
            (self._work, _inside(facts.work)),
            (self._python, _inside(facts.python)),
        ):
            body = body.replace(mark.encode(), value.encode())
        return body, outputs, model.Binding()

    def sandbox(self, spec: model.JobSpec, facts: Facts) -> str:
        """Choose what stands between a payload and everything else on a node."""
        if spec.image:
            kind = next((one for one in _CONTAINERS if one in facts.sandboxes), "")
            if not kind:
                raise Refused(f"{facts.host} has no container runtime for {spec.image}")
            return kind
        if self._sandbox == "auto":
            usual = (one for one in facts.sandboxes if one not in _CONTAINERS)
            return next(usual, "none")
        if self._sandbox != "none" and self._sandbox not in facts.sandboxes:
            raise Refused(f"{facts.host} has no sandbox `{self._sandbox}`")
        return self._sandbox

    def _cut(
        self, claim: moves.Claim, spec: model.JobSpec, owner: str, kind: str
    ) -> tuple[bytes, list[str]]:
        marked = moves.Claim(
            self._job, self._attempt, claim.spec, claim.binding, claim.rule, claim.depth, ""
        )
        facts = Facts(host="", work=self._work, cpus=1, memory=1, python=self._python)
        body, outputs, _ = self._whole(marked, spec, facts, owner, kind)
        return body, outputs

    def _whole(
        self, claim: moves.Claim, spec: model.JobSpec, facts: Facts, owner: str, kind: str
    ) -> tuple[bytes, list[str], model.Binding]:
        binding = records.read_binding(claim.binding)
        if objection := unchanged.objection(binding, spec.on_change):
            raise Refused(objection)
        place = msgspec.structs.replace(self._place, python=facts.python, programs=facts.work)
        sandbox = None if kind == "none" else Sandbox(kind=kind, image=spec.image)
        prepared = launch.prepare(
            place, carried(spec), binding, job=claim.job, attempt=claim.attempt,
            folder=f"{facts.work}/jobs/{claim.job}.{claim.attempt}", owner=owner, sandbox=sandbox,
        )  # fmt: skip
        facts_of = msgspec.structs.asdict(prepared.launch) | {"outputs": prepared.outputs}
        declared = [*prepared.outputs.values(), *prepared.optional.values()]
        return text.dump(facts_of).encode(), declared, binding


def carried(spec: model.JobSpec) -> model.JobSpec:
    """Put the text of a recipe into its definition: the file is here, not on the node."""
    recipe = spec.recipe
    if not isinstance(recipe, model.Command | model.App) and recipe.file and not recipe.source:
        with open(recipe.file, encoding="utf-8", errors="surrogateescape") as file:
            recipe = msgspec.structs.replace(recipe, source=file.read(), file="")
        return msgspec.structs.replace(spec, recipe=recipe)
    return spec


def _inside(path: str) -> str:
    """Write a path as it stands inside JSON text."""
    return text.dump(path)[1:-1]
