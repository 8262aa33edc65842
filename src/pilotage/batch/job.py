"""A job at a site: its folders there, its order, and its outputs."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from pilotage.base import errors, text
from pilotage.batch.malleable import Fit
from pilotage.batch.model import SiteSettings
from pilotage.data.stage.model import Digest, WantedFile, WantedFolder
from pilotage.job import model, moves, template
from pilotage.run import launch
from pilotage.run.model import Sandbox

#: Where files that are not below the project lie, in the job's own folder.
_OUTSIDE = ".outside"
#: Files that one job may have brought to a site.
_MOST_FILES = 100_000


class BatchJob(msgspec.Struct):
    """An attempt that a site holds."""

    claim: moves.Claim
    spec: model.JobSpec
    binding: model.Binding
    #: Where the project is here.
    base: str
    #: The folder here whose files it may name; empty means that it may name any.
    bounds: str = ""
    #: The folder here that was made for it, if it is a step of a workflow: it may name that, too.
    own: str = ""
    #: By path here, the content of what it reads.
    inputs: dict[str, Digest] = {}
    #: By name, paths here of what it must leave and of what it may leave.
    outputs: dict[str, str] = {}
    optional: dict[str, str] = {}
    #: How it reaches what this machine serves, for data that is mounted.
    mount: dict[str, Any] | None = None
    #: The image that comes along with it.
    image: dict[str, Any] | None = None
    #: The folder at the site that it runs in, if that is there already: then no path of it moves.
    folder: str = ""
    #: The size that was chosen for it, if it had a choice.
    fit: Fit | None = None
    #: Texts by name that its order brings to the folder of its attempt, which it then runs in.
    files: dict[str, str] = {}

    @property
    def key(self) -> str:
        """The name of the attempt."""
        return f"{self.claim.job}.{self.claim.attempt}"

    @property
    def attempt(self) -> tuple[int, int]:
        """The job and the number of the attempt."""
        return self.claim.job, self.claim.attempt


def brings(job: BatchJob) -> bool:
    """Return whether anything must be at the site before a job can be submitted."""
    return bool(job.spec.data == "mounted" or reads(job) or job.spec.image)


def reads(job: BatchJob) -> bool:
    """Return whether a job reads any file: its trigger, its program, or what it names beside."""
    spec, binding = job.spec, job.binding
    return bool(binding.path or binding.paths or spec.inputs or _program(spec, job.base))


def wanted(job: BatchJob) -> list[str]:
    """List the files that a job reads: its trigger, its program, and what it names beside."""
    binding, base = job.binding, job.base
    known = template.keywords(binding, base, job.claim.job)
    values = known | template.parameters(job.spec, binding, known)
    paths = [binding.path, *binding.paths]
    if program := _program(job.spec, base):
        paths.append(program)
    for pattern in job.spec.inputs:
        place = template.place(pattern, values, base)
        found = sorted(launch.fitting(place, base)) if glob.has_magic(place) else [place]
        if not found:
            raise errors.NotFound(f"no input matches {text.show(pattern)}")
        paths += found
    files: dict[str, None] = {}
    for path in paths:
        if path:
            _walk(path, files)
    check(job, files)
    return list(files)


def check(job: BatchJob, paths: Iterable[str]) -> None:
    """Refuse files that the owner of a job may not name: outside the project, or hidden in it."""
    if not job.bounds:
        return
    top = os.path.realpath(job.bounds)
    own = f"{os.path.realpath(job.own)}/" if job.own else ""
    for path in paths:
        real = os.path.realpath(path)
        if own and f"{real}/".startswith(own):
            continue
        inside = os.path.relpath(real, top)
        if any(part.startswith(".") for part in inside.split(os.sep)):
            message = f"a job of {job.claim.owner} may not name {text.show(path)}"
            raise errors.Denied(message, hint="name files of the project, and no hidden ones")


def _program(spec: model.JobSpec, base: str) -> str:
    """Return the program of a job if that is a file of the project; it is staged, too."""
    first = spec.recipe.argv[0] if isinstance(spec.recipe, model.Command) else ""
    path = first.replace("{base}", base)
    return path if path.startswith(f"{base}/") and os.path.isfile(path) else ""


def _walk(path: str, files: dict[str, None]) -> None:
    """Add a file, or all files of a folder."""
    if not os.path.isdir(path):
        files[path] = None
        return
    for folder, _, names in os.walk(path):
        for name in sorted(names):
            files[os.path.join(folder, name)] = None
            if len(files) > _MOST_FILES:
                message = f"{text.show(path)} has more than {_MOST_FILES} files"
                raise errors.Denied(message, hint='mount it: `data = "mounted"`')


def shape(job: BatchJob, fit: Fit) -> None:
    """Set the size that was chosen for a job; it has no other from now on."""
    asked, needs = job.spec.allocation, job.spec.resources
    job.spec = msgspec.structs.replace(
        job.spec,
        allocation=msgspec.structs.replace(asked, nodes=fit.nodes, shape=model.Shape()),
        resources=msgspec.structs.replace(needs, time=needs.time if fit.time is None else fit.time),
    )
    job.fit = fit


class ItemFolder(msgspec.Struct, frozen=True):
    """The folder of one item of a submission at the site."""

    root: str
    key: str
    place: int

    @property
    def folder(self) -> str:
        """The folder itself."""
        return f"{self.root}/s/{self.key}/{self.place}"

    @property
    def run(self) -> str:
        """The attempt's directory, which the starter makes."""
        return f"{self.folder}/run"

    @property
    def data(self) -> str:
        """The copy of the project's folder at the site."""
        return f"{self.folder}/data"

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        return f"{self.folder}/lib"

    def there(self, path: str, base: str) -> str:
        """Return where a file of this machine is at the site."""
        return f"{self.data}/{relative(path, base)}"


