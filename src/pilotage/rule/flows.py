"""Workflows that rules start: read and checked when the rule is, so that mistakes are told then."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from pilotage.base import errors, toml
from pilotage.base.names import closest
from pilotage.job.model import Workflow
from pilotage.rule import trigger
from pilotage.rule.model import Rule

#: Reads the file of a workflow: returns its definition as plain values, with all parameters, and
#: adds the files of workflows that it names to the set.
FlowReader: TypeAlias = Callable[[str, set[str]], dict[str, Any]]

_STEPS = re.compile(r"^\s*\[step[.\]]", re.MULTILINE)
_RULES = re.compile(r"^\s*\[(rule|recipe)[.\]]", re.MULTILINE)


def is_workflow(file: Path) -> bool:
    """Say whether a file in the folder of rules is a workflow that rules name, and no book."""
    if file.suffix != ".toml":
        return False
    try:
        source = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    if "step" not in source:
        return False
    try:
        found = tomllib.loads(source)
    except tomllib.TOMLDecodeError:
        # A mistake in a workflow is told with the rule that names it, and not as one of a book.
        return bool(_STEPS.search(source)) and not _RULES.search(source)
    return "step" in found and found.keys().isdisjoint({"rule", "recipe"})


def complete(rule: Rule, source: str, read_flow: FlowReader) -> Rule:
    """Put the definition of its workflow into a rule; `source` is the text of a TOML book.

    Raise `BadRule` with the place of what is wrong: in the workflow, or in the rule.
    """
    recipe = rule.spec.recipe
    if not isinstance(recipe, Workflow) or recipe.flow:
        return rule
    found = {recipe.file}
    try:
        flow = read_flow(recipe.file, found)
    except OSError as error:
        raise _wrong(rule, source, "flow", f"cannot be read: {error.strerror}") from None
    _check_parameters(rule, flow.get("params", {}), source)
    whole = msgspec.structs.replace(recipe, flow=flow, files=tuple(sorted(found)))
    spec = msgspec.structs.replace(rule.spec, recipe=whole)
    return msgspec.structs.replace(rule, spec=spec)


def _check_parameters(rule: Rule, params: dict[str, object], source: str) -> None:
    """Refuse parameters that the workflow does not have, and those that would have no value."""
    for name in rule.spec.params:
        if name not in params:
            message = f"the flow has no parameter `{name}`"
            raise _wrong(rule, source, f"params.{name}", message, closest(name, params))
    given = {*rule.spec.params, *trigger.groups(rule.pattern), *rule.points[0]}
    for name, usual in params.items():
        if usual is None and name not in given:
            message = f"the parameter `{name}` of the flow has no value"
            hint = f"write it among the `params` of the rule: `{name} = …`"
            raise _wrong(rule, source, "flow", message, hint)


def _wrong(rule: Rule, source: str, at: str, message: str, hint: str = "") -> errors.BadRule:
    path = ["rule", rule.name, *at.split(".")]
    line = toml.line_of(source, path) if source else None
    return errors.BadRule(
        message, hint=hint, file=rule.book, line=line or rule.line, at=".".join(path)
    )
