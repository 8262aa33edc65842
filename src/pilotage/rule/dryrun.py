"""Dry run: the verdict of every rule on an event, and the jobs that it would make."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pilotage.base import errors
from pilotage.event.model import Event
from pilotage.job import template
from pilotage.job.model import (
    App,
    Binding,
    Call,
    Command,
    JobSpec,
    Notebook,
    Python,
    Recipe,
    Script,
    Workflow,
)
from pilotage.rule import firing
from pilotage.rule.model import FilePattern, Rule
from pilotage.rule.verdict import RuleVerdict, judge

#: Jobs of one rule that are shown in full; the rest are counted.
MOST_SHOWN = 100


class PlannedJob(msgspec.Struct, frozen=True):
    """A job that would be made."""

    #: The point of the sweep.
    sweep: dict[str, Any]
    #: Program and arguments, as far as they are known before there is a job.
    argv: tuple[str, ...]
    #: What the recipe would receive.
    params: dict[str, Any]
    #: Files that would have to exist afterwards.
    outputs: dict[str, str]
    #: Files that it could write besides.
    optional_outputs: dict[str, str] = {}
    #: The key of its limit.
    limit: str = ""


class Trial(msgspec.Struct, frozen=True):
    """The result of one rule for the event."""

    #: The rule.
    rule: str
    #: Whether it fires, and why not.
    verdict: RuleVerdict
    #: How many jobs it would make; and what they are: jobs, or flows.
    count: int = 0
    what: str = "job"
    #: The first of them.
    jobs: tuple[PlannedJob, ...] = ()
    #: What else is worth knowing: that a set is waited for, or that a template cannot be filled.
    note: str = ""


class Report(msgspec.Struct, frozen=True):
    """The results of all rules for the event."""

    #: The event.
    event: Event
    #: Those that fire first.
    trials: tuple[Trial, ...]


def dry_run(rules: Iterable[Rule], event: Event, now: float, base: str = "/") -> Report:
    """Judge every rule and plan the jobs of those that fire; nothing is stored or started."""
    trials = [_trial(rule, event, now, base) for rule in rules]
    return Report(event, tuple(sorted(trials, key=lambda trial: not trial.verdict.fires)))


def _trial(rule: Rule, event: Event, now: float, base: str) -> Trial:
    verdict = judge(rule, event, now)
    if not verdict.fires:
        return Trial(rule.name, verdict)
    start = rule.pattern.base if isinstance(rule.pattern, FilePattern) else base
    try:
        jobs = tuple(
            _plan(rule.spec, firing.binding(event, verdict.groups, point), start)
            for point in rule.points[:MOST_SHOWN]
        )
    except errors.BadRule as error:
        return Trial(rule.name, verdict, note=f"{error.message}; {error.hint}")
    what = "flow" if isinstance(rule.spec.recipe, Workflow) else "job"
    return Trial(rule.name, verdict, len(rule.points), what, jobs, _note(rule.pattern, jobs))


def _note(pattern: object, jobs: tuple[PlannedJob, ...]) -> str:
    if not isinstance(pattern, FilePattern) or not jobs:
        return ""
    notes = []
    if pattern.gather:
        size = pattern.gather.count or len(pattern.gather.values)
        notes.append(f"made when all {size} files of the set are there")
    if pattern.settle:
        notes.append(f"made when the file has been still for {pattern.settle:g} s")
    return "; ".join(notes)


def _plan(spec: JobSpec, binding: Binding, base: str) -> PlannedJob:
    base = spec.base or base
    known = template.keywords(binding, base) | {"job": "<job>"}
    params = template.parameters(spec, binding, known)
    values = known | params
    return PlannedJob(
        sweep=binding.sweep,
        argv=tuple(_argv(spec.recipe, values, params)),
        params=params,
        outputs=_places(spec.outputs, values, base),
        optional_outputs=_places(spec.optional_outputs, values, base),
        limit=template.render(spec.limit.key, values) if spec.limit else "",
    )


def _places(outputs: dict[str, str], values: dict[str, Any], base: str) -> dict[str, str]:
    return {name: template.place(path, values, base) for name, path in outputs.items()}


def _argv(recipe: Recipe, values: dict[str, Any], params: dict[str, Any]) -> list[str]:
    match recipe:
        case Command(argv=argv):
            return template.argv(argv, values)
        case Script():
            shell = recipe.interpreter or ("bash",)
            return [*shell, recipe.file or "<script>", *template.argv(recipe.args, values)]
        case Python() | Call():
            function = f":{recipe.function}" if recipe.function else ""
            return [recipe.python or "python", (recipe.file or "<source>") + function]
        case Notebook():
            output = template.render(recipe.output, values) or "<job>/result.ipynb"
            return ["papermill", recipe.file or "<notebook>", output]
        case App():
            return [recipe.app, *template.argv(recipe.args, values)]
        case Workflow():
            given = ((name, template.write(value)) for name, value in params.items())
            options = (word for name, value in given for word in ("--param", f"{name}={value}"))
            return ["pilotage", "flow", "submit", recipe.file, *options]
