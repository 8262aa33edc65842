"""The data of a job on a node that does not see the project: what is brought there, and where."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.batch import job as guest
from pilotage.batch.job import BatchJob
from pilotage.job import model
from pilotage.pilot.model import Facts, Project
from pilotage.pilot.stencil import Refused
from pilotage.run import launch
from pilotage.run.model import Sandbox


class Folders(msgspec.Struct, frozen=True):
    """The folders of an attempt on a node."""

    #: The folder of the pilot.
    work: str
    #: The name of the attempt.
    key: str

    @property
    def run(self) -> str:
        """The attempt's directory, which the starter makes."""
        return f"{self.work}/jobs/{self.key}"

    @property
    def data(self) -> str:
        """What stands for the project's folder there."""
        return f"{self.work}/data/{self.key}"

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        return self.work

    def there(self, path: str, base: str) -> str:
        """Say where a file of this machine is on the node."""
        return f"{self.data}/{guest.relative(path, base)}"


def in_place(facts: Facts, spec: model.JobSpec) -> bool:
    """Say whether a job has its files on a node without anybody bringing them."""
    seen = facts.boxed if spec.image else facts.project
    if seen is Project.READABLE:
        return not (spec.outputs or spec.optional_outputs)
    return seen is not Project.HIDDEN


def has_data(one: BatchJob, project: str) -> bool:
    """Say whether a job reads or writes files of the project, or runs in it."""
    spec = one.spec
    if one.base != project:
        # It comes from another project: only its owner knows where those files are.
        return False
    cwd = spec.cwd and f"{os.path.join(project, spec.cwd)}/"
    inside = bool(cwd) and (cwd.startswith(f"{project}/") or "{" in spec.cwd)
    return bool(guest.reads(one) or spec.outputs or spec.optional_outputs or inside)


def order(
    one: BatchJob, folders: Folders, facts: Facts, place: launch.LaunchContext, kind: str
) -> dict[str, Any]:
    """Write the launch of a job, and what of its data is where on the node."""
    spec = one.spec
    if kind == "user":
        raise Refused("another user cannot read what is brought there: choose another `sandbox`")
    for path in launch.declared(spec, one.binding, one.base, one.claim.job):
        if not path.startswith(f"{one.base}/"):
            raise Refused(f"its output {text.show(path)} is not below the project's folder")
    sandbox = None if kind == "none" else Sandbox(kind=kind, image=spec.image)
    prepared = guest.prepare(one, folders, place, python=facts.python, sandbox=sandbox)
    started = guest.shown(msgspec.to_builtins(prepared.launch), folders.data, used=True)
    inputs = guest.inputs(one, folders)
    for told, digest in zip(inputs, one.inputs.values(), strict=True):
        told["size"] = digest.size
    return started | {
        "outputs": prepared.outputs,
        "cpus": spec.resources.cpus,
        "data": {
            "folder": folders.data,
            "inputs": inputs,
            "optional": prepared.optional,
            "ok_codes": spec.ok_codes,
        },
    }
