"""Validation of workflows before they run, and the dependencies that they imply."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.base.names import closest
from pilotage.data.transfer import url
from pilotage.edge.handoff import Take
from pilotage.flow import graph, template
from pilotage.flow.model import Flow, Step
from pilotage.job.model import Limit
from pilotage.match.expr import parse
from pilotage.rule.span import key

#: The deepest nesting of flows.
DEEPEST = 8
#: The most steps of a flow, with those of flows within it.
MOST_STEPS = 50_000
#: The most items of a step.
MOST_ITEMS = 100_000
#: The longest name, key or tag of a flow.
LONGEST = 200
_NAME = re.compile(r"\w[\w-]{0,99}")
_OF_STEP = ("result", "state")
_NO_STEP = Step()
#: Keys of a step whose texts are templates throughout.
_TEMPLATES = (
    "sites", "application", "parameters", "config", "env", "each", "outputs", "result", "queue",
    "project", "options",
)  # fmt: skip


def complete(flow: Flow) -> Flow:
    """Return a flow in which each step needs all steps whose data, result or state it names."""
    steps = {}
    for name, step in flow.steps.items():
        with key("step", name):
            steps[name] = _needs(flow, step)
    return msgspec.structs.replace(flow, steps=steps)


def _needs(flow: Flow, step: Step) -> Step:
    found = dict.fromkeys(step.needs)
    found.update(dict.fromkeys(take.step for take in step.inputs if take.step))
    for _, word in names(step):
        first, _, rest = word.partition(".")
        if rest.partition(".")[0] in _OF_STEP and first in flow.steps:
            found[first] = None
    needs = tuple(found)
    with key("flow"):
        inner = None if step.flow is None else complete(step.flow)
    if needs == step.needs and inner is step.flow:
        return step
    return msgspec.structs.replace(step, needs=needs, flow=inner)


def names(step: Step) -> Iterator[tuple[str, str]]:
    """Yield all names that the templates of a step use, each with the key that it stands in."""
    for part in _TEMPLATES:
        with key(part):
            yield from ((part, name) for name in template.names(getattr(step, part)))
    with key("limit"):
        found = template.names(step.limit.key if step.limit else "")
        yield from (("limit", name) for name in found)
    argv = [step.recipe.get("argv", ()), step.recipe.get("args", ())]
    with key("run"):
        yield from (("run", name) for name in template.names(argv))
    reads = [(take.url, take.output, take.path) for take in step.inputs]
    with key("inputs"):
        yield from (("inputs", name) for name in template.names(reads))
    if step.when:
        with key("when"):
            yield from (("when", name) for name in template.condition_names(step.when))


def check(flow: Flow, *, depth: int = 0) -> None:
    """Refuse an invalid flow; it is complete."""
    if depth > DEEPEST:
        raise errors.BadFlow(f"flows are nested more than {DEEPEST} deep")
    if not flow.steps:
        raise errors.BadFlow("the flow has no steps", hint="write `[step.NAME]`")
    if len(flow.steps) > MOST_STEPS:
        message = f"the flow has {len(flow.steps)} steps"
        raise errors.BadFlow(message, hint=f"at most {MOST_STEPS}; `each` makes many tasks of one")
    _top(flow)
    for name in flow.params.keys() & template.WORDS:
        with key("params", name):
            message = f"`{name}` is reserved in templates"
            raise errors.BadFlow(message, hint="rename the parameter")
    for name, step in flow.steps.items():
        with key("step", name):
            _step(flow, name, step)
            if step.flow is not None:
                with key("flow"):
                    check(step.flow, depth=depth + 1)
    for name, what in flow.outputs.items():
        with key("outputs", name):
            _known(flow, what.partition("/")[0])
    circle = graph.cycle({name: step.needs for name, step in flow.steps.items()})
    if circle:
        path = " → ".join(f"`{name}`" for name in circle)
        message = f"these steps wait for each other in a circle: {path}"
        raise errors.BadFlow(message, hint=f"take one of them out of the `needs` of `{circle[1]}`")


def _top(flow: Flow) -> None:
    if not flow.name:
        raise errors.BadFlow("the flow has no name", hint='write `name = "..."`')
    with key("name"):
        if len(flow.name) > LONGEST or not flow.name.isprintable():
            message = f"{flow.name[:40]!r} cannot name a flow"
            raise errors.BadFlow(message, hint=f"at most {LONGEST} printable characters")
    with key("retries"):
        if flow.retries < 0:
            raise errors.BadFlow(f"{flow.retries} is too small", hint="0 means none")
    with key("to"):
        # It is used last: a mistake would be found only after all the work.
        for word in template.names(flow.to):
            _word(flow, _NO_STEP, "to", word)
        if "://" in flow.to and "{" not in flow.to:
            url.parse(flow.to)


def length(items: list[Any]) -> None:
    """Refuse a list that is too long."""
    if len(items) > MOST_ITEMS:
        message = f"`each` has {len(items)} items; the limit is {MOST_ITEMS}"
        raise errors.BadFlow(message, hint="let a task handle several items")


def named(step: Step) -> None:
    """Refuse invalid sites, and names of files outside of the folder of a task."""
    for site in step.sites:
        if not site.isprintable() or len(site) > LONGEST:
            with key("sites"):
                raise errors.BadFlow(f"{site[:60]!r} cannot name a site")
    for part, found in (
        ("outputs", step.outputs),
        ("result", (step.result,)),
        ("config_file", (step.config_file,)),
        ("inputs", [take.path for take in step.inputs]),
        ("inputs", [take.output for take in step.inputs]),
    ):
        for name in found:
            if name.startswith("/") or ".." in name.split("/") or not name.isprintable():
                with key(part):
                    message = f"{name[:60]!r} is no name of a file below the folder of a task"
                    raise errors.BadFlow(message, hint="write it without `..` and a first `/`")


def _step(flow: Flow, name: str, step: Step) -> None:
    if not _NAME.fullmatch(name) or name in template.WORDS:
        raise errors.BadFlow(
            f"{name!r} cannot name a step",
            hint="use letters, digits, `_` and `-`; "
            f"{', '.join(sorted(template.WORDS))} mean something else in templates",
        )
    if name in flow.params:
        raise errors.BadFlow(f"`{name}` is both a step and a parameter", hint="rename one of them")
    given = [bool(step.application), bool(step.recipe), step.flow is not None]
    if sum(given) != 1:
        told = "nothing" if not any(given) else "more than one of them"
        raise errors.BadFlow(
            f"a step runs an application, a recipe or a flow; here it is {told}",
            hint="give exactly one of `application`, `run`, `script`, `python`, `flow`",
        )
    if step.requirements:
        with key("requirements"):
            parse(step.requirements)
    with key("needs"):
        for before in step.needs:
            _known(flow, before)
    with key("inputs"):
        _inputs(flow, step)
    _bounds(step)
    named(step)
    with key("each"):
        if isinstance(step.each, list):
            length(step.each)
        elif step.each is not None and not next(template.names(step.each), ""):
            message = f"{step.each[:60]!r} is no list"
            raise errors.BadFlow(message, hint='write `["a", "b"]`, or "{STEP.result}"')
    for part, word in names(step):
        with key(part):
            _word(flow, step, part, word)


def _inputs(flow: Flow, step: Step) -> None:
    if step.inputs and step.flow is not None:
        raise errors.BadFlow(
            "steps of a nested flow cannot read files outside of it",
            hint="pass results by `parameters`, and wait for steps by `needs`",
        )
    for take in step.inputs:
        _take(flow, take)


def _take(flow: Flow, take: Take) -> None:
    if bool(take.step) == bool(take.url):
        raise errors.BadFlow("an input is of a step or a URL", hint='write "STEP/FILE" or a URL')
    source = flow.steps.get(take.step)
    if source is None or not take.output or "{" in take.output:
        return
    if source.flow is not None:
        if take.output not in source.flow.outputs:
            message = f"the flow `{take.step}` has no output `{take.output}`"
            raise errors.BadFlow(message, hint=closest(take.output, source.flow.outputs))
    elif not _left_by(source, take.output):
        message = f"the step `{take.step}` has no output `{take.output}`"
        hint = (
            closest(take.output, source.outputs) if source.outputs else "name it in its `outputs`"
        )
        raise errors.BadFlow(message, hint=hint)


def _left_by(step: Step, output: str) -> bool:
    """Return whether an output is one that a step names, or is in a folder that it names."""
    return any(
        one in ("", output, f"{output}/")
        or "{" in one
        or (one[-1] == "/" and output.startswith(one))
        for one in (*step.outputs, step.result or "/")
    )


def _bounds(step: Step) -> None:
    for name in ("nodes", "time"):
        span = getattr(step, name)
        with key(name):
            if not 0 <= span.least <= span.most or (name == "nodes" and span.least < 1):
                raise errors.BadFlow(
                    f"{span.least} to {span.most} is no range", hint="the least comes first"
                )
    if step.limit is not None:
        with key("limit"):
            _limit(step, step.limit)
    for name in ("retries", "delay", "work", "memory", "gpus", "disk", "cpus", "tasks"):
        with key(name):
            if getattr(step, name) < (name in ("cpus", "tasks")):
                raise errors.BadFlow(f"{getattr(step, name)} is too small")


def _limit(step: Step, limit: Limit) -> None:
    if step.flow is not None:
        raise errors.BadFlow("a nested flow is not a job", hint="give `limit` to its steps")
    if limit.most < 1:
        raise errors.BadFlow(f"{limit.most} is too small", hint="the least is 1")


def _word(flow: Flow, step: Step, part: str, word: str) -> None:
    first, _, rest = word.partition(".")
    if part in ("when", "each", "to") and first in ("item", "index", "attempt"):
        message = f"`{word}` is not known there: `{part}` is evaluated once, not for each task"
        raise errors.BadFlow(message, hint="let an earlier step produce the list as its result")
    if first in ("flow", "attempt", "index"):
        return
    if first == "item":
        if step.each is None:
            raise errors.BadFlow(f"`{{{word}}}` without `each`", hint="a list gives the items")
    elif first == "params":
        if rest and rest.partition(".")[0] not in flow.params:
            message = f"there is no parameter `{rest}`"
            raise errors.BadFlow(message, hint=closest(rest, flow.params))
    elif first not in flow.params and not (
        first in flow.steps and rest.partition(".")[0] in _OF_STEP
    ):
        known = [*flow.params, *template.WORDS, *(f"{name}.result" for name in flow.steps)]
        raise errors.BadFlow(f"`{{{word}}}` stands for nothing", hint=closest(word, known[:200]))


def _known(flow: Flow, name: str) -> None:
    if name not in flow.steps:
        raise errors.BadFlow(f"there is no step `{name}`", hint=closest(name, flow.steps))
