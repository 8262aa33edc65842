"""A job at a site: where its files are there, what it is ordered to do, what it leaves."""

from __future__ import annotations

import glob
import hashlib
import os
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import msgspec

from pilotage.base import errors, text
from pilotage.batch.malleable import Fit
from pilotage.batch.model import Site
from pilotage.data.stage.model import Digest, Folder, Wanted
from pilotage.job import model, moves, template
from pilotage.run import launch
from pilotage.run.model import Sandbox

#: Where files that are not below the project lie, in the job's own folder.
_OUTSIDE = ".outside"
#: Files that one job may have brought to a site.
_MOST_FILES = 100_000


class Guest(msgspec.Struct):
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
    #: The shape that it has got, if it had a choice.
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


def brings(guest: Guest) -> bool:
    """Say whether anything must be at the site before a job can be submitted."""
    return bool(guest.spec.data == "mounted" or reads(guest) or guest.spec.image)


def reads(guest: Guest) -> bool:
    """Say whether a job reads any file: its trigger, its program, or what it names beside."""
    spec, binding = guest.spec, guest.binding
    return bool(binding.path or binding.paths or spec.inputs or _program(spec, guest.base))


def wanted(guest: Guest) -> list[str]:
    """List the files that a job reads: its trigger, its program, and what it names beside."""
    binding, base = guest.binding, guest.base
    known = template.keywords(binding, base, guest.claim.job)
    values = known | template.parameters(guest.spec, binding, known)
    paths = [binding.path, *binding.paths]
    if program := _program(guest.spec, base):
        paths.append(program)
    for pattern in guest.spec.inputs:
        place = template.place(pattern, values, base)
        found = sorted(launch.fitting(place, base)) if glob.has_magic(place) else [place]
        if not found:
            raise errors.NotFound(f"no input matches {text.show(pattern)}")
        paths += found
    files: dict[str, None] = {}
    for path in paths:
        if path:
            _walk(path, files)
    check(guest, files)
    return list(files)


def check(guest: Guest, paths: Iterable[str]) -> None:
    """Refuse files that are not for whose job it is: beyond the project, or hidden in it."""
    if not guest.bounds:
        return
    top = os.path.realpath(guest.bounds)
    own = f"{os.path.realpath(guest.own)}/" if guest.own else ""
    for path in paths:
        real = os.path.realpath(path)
        if own and f"{real}/".startswith(own):
            continue
        inside = os.path.relpath(real, top)
        if any(part.startswith(".") for part in inside.split(os.sep)):
            message = f"a job of {guest.claim.owner} may not name {text.show(path)}"
            raise errors.Denied(message, hint="name files of the project, and no hidden ones")


def _program(spec: model.JobSpec, base: str) -> str:
    """Name the program of a job if that is a file of the project; it comes along."""
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


def shape(guest: Guest, fit: Fit) -> None:
    """Give a job the shape that was chosen for it; from now on it is the only one that it has."""
    asked, needs = guest.spec.allocation, guest.spec.resources
    guest.spec = msgspec.structs.replace(
        guest.spec,
        allocation=msgspec.structs.replace(asked, nodes=fit.nodes, shape=model.Shape()),
        resources=msgspec.structs.replace(needs, time=needs.time if fit.time is None else fit.time),
    )
    guest.fit = fit


class Room(msgspec.Struct, frozen=True):
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
        """What stands for the project's folder there."""
        return f"{self.folder}/data"

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        return f"{self.folder}/lib"

    def there(self, path: str, base: str) -> str:
        """Say where a file of this machine is at the site."""
        return f"{self.data}/{relative(path, base)}"


class Area(Protocol):
    """The folders of a job where it runs, which is not here."""

    @property
    def run(self) -> str:
        """The attempt's directory, which the starter makes."""
        ...

    @property
    def data(self) -> str:
        """What stands for the project's folder there."""
        ...

    @property
    def lib(self) -> str:
        """The programs that travel with jobs."""
        ...

    def there(self, path: str, base: str, /) -> str:
        """Say where a file of this machine is there."""
        ...


def relative(path: str, base: str) -> str:
    """Name a file within the folder that stands for the project's."""
    start = base.rstrip("/") + "/"
    if path.startswith(start):
        return path.removeprefix(start)
    mark = hashlib.sha256(os.fsencode(os.path.dirname(path))).hexdigest()[:12]
    return f"{_OUTSIDE}/{mark}/{os.path.basename(path)}"


