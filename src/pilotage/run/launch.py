"""Turn a job into a process: templates are filled, and parameters are passed as values."""

from __future__ import annotations

import glob
import hashlib
import os
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from pilotage.base import errors, text
from pilotage.event import content
from pilotage.event.model import FileVersion
from pilotage.job import model, template
from pilotage.payload import call
from pilotage.run.model import Launch, Sandbox

_SHEBANG = "#!"
_Recipe = model.Command | model.Script | model.Python | model.Notebook | model.App


class LaunchContext(msgspec.Struct, frozen=True):
    """The project, applications and environment with which jobs are launched."""

    #: The project's root, which relative paths start from.
    base: str
    #: Registered applications by name.
    apps: Mapping[str, tuple[str, ...]] = {}
    #: What payloads have in their environment beside what this process has.
    env: Mapping[str, str] = {}
    #: The interpreter of recipes that name none.
    python: str = sys.executable
    #: The folder that holds `call.py` and `warm.py`.
    programs: str = os.path.dirname(call.__file__)
    #: Whether `base` is a folder of one job, to which its inputs were brought.
    staged: bool = False


class Prepared(msgspec.Struct, frozen=True):
    """A process to start, and its files: those it must leave and those it may leave."""

    launch: Launch
    outputs: dict[str, str]
    optional: dict[str, str]


def prepare(
    place: LaunchContext,
    spec: model.JobSpec,
    binding: model.Binding,
    *,
    job: int,
    attempt: int,
    folder: str,
    owner: str = "",
    sandbox: Sandbox | None = None,
) -> Prepared:
    """Fill in the templates of a job, and return the process to start."""
    base = spec.base or place.base
    known = template.keywords(binding, base, job)
    params = template.parameters(spec, binding, known)
    values = known | params
    outputs, optional = _outputs(spec, base, values)
    if isinstance(spec.recipe, model.Call):
        process = _call(place, spec, spec.recipe, binding, values, params)
        if declares(spec, binding):
            facts = _folder(
                place, spec, binding, values, folder, [*outputs.values(), *optional.values()]
            )
            process["files"]["folder.json"] = text.dump(facts)
            process["cwd"] = ""
        # GPUs are lent for a job: who has them must end with it. A sandbox shows the folder of one
        # job only.
        stays = not spec.resources.gpus and not (sandbox and "folder.json" in process["files"])
        process |= where(process, folder, owner, sandbox, stays=stays)
    elif isinstance(spec.recipe, model.Workflow):
        raise errors.BadRule("a workflow is not a process", hint="run its steps instead")
    else:
        process = _process(place, spec, spec.recipe, known, params, folder)
        process["env"] |= _about(folder, job, attempt)
    launch = Launch(
        key=f"{job}.{attempt}",
        inherit=True,
        dir=folder,
        timeout=spec.resources.time,
        memory=spec.resources.memory,
        limits={"disk": spec.resources.disk} if spec.resources.disk else {},
        sandbox=sandbox,
        gpus=spec.resources.gpus,
        **process,
    )
    return Prepared(launch, outputs, optional)


def objection(binding: model.Binding, on_change: model.OnChange) -> str:
    """Return why a job must not run on its input; empty if it may."""
    if on_change == "ignore" or not binding.path or not (binding.version or binding.sha256):
        return ""
    try:
        found = os.stat(binding.path)
    except OSError:
        return f"its input {text.show(binding.path)} is gone"
    version = str(FileVersion(found.st_ino, found.st_size, found.st_mtime_ns))
    if on_change == "latest" or version == binding.version:
        return ""
    if binding.sha256 and content.sha256(binding.path) == binding.sha256:
        return ""
    return f"its input {text.show(binding.path)} has changed since the rule matched it"


def declared(spec: model.JobSpec, binding: model.Binding, base: str, job: int) -> list[str]:
    """List the declared outputs of a job, required and optional."""
    known = template.keywords(binding, spec.base or base, job)
    values = known | template.parameters(spec, binding, known)
    return [path for each in _outputs(spec, spec.base or base, values) for path in each.values()]


def require_inputs(spec: model.JobSpec, binding: model.Binding, base: str, job: int) -> None:
    """Raise `NotFound` for a missing declared input; workers of functions check their own."""
    if not spec.inputs or isinstance(spec.recipe, model.Call) or spec.base not in ("", base):
        # Files of another project may be where only the job sees them.
        return
    known = template.keywords(binding, base, job)
    values = known | template.parameters(spec, binding, known)
    for pattern in spec.inputs:
        path = template.place(pattern, values, base)
        fits = glob.has_magic(path) and next(fitting(path, base), None)
        if not (fits or os.path.exists(path)):
            raise errors.NotFound(f"its input {text.show(path)} does not exist")


