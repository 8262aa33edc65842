"""From what a person wrote of a step to the step."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Protocol, get_args

import msgspec

from pilotage.base import errors, text, units
from pilotage.base.names import closest
from pilotage.edge.handoff import Take
from pilotage.flow.model import Flow, OnFailure, Span, Step
from pilotage.flow.schema import Extent, InputText, StepText
from pilotage.rule.build import limit
from pilotage.rule.draft import convert
from pilotage.rule.recipe import recipe
from pilotage.rule.schema import Amount, RecipeText
from pilotage.rule.span import key
from pilotage.rule.trigger import texts

#: Keys that make a recipe; `command` is brought to that of a rule first.
_RECIPE = (
    "run", "script", "interpreter", "args", "python", "function", "notebook", "kernel", "output",
    "app", "python_bin",
)  # fmt: skip
_KINDS = ("run", "command", "script", "python", "notebook", "app")
#: Those of them that name a file beside the workflow, unless they are the text of one.
_FILES = ("script", "python", "notebook")
_SHA256 = re.compile("[0-9a-f]{64}")


class Reader(Protocol):
    """What reads flows within steps."""

    base: Path | None
    recipes: bool

    def within(self, name: str, found: str | dict[str, Any], given: Mapping[str, Any]) -> Flow:
        """Read a flow that is a step."""
        ...


def step(name: str, data: dict[str, Any], known: Collection[str], reader: Reader) -> Step:
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


def _recipe(written: StepText, reader: Reader) -> dict[str, Any]:
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


def _nodes(written: StepText) -> Span:
    found = written.nodes
    return Span(found, found) if isinstance(found, int) else Span(*found)


def _time(written: Extent) -> Span:
    least, most = written if isinstance(written, tuple) else (written, written)
    return Span(round(_seconds("time", least)), round(_seconds("time", most)))


def _seconds(name: str, value: Amount) -> float:
    with key(name):
        return units.seconds(value)


def _size(name: str, value: Amount) -> int:
    with key(name):
        return units.size(value)