class JobFolders(Protocol):
    """The folders of a job where it runs, which is not here."""

    @property
    def run(self) -> str:
        """The attempt's directory, which the starter makes."""
        ...

    @property
    def data(self) -> str:
        """The copy of the project's folder at the site."""
        ...

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        ...

    def there(self, path: str, base: str, /) -> str:
        """Return where a file of this machine is there."""
        ...


def relative(path: str, base: str) -> str:
    """Return the path of a file within the copy of the project's folder."""
    start = base.rstrip("/") + "/"
    if path.startswith(start):
        return path.removeprefix(start)
    mark = hashlib.sha256(os.fsencode(os.path.dirname(path))).hexdigest()[:12]
    return f"{_OUTSIDE}/{mark}/{os.path.basename(path)}"


def prepare(
    job: BatchJob,
    area: JobFolders,
    place: launch.LaunchContext,
    *,
    python: str,
    sandbox: Sandbox | None,
) -> launch.Prepared:
    """Return the launch of a job at the site, and note the local paths of its outputs."""
    there = msgspec.structs.replace(
        job.binding,
        path=area.there(job.binding.path, job.base) if job.binding.path else "",
        paths=tuple(area.there(path, job.base) for path in job.binding.paths),
        other=area.there(job.binding.other, job.base) if job.binding.other else "",
    )
    recipe = job.spec.recipe
    # With the text of a file, its name is only for tracebacks.
    file = "" if getattr(recipe, "source", "") else getattr(recipe, "file", "")
    check(job, [file] if file else [])
    spec = launch.carried(job.spec)
    if not job.folder:
        spec = _moved(spec, job.base, area.data)
    at = msgspec.structs.replace(
        place, base=area.data, python=python, programs=area.lib, staged=not job.folder
    )
    prepared = launch.prepare(
        at, spec, there, job=job.claim.job, attempt=job.claim.attempt, folder=area.run,
        owner=job.claim.owner, sandbox=sandbox,
    )  # fmt: skip
    for path in (*prepared.outputs.values(), *prepared.optional.values()):
        if not path.startswith(f"{area.data}/"):
            message = f"the output {text.show(path)} is not below the project's folder"
            raise errors.BadRule(message, hint="jobs at a site write below `{base}`")
    job.outputs = _here(prepared.outputs, area, job.base)
    job.optional = _here(prepared.optional, area, job.base)
    check(job, [*job.outputs.values(), *job.optional.values()])
    return prepared


def order(
    job: BatchJob, folders: ItemFolder, site: SiteSettings, place: launch.LaunchContext
) -> dict[str, Any]:
    """Write the order of a job as its program at the site reads it."""
    sandbox = Sandbox(kind=site.container, image=job.spec.image) if job.spec.image else None
    prepared = prepare(job, folders, place, python=site.python, sandbox=sandbox)
    started = _told(msgspec.to_builtins(prepared.launch), job.spec)
    started = _parallel(started, job.spec, site)
    if not started["cwd"]:
        # The folder of its worker; what is on the node itself may be small.
        started["scratch"] = f"{folders.folder}/scratch"
    if job.files:
        started = {**started, "files": {**started["files"], **job.files}, "cwd": folders.run}
    if job.folder:
        started = _writing(started, job.folder)
    elif not job.mount:
        used = bool(job.inputs or job.outputs or job.optional)
        started = shown(started, folders.data, used=used)
    return {
        "launch": started,
        "outputs": prepared.outputs,
        "optional": prepared.optional,
        "inputs": [] if job.mount else inputs(job, folders),
        "mount": {**job.mount, "path": folders.data} if job.mount else None,
        "image": job.image,
    }  # fmt: skip