def fitting(pattern: str, base: str) -> Iterator[str]:
    """Find files by pattern; the name of the project's folder is taken literally."""
    top = f"{base}/" if pattern.startswith(f"{base}/") else ""
    return glob.iglob(glob.escape(top) + pattern[len(top) :], recursive=True)


def _outputs(
    spec: model.JobSpec, base: str, values: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Fill in the paths of files that a job must leave, and of those that it may leave."""
    must, may = (
        {
            name: os.path.normpath(os.path.join(base, template.render(path, values)))
            for name, path in paths.items()
        }
        for paths in (spec.outputs, spec.optional_outputs)
    )
    return must, may


def _process(
    place: LaunchContext, spec: model.JobSpec, recipe: _Recipe, known: Mapping[str, Any],
    params: Mapping[str, Any], folder: str,
) -> dict[str, Any]:  # fmt: skip
    """Return what a process of its own is given."""
    values = {**known, **params}
    files = {"params.json": text.dump({**_plain(known), **params})}
    argv = _argv(place, recipe, values, params, folder, files)
    return {
        "argv": tuple(argv),
        "env": _environment(place, spec, known, params),
        "cwd": _cwd(place, spec, values) if spec.cwd else os.path.join(place.base, folder),
        "files": files,
        "result": bool(isinstance(recipe, model.Python) and recipe.function),
    }


def _call(
    place: LaunchContext, spec: model.JobSpec, recipe: model.Call, binding: model.Binding,
    values: Mapping[str, Any], params: Mapping[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return what the worker of a function is given; nothing of it differs from job to job."""
    given = dict(place.env)
    given.update({name: template.render(value, values) for name, value in spec.env.items()})
    named = {"function": recipe.function, "source": recipe.source, "file": recipe.file}
    return {
        "argv": (recipe.python or place.python, f"{place.programs}/warm.py"),
        "env": {name: value for name, value in given.items() if "\0" not in value},
        "cwd": _cwd(place, spec, values) if spec.cwd else "",
        "files": {
            "recipe.json": text.dump(named),
            "calls.json": text.dump(binding.data or {"calls": [[[], params]]}),
        },
    }


def declares(spec: model.JobSpec, binding: model.Binding) -> bool:
    """Return whether a job names files that it reads or writes, or did so where it comes from."""
    return bool(
        spec.inputs or spec.outputs or spec.optional_outputs or binding.path or binding.paths
        or "alone" in binding.data
    )  # fmt: skip


def _folder(
    place: LaunchContext, spec: model.JobSpec, binding: model.Binding, values: Mapping[str, Any],
    folder: str, outputs: list[str],
) -> dict[str, Any]:  # fmt: skip
    """Return where calls of a job with files run: their own folder unless it names one."""
    base = spec.base or place.base
    inputs = [template.place(pattern, values, base) for pattern in spec.inputs]
    inputs += [path for path in (binding.path, *binding.paths) if path]
    here = not (place.staged or spec.cwd)
    root = f"{folder}/work" if here else base
    # At a site behind an agent, its job's folder has the files, and the message says which.
    alone = binding.data.get("alone")
    outputs = [*outputs, *(os.path.join(root, path) for path in alone or ())]
    return {
        "root": root,
        "cwd": _cwd(place, spec, values) if spec.cwd else root,
        "project": base if here else "",
        "inputs": inputs,
        "outputs": outputs,
        "own": not spec.cwd or alone is not None,
    }


def _cwd(place: LaunchContext, spec: model.JobSpec, values: Mapping[str, Any]) -> str:
    return os.path.join(spec.base or place.base, template.render(spec.cwd, values))


def _plain(known: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in known.items() if not isinstance(value, Mapping)}


def _argv(
    place: LaunchContext, recipe: _Recipe, values: Mapping[str, Any], params: Mapping[str, Any],
    folder: str, files: dict[str, str],
) -> list[str]:  # fmt: skip
    match recipe:
        case model.Command(argv=argv):
            return template.argv(argv, values)
        case model.Script():
            return _script(recipe, values, folder, files)
        case model.Python():
            files["parameters.json"] = text.dump(params)
            return _python(place, recipe, folder, files)
        case model.Notebook():
            files["parameters.json"] = text.dump(params)
            return _notebook(place, recipe, values, folder, files)
        case model.App(app=name, args=args):
            if name not in place.apps:
                message = f"no application {name!r} is registered here"
                raise errors.BadRule(message, hint=f"add `[app.{name}]` to pilotage.toml")
            return [*place.apps[name], *template.argv(args, values)]


def _script(
    recipe: model.Script, values: Mapping[str, Any], folder: str, files: dict[str, str]
) -> list[str]:
    if recipe.source:
        files["script"] = recipe.source
        file, first = f"{folder}/script", recipe.source.split("\n", 1)[0]
    else:
        file = recipe.file
        with open(file, encoding="utf-8", errors="surrogateescape") as script:
            first = script.readline().rstrip("\n")
    interpreter = list(recipe.interpreter)
    if not interpreter and first.startswith(_SHEBANG):
        try:
            interpreter = shlex.split(first.removeprefix(_SHEBANG))
        except ValueError as error:
            message = f"the first line of the script, {text.show(first)}, cannot be read: {error}"
            raise errors.BadRule(message) from None
    return [*(interpreter or ["bash"]), file, *template.argv(recipe.args, values)]


def _python(
    place: LaunchContext, recipe: model.Python, folder: str, files: dict[str, str]
) -> list[str]:
    file = recipe.file
    if recipe.source:
        files["recipe.py"] = recipe.source
        file = f"{folder}/recipe.py"
    argv = [recipe.python or place.python, f"{place.programs}/call.py", "--file", file]
    argv += ["--result", f"{folder}/result.json"]
    if recipe.function:
        return [*argv, "--params", f"{folder}/params.json", "--function", recipe.function]
    # What a script is given becomes its globals: keywords such as `dir` would hide built-ins.
    return [*argv, "--params", f"{folder}/parameters.json"]


def _notebook(
    place: LaunchContext, recipe: model.Notebook, values: Mapping[str, Any], folder: str,
    files: dict[str, str],
) -> list[str]:  # fmt: skip
    file = recipe.file
    if recipe.source:
        files["recipe.ipynb"] = recipe.source
        file = f"{folder}/recipe.ipynb"
    output = f"{folder}/result.ipynb"
    if recipe.output:
        output = os.path.join(values["base"], template.render(recipe.output, values))
    argv = [recipe.python or place.python, "-m", "papermill", file, output]
    argv += ["--parameters_file", f"{folder}/parameters.json", "--log-output", "--no-progress-bar"]
    return [*argv, "--kernel", recipe.kernel] if recipe.kernel else argv


def _environment(
    place: LaunchContext, spec: model.JobSpec, known: Mapping[str, Any], params: Mapping[str, Any]
) -> dict[str, str]:
    env = dict(place.env)
    env.update(
        {name: template.write(value) for name, value in params.items() if name.isidentifier()}
    )
    env.update(
        {name: template.render(value, {**known, **params}) for name, value in spec.env.items()}
    )
    for name, value in _plain(known).items():
        if name in template.KEYWORDS:
            env[f"PILOTAGE_{name.upper()}"] = template.write(value)
    return {name: value for name, value in env.items() if "\0" not in value}


def _about(folder: str, job: int, attempt: int) -> dict[str, str]:
    return {
        "PILOTAGE_JOB": str(job),
        "PILOTAGE_ATTEMPT": str(attempt),
        "PILOTAGE_JOB_DIR": folder,
        "PILOTAGE_PARAMS": f"{folder}/params.json",
    }


def carried(spec: model.JobSpec) -> model.JobSpec:
    """Put the text of a recipe into its definition: the file is here, not where the job runs."""
    recipe = spec.recipe
    if isinstance(recipe, model.Command | model.App | model.Workflow):
        return spec
    if recipe.file and not recipe.source:
        with open(recipe.file, encoding="utf-8", errors="surrogateescape") as file:
            recipe = msgspec.structs.replace(recipe, source=file.read(), file="")
        return msgspec.structs.replace(spec, recipe=recipe)
    return spec


def missing(outputs: Mapping[str, str]) -> tuple[str, ...]:
    """List the declared outputs that are not there."""
    return tuple(path for path in outputs.values() if not Path(path).exists())


#: Isolation through which a worker can be spoken with; any other passes on no socket.
_STAYING = frozenset({"none", "bubblewrap"})


def where(
    process: dict[str, Any], folder: str, owner: str, sandbox: Sandbox | None, *, stays: bool
) -> dict[str, Any]:
    """Return what to add to a process so that a call runs in a worker, or by itself."""
    if stays and (sandbox is None or sandbox.kind in _STAYING):
        return {"warm": kind(process, owner, sandbox)}
    # Such a sandbox shows nothing but the job's own folder.
    return {"argv": (*process["argv"], "--once", folder), "cwd": folder, "result": True}


def kind(process: dict[str, Any], owner: str, sandbox: Sandbox | None) -> str:
    """Name the kind of worker that a call needs; calls of different owners never share one."""
    facts = [process["argv"], process["env"], process["cwd"], process["files"]["recipe.json"]]
    return hashlib.blake2b(text.dump([*facts, owner, sandbox]).encode(), digest_size=12).hexdigest()
