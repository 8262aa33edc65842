"""Keys of a workflow file with their types, and the conversion of a step.

The same keys serve files of TOML and of JSON, messages and the Python form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec

from pilotage.base import errors, text, units
from pilotage.base.names import closest
from pilotage.edge.handoff import Take
from pilotage.flow.model import Flow, IntRange, OnFailure, Step
from pilotage.rule.build import limit
from pilotage.rule.draft import convert
from pilotage.rule.recipe import recipe
from pilotage.rule.schema import Amount, LimitText, RecipeText, SchemaPart, Texts
from pilotage.rule.span import key
from pilotage.rule.trigger import texts

#: A number or the least and the most of it.
Count = int | tuple[int, int]
Extent = Amount | tuple[Amount, Amount]


class FlowText(SchemaPart, msgspec.Struct, frozen=True):
    """Keys at the top of a workflow."""

    #: What it is called; of a flow within another that is the name of the step.
    name: str = ""
    #: For people.
    description: str = ""
    #: Parameters with their usual values.
    params: dict[str, Any] = {}
    #: Parameters that have none and must be given.
    required: Texts = ()
    #: Its steps by name.
    step: dict[str, Any] = {}
    #: Outputs of the flow: by name, a step or `"step/output"`.
    outputs: dict[str, str] = {}
    #: A URL that those go to at the end.
    to: str = ""
    #: Retries of all tasks together.
    retries: int = 100
    #: Receivers of notifications.
    notify: dict[str, Any] = {}


class StepText(SchemaPart, msgspec.Struct, frozen=True):
    """Keys of `[step.NAME]`."""

    #: The site, or those among which one is chosen; templates.
    site: str | None = None
    sites: Texts | None = None
    #: An expression over a site that must hold.
    requirements: str = ""
    #: Steps that must be over before; those that it names elsewhere need not be repeated here.
    needs: Texts = ()
    #: An application of a site; a template.
    application: str = ""
    #: A program and its arguments, for this hub; `command` is another name for it.
    run: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    #: A script: a file beside the workflow, or its text if it has more than one line.
    script: str | None = None
    #: What runs the script; unless given, its `#!` line, or bash.
    interpreter: Texts | None = None
    #: Arguments of a script or application.
    args: tuple[str, ...] | None = None
    #: A Python file beside the workflow, `"file.py:function"`, or text of more than one line.
    python: str | None = None
    #: The function of it that is called; what it returns is the result of the task.
    function: str | None = None
    #: A Jupyter notebook beside the workflow.
    notebook: str | None = None
    #: The kernel of the notebook.
    kernel: str | None = None
    #: Where the executed notebook goes.
    output: str | None = None
    #: An application of this hub's configuration.
    app: str | None = None
    #: The interpreter for `python` and `notebook`.
    python_bin: str | None = None
    #: A flow of its own: a file beside this one, or a table.
    flow: str | dict[str, Any] | None = None
    #: Parameters of the application, the recipe or the flow; templates.
    parameters: dict[str, Any] = {}
    #: Text for the parser of the application; a template.
    config: str = ""
    #: The same in a file among the inputs.
    config_file: str = ""
    #: Environment variables; templates.
    env: dict[str, str | int | float] = {}
    #: A list, or the template of one that is known only later: one task for each item.
    each: list[Any] | str | None = None
    #: An expression; if it does not hold the step is skipped.
    when: str = ""
    #: Inputs: `"step"`, `"step/file"`, a URL, or a table with `from`, `as` and `sha256`.
    inputs: str | tuple[str | dict[str, str], ...] = ()
    #: Names below its folder that it leaves; one that ends with `/` is a folder.
    outputs: Texts = ()
    #: The output that is a small JSON file: its content is the result of the task.
    result: str = ""
    #: Effect of a failure: `fail`, `continue`, `retry` or `other_site`.
    on_failure: OnFailure = "fail"
    #: Retries of a task.
    retries: int = 0
    #: Pause before the first retry; it doubles with each.
    delay: Amount = 1
    #: Template of a key of which one job runs at once, or a table with `key` and `most`.
    limit: str | LimitText | None = None
    #: Nodes, or the least and the most.
    nodes: Count = 1
    #: Tasks on each node.
    tasks: int = 1
    #: Wall time, or the least and the most, such as `["10m", "1h"]`.
    time: Extent = 0
    #: Node time that it needs at least, whatever its shape, such as `"16h"`.
    work: Amount = 0
    #: Cores of each task.
    cpus: int = 1
    #: Memory, GPUs and disk of each node.
    memory: Amount = 0
    gpus: int = 0
    disk: Amount = 0
    #: Queue and project at the site.
    queue: str = ""
    project: str = ""
    #: Further options of the batch system.
    options: Texts = ()


class InputText(SchemaPart, frozen=True):
    """An input with what it is called."""

    #: `"step"`, `"step/file"`, a URL, or a path below the project's folder.
    source: str = msgspec.field(name="from")
    #: What it is called below the folder of the job.
    name: str = msgspec.field(name="as", default="")
    sha256: str = ""


#: Keys that make a recipe; `command` is brought to that of a rule first.
_RECIPE = (
    "run", "script", "interpreter", "args", "python", "function", "notebook", "kernel", "output",
    "app", "python_bin",
)  # fmt: skip
_KINDS = ("run", "command", "script", "python", "notebook", "app")
#: Those of them that name a file beside the workflow, unless they are the text of one.
_FILES = ("script", "python", "notebook")
_SHA256 = re.compile("[0-9a-f]{64}")


class NestedReader(Protocol):
    """Reads flows within steps."""

    base: Path | None
    recipes: bool

    def within(self, name: str, found: str | dict[str, Any], given: Mapping[str, Any]) -> Flow:
        """Read a flow that is a step."""
        ...


def step(name: str, data: dict[str, Any], known: Collection[str], reader: NestedReader) -> Step:
    """Read a step; the names of all steps of its flow are known."""
    meant = data.get("on_failure")
    if isinstance(meant, str) and meant not in get_args(OnFailure):
        with key("on_failure"):
            raise errors.BadFlow(
                f"this cannot be {meant!r}", hint=closest(meant, get_args(OnFailure))
            )
    written = convert(data, StepText)
    inner = None
    if written.flow is not None:
        with key("flow"):
            inner = reader.within(name, written.flow, written.parameters)
    outputs = texts(written.outputs)
    if written.result and not {written.result, ""} & set(outputs):
        outputs = (*outputs, written.result)
    return Step(
        needs=texts(written.needs),
        sites=_sites(written),
        requirements=written.requirements,
        application=written.application,
        recipe=_recipe(written, reader),
        flow=inner,
        parameters=written.parameters,
        config=written.config,
        config_file=written.config_file,
        env={name: str(value) for name, value in written.env.items()},
        each=written.each,
        when=written.when,
        inputs=_inputs(written, known),
        outputs=outputs,
        result=written.result,
        on_failure=written.on_failure,
        retries=written.retries,
        delay=_seconds("delay", written.delay),
        limit=limit(written.limit),
        nodes=_nodes(written),
        tasks=written.tasks,
        time=_time(written.time),
        work=round(_seconds("work", written.work)),
        cpus=written.cpus,
        memory=_size("memory", written.memory),
        gpus=written.gpus,
        disk=_size("disk", written.disk),
        queue=written.queue,
        project=written.project,
        options=texts(written.options),
    )


def _sites(written: StepText) -> tuple[str, ...]:
    if written.site is not None and written.sites is not None:
        with key("sites"):
            raise errors.BadFlow("there is a `site` already", hint="give one of the two")
    return texts(written.sites if written.site is None else written.site)


def _recipe(written: StepText, reader: NestedReader) -> dict[str, Any]:
    given = [name for name in _KINDS if getattr(written, name) is not None]
    if not given:
        return {}
    if not reader.recipes:
        with key(given[0]):
            raise errors.BadFlow(
                "a workflow from elsewhere runs applications alone, no programs of its own",
                hint="name an `application` of a site",
            )
    facts = {name: getattr(written, name) for name in _RECIPE}
    if written.command is not None:
        if written.run is not None:
            with key("command"):
                raise errors.BadFlow("there is a `run` already", hint="give one of the two")
        facts["run"] = written.command
    beside = getattr(written, given[0])
    if reader.base is None and given[0] in _FILES and "\n" not in beside:
        with key(given[0]):
            raise errors.BadFlow("there is no file here", hint="submit the workflow from a file")
    built = recipe(RecipeText(**facts), str(reader.base or "."))
    found: dict[str, Any] = text.load(text.dump(built))
    return found


def _inputs(written: StepText, known: Collection[str]) -> tuple[Take, ...]:
    with key("inputs"):
        found = (written.inputs,) if isinstance(written.inputs, str) else written.inputs
        return tuple(_input(one, known) for one in found)


def _input(written: str | dict[str, str], known: Collection[str]) -> Take:
    if isinstance(written, str):
        return _take(written, known, "", "")
    names = ("from", "as", "sha256")
    for name in written:
        if name not in names:
            raise errors.BadFlow(f"there is no key {name!r}", hint=closest(name, names))
    if "from" not in written:
        raise errors.BadFlow("`from` is missing", hint='write { from = "step/file", as = "name" }')
    table = msgspec.convert(written, InputText)
    digest = table.sha256.lower()
    if digest and not _SHA256.fullmatch(digest):
        message = f"{table.sha256[:80]!r} is no SHA-256"
        raise errors.BadFlow(
            message, hint="64 digits and letters `a` to `f`, as `sha256sum` has it"
        )
    return _take(table.source, known, table.name, digest)


def _take(source: str, known: Collection[str], path: str, sha256: str) -> Take:
    head, slash, output = source.partition("/")
    if head in known:
        return Take(step=head, output=output, path=path, sha256=sha256)
    if not source or (not slash and "." not in source and "{" not in source):
        message = f"there is no step `{source}`"
        raise errors.BadFlow(message, hint=closest(source, known))
    return Take(url=source, path=path, sha256=sha256)


def _nodes(written: StepText) -> IntRange:
    found = written.nodes
    return IntRange(found, found) if isinstance(found, int) else IntRange(*found)


def _time(written: Extent) -> IntRange:
    least, most = written if isinstance(written, tuple) else (written, written)
    return IntRange(round(_seconds("time", least)), round(_seconds("time", most)))


def _seconds(name: str, value: Amount) -> float:
    with key(name):
        return units.seconds(value)


def _size(name: str, value: Amount) -> int:
    with key(name):
        return units.size(value)