def prepare(
    guest: Guest, area: Area, place: launch.Place, *, python: str, sandbox: Sandbox | None
) -> launch.Prepared:
    """Fill a job in for where it runs, and note which paths here its outputs have."""
    there = msgspec.structs.replace(
        guest.binding,
        path=area.there(guest.binding.path, guest.base) if guest.binding.path else "",
        paths=tuple(area.there(path, guest.base) for path in guest.binding.paths),
        other=area.there(guest.binding.other, guest.base) if guest.binding.other else "",
    )
    recipe = guest.spec.recipe
    # With the text of a file, its name is only for tracebacks.
    file = "" if getattr(recipe, "source", "") else getattr(recipe, "file", "")
    check(guest, [file] if file else [])
    spec = launch.carried(guest.spec)
    if not guest.folder:
        spec = _moved(spec, guest.base, area.data)
    at = msgspec.structs.replace(
        place, base=area.data, python=python, programs=area.lib, staged=not guest.folder
    )
    prepared = launch.prepare(
        at, spec, there, job=guest.claim.job, attempt=guest.claim.attempt, folder=area.run,
        owner=guest.claim.owner, sandbox=sandbox,
    )  # fmt: skip
    for path in (*prepared.outputs.values(), *prepared.optional.values()):
        if not path.startswith(f"{area.data}/"):
            message = f"the output {text.show(path)} is not below the project's folder"
            raise errors.BadRule(message, hint="jobs at a site write below `{base}`")
    guest.outputs = _here(prepared.outputs, area, guest.base)
    guest.optional = _here(prepared.optional, area, guest.base)
    check(guest, [*guest.outputs.values(), *guest.optional.values()])
    return prepared


def order(guest: Guest, room: Room, site: Site, place: launch.Place) -> dict[str, Any]:
    """Write the order of a job as its program at the site reads it."""
    sandbox = Sandbox(kind=site.container, image=guest.spec.image) if guest.spec.image else None
    prepared = prepare(guest, room, place, python=site.python, sandbox=sandbox)
    started = _told(msgspec.to_builtins(prepared.launch), guest.spec)
    started = _parallel(started, guest.spec, site)
    if not started["cwd"]:
        # The folder of its worker; what is on the node itself may be small.
        started["scratch"] = f"{room.folder}/scratch"
    if guest.files:
        started = {**started, "files": {**started["files"], **guest.files}, "cwd": room.run}
    if guest.folder:
        started = _writing(started, guest.folder)
    elif not guest.mount:
        used = bool(guest.inputs or guest.outputs or guest.optional)
        started = shown(started, room.data, used=used)
    return {
        "launch": started,
        "outputs": prepared.outputs,
        "optional": prepared.optional,
        "inputs": [] if guest.mount else inputs(guest, room),
        "mount": {**guest.mount, "path": room.data} if guest.mount else None,
        "image": guest.image,
    }  # fmt: skip


def inputs(guest: Guest, area: Area) -> list[dict[str, Any]]:
    """Say which content a job reads, and where it looks for it."""
    return [
        {"path": area.there(path, guest.base), "sha256": one.sha256, "mode": _mode(path)}
        for path, one in guest.inputs.items()
    ]


def _mode(path: str) -> int:
    """Let what is a program here be one there."""
    return 0o755 if os.access(path, os.X_OK) else 0o644


def _moved(spec: model.JobSpec, base: str, data: str) -> model.JobSpec:
    """Let paths below the project mean the same below the folder that stands for it."""

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


def _here(paths: Mapping[str, str], area: Area, base: str) -> dict[str, str]:
    return {
        name: os.path.normpath(os.path.join(base, path.removeprefix(f"{area.data}/")))
        for name, path in paths.items()
    }


def _parallel(started: dict[str, Any], spec: model.JobSpec, site: Site) -> dict[str, Any]:
    """Put what starts the tasks of a parallel job before its program."""
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
    """Tell a program how many nodes it has and for how long; a worker that stays has none."""
    if isinstance(spec.recipe, model.Call):
        return started
    told = {"PILOTAGE_NODES": str(spec.allocation.nodes)}
    if spec.resources.time:
        told["PILOTAGE_TIME"] = str(int(spec.resources.time))
    return {**started, "env": {**started["env"], **told}}


def shown(started: dict[str, Any], data: str, *, used: bool) -> dict[str, Any]:
    """Let a job in a container see its data; what is mounted is shown by who mounts it."""
    used = used or f"{started['cwd']}/".startswith(f"{data}/")
    return _writing(started, data) if used else started


def _writing(started: dict[str, Any], folder: str) -> dict[str, Any]:
    """Let a job in a container, if it is in one, see a folder and write there."""
    if not started.get("sandbox"):
        return started
    return {**started, "sandbox": {**started["sandbox"], "writable": [folder]}}


def homeward(guest: Guest, area: Area, found: Mapping[str, Any]) -> list[Wanted | Folder]:
    """Say which files come home, by the evidence of what was left."""
    coming: list[Wanted | Folder] = []
    for name, local in (guest.outputs | guest.optional).items():
        facts = found.get(name)
        if not facts:
            continue
        remote = area.there(local, guest.base)
        if "files" in facts:
            files = {path: msgspec.convert(one, Digest) for path, one in facts["files"].items()}
            coming.append(Folder(remote=remote, local=local, files=files))
        else:
            one = msgspec.convert(facts, Digest)
            coming.append(Wanted(remote=remote, local=local, size=one.size, sha256=one.sha256))
    return coming


def lacking(guest: Guest, found: Mapping[str, Any]) -> tuple[str, ...]:
    """Name the declared outputs that were not left."""
    return tuple(path for name, path in guest.outputs.items() if not found.get(name))