def inputs(job: BatchJob, area: JobFolders) -> list[dict[str, Any]]:
    """Return the contents that a job reads, and their paths at the site."""
    return [
        {"path": area.there(path, job.base), "sha256": one.sha256, "mode": _mode(path)}
        for path, one in job.inputs.items()
    ]


def _mode(path: str) -> int:
    """Return the mode of a file at the site: executable if it is so here."""
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _moved(spec: model.JobSpec, base: str, data: str) -> model.JobSpec:
    """Map paths below the project to the copy of its folder."""

    def moved(path: str) -> str:
        return data + path.removeprefix(base) if f"{path}/".startswith(f"{base}/") else path

    if isinstance(spec.recipe, model.Command) and _program(spec, base):
        first, *rest = spec.recipe.argv
        recipe = model.Command((moved(first), *rest))
        spec = msgspec.structs.replace(spec, recipe=recipe)
    return msgspec.structs.replace(
        spec,
        base=data,
        cwd=moved(spec.cwd),
        outputs={name: moved(path) for name, path in spec.outputs.items()},
        optional_outputs={name: moved(path) for name, path in spec.optional_outputs.items()},
    )


def _here(paths: Mapping[str, str], area: JobFolders, base: str) -> dict[str, str]:
    return {
        name: os.path.normpath(os.path.join(base, path.removeprefix(f"{area.data}/")))
        for name, path in paths.items()
    }


def _parallel(started: dict[str, Any], spec: model.JobSpec, site: SiteSettings) -> dict[str, Any]:
    """Prefix the program of a parallel job with the launcher of its tasks."""
    asked = spec.allocation
    tasks = asked.nodes * asked.tasks
    match asked.launcher or (site.launcher if tasks > 1 else "none"):
        case "srun":
            words = ["srun", f"--ntasks={tasks}", f"--nodes={asked.nodes}", "--kill-on-bad-exit=1"]
        case "mpirun":
            words = ["mpirun", "-n", str(tasks)]
        case _:
            words = []
    return {**started, "argv": [*words, *started["argv"]]}


def _told(started: dict[str, Any], spec: model.JobSpec) -> dict[str, Any]:
    """Return variables with the nodes and time of a program; persistent workers get none."""
    if isinstance(spec.recipe, model.Call):
        return started
    told = {"PILOTAGE_NODES": str(spec.allocation.nodes)}
    if spec.resources.time:
        told["PILOTAGE_TIME"] = str(int(spec.resources.time))
    return {**started, "env": {**started["env"], **told}}


def shown(started: dict[str, Any], data: str, *, used: bool) -> dict[str, Any]:
    """Show a job in a container its data; mounts are shown by the program that makes them."""
    used = used or f"{started['cwd']}/".startswith(f"{data}/")
    return _writing(started, data) if used else started


def _writing(started: dict[str, Any], folder: str) -> dict[str, Any]:
    """Let a job in a container, if it is in one, see a folder and write there."""
    if not started.get("sandbox"):
        return started
    return {**started, "sandbox": {**started["sandbox"], "writable": [folder]}}


def homeward(
    job: BatchJob, area: JobFolders, found: Mapping[str, Any]
) -> list[WantedFile | WantedFolder]:
    """Return the files to fetch, by the evidence of the outputs."""
    coming: list[WantedFile | WantedFolder] = []
    for name, local in (job.outputs | job.optional).items():
        facts = found.get(name)
        if not facts:
            continue
        remote = area.there(local, job.base)
        if "files" in facts:
            files = {path: msgspec.convert(one, Digest) for path, one in facts["files"].items()}
            coming.append(WantedFolder(remote=remote, local=local, files=files))
        else:
            one = msgspec.convert(facts, Digest)
            coming.append(WantedFile(remote=remote, local=local, size=one.size, sha256=one.sha256))
    return coming


def lacking(job: BatchJob, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the declared outputs that were not left."""
    return tuple(path for name, path in job.outputs.items() if not found.get(name))
