"""A rule or recipe as written, before its recipe is looked up."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, TypeVar, get_args

import msgspec

from pilotage.base import errors, names
from pilotage.job import template
from pilotage.job.model import Data, Launcher, OnChange
from pilotage.rule import build
from pilotage.rule.model import Rule
from pilotage.rule.schema import (
    RECIPES,
    WAYS,
    BatchText,
    GatherText,
    LimitText,
    RecipeText,
    RetryText,
    RuleText,
    SchemaPart,
)
from pilotage.rule.span import SourceSpan, key, table
from pilotage.rule.sweep import Mode
from pilotage.rule.trigger import FINAL

_T = TypeVar("_T", bound=SchemaPart)

_TABLES: dict[str, type[SchemaPart]] = {
    "retry": RetryText,
    "limit": LimitText,
    "gather": GatherText,
    "batch": BatchText,
    "slurm": BatchText,
}
_MERGED = ("params", "outputs", "optional_outputs", "env")
_TEMPLATES = (
    "run", "args", "output", "params", "outputs", "optional_outputs", "env", "cwd", "inputs",
)  # fmt: skip
_CHOICES = {
    "on_change": get_args(OnChange),
    "catch_up": ("none", "one", "all"),
    "version": ("stat", "content"),
    "sweep_mode": get_args(Mode),
    "states": FINAL,
    "via": tuple(WAYS),
    "data": get_args(Data),
    "batch.launcher": get_args(Launcher)[1:],
    "slurm.launcher": get_args(Launcher)[1:],
}
_WORDS = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}


class Draft(msgspec.Struct, frozen=True):
    """One rule or recipe as written in a rule file."""

    #: Its name.
    name: str
    #: Where it stands.
    place: SourceSpan
    #: Its keys and values.
    data: dict[str, Any]
    #: The directory that paths of files to wait for start from.
    base: str
    #: The directory that scripts are looked for in.
    folder: str


def check_recipe(draft: Draft) -> None:
    """Complain of what is wrong with a recipe whatever rule uses it."""
    with table(draft.place):
        names.check_entity(draft.name)
        written = convert(draft.data, RecipeText)
        build.job(draft.name, written, draft.folder, draft.base)
        for name in _TEMPLATES:
            with key(name):
                _check_syntax(getattr(written, name))


def recipe_of(draft: Draft) -> str:
    """Return the name of the recipe that a rule asks for, or nothing if it has its own."""
    with table(draft.place):
        names.check_entity(draft.name)
        written = convert(draft.data, RuleText)
        if written.recipe is None:
            return ""
        for name in RECIPES:
            if getattr(written, name) is not None:
                with key(name):
                    raise errors.BadRule(f"the rule has a `recipe` already: {written.recipe!r}")
        return written.recipe


def rule_of(draft: Draft, asked: Draft | None = None) -> Rule:
    """Build a rule; the keys of its recipe are those that it does not set itself."""
    theirs, ours = _named(asked.data) if asked else {}, _named(draft.data)
    merged = {**theirs, **ours}
    for name in _MERGED:
        if name in theirs and isinstance(ours.get(name), dict):
            merged[name] = {**theirs[name], **ours[name]}
    elsewhere = {name: asked.place for name in theirs if name not in ours} if asked else {}
    folder = asked.folder if asked else draft.folder
    with table(draft.place, elsewhere):
        written = convert(merged, RuleText)
        return build.rule(draft.name, written, draft.place, draft.base, folder)


def _named(data: Mapping[str, Any]) -> dict[str, Any]:
    """Call by its own name what is meant by `run = "sbatch"`: how to run, not what."""
    run = data.get("run")
    if not isinstance(run, str) or run not in WAYS:
        return dict(data)
    return {"via": run, **{name: value for name, value in data.items() if name != "run"}}


def convert(data: Mapping[str, Any], kind: type[_T]) -> _T:
    """Check the keys and types of a table."""
    try:
        clean = {name: _plain(value, name) for name, value in _named(data).items()}
    except RecursionError:
        raise errors.BadRule("this is nested too deeply") from None
    _check_keys(clean, kind)
    for name, part in _TABLES.items():
        if isinstance(clean.get(name), dict):
            with key(name):
                _check_keys(clean[name], part)
    try:
        return msgspec.convert(clean, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from None


def _check_keys(data: Mapping[str, Any], kind: type[SchemaPart]) -> None:
    known = kind.__struct_fields__
    for name in data:
        if name not in known:
            with key(name):
                raise errors.BadRule(f"there is no key {name!r}", hint=names.closest(name, known))


def _explain(message: str) -> errors.BadRule:
    """Rephrase an error of msgspec in plain words."""
    what, _, where = message.partition(" - at `$")
    at = re.sub(r"\[.*?\]", "", where.rstrip("`")).strip(".")
    missing = re.fullmatch(r"Object missing required field `(\w+)`", what)
    if missing:
        return errors.BadRule(f"`{missing[1]}` is missing", at=at)
    types = re.fullmatch(r"Expected `(.*?)`, got `(.*?)`", what)
    if types:
        wanted = [_WORDS.get(name, name) for name in types[1].split(" | ") if name != "null"]
        got = _WORDS.get(types[2], types[2])
        hint = 'write a list: `run = ["prog", "{path}"]`' if at == "run" else ""
        return errors.BadRule(f"this is {got}, not {' or '.join(wanted)}", hint=hint, at=at)
    choice = re.fullmatch(r"Invalid enum value '(.*)'", what, re.DOTALL)
    if choice and at in _CHOICES:
        hint = names.closest(choice[1], _CHOICES[at])
        return errors.BadRule(f"this cannot be {choice[1]!r}", hint=hint, at=at)
    return errors.BadRule(what[:1].lower() + what[1:], at=at)


def _plain(value: Any, at: str) -> Any:  # noqa: ANN401 - what a person wrote
    """Reduce a value to what JSON can hold, or say what cannot be."""
    if isinstance(value, Mapping):
        for name in value:
            if not isinstance(name, str):
                raise errors.BadRule(f"{name!r} is not text and cannot be a key", at=at)
        return {name: _plain(inner, f"{at}.{name}") for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner, at) for inner in value]
    return _leaf(value, at)


def _leaf(value: Any, at: str) -> Any:  # noqa: ANN401 - what a person wrote
    match value:
        case bool() | None:
            return value
        case str() | PurePath():
            return str(value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case int() if -(2**63) <= value < 2**63:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case _:
            shown = repr(value)[:60]
            raise errors.BadRule(f"{shown} is not a value that a job can carry", at=at)


def _check_syntax(value: object) -> None:
    """Complain of templates that cannot be read; which keywords there are is not known yet."""
    if isinstance(value, str):
        template.names(value)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_syntax(inner)
    elif isinstance(value, dict):
        _check_syntax(list(value.values()))
