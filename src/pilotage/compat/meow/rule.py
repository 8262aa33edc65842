"""Convert a pattern and a recipe of MEOW to a rule."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from typing import Any

import msgspec

from pilotage.base import text
from pilotage.compat.meow import check
from pilotage.compat.meow import pattern as patterns
from pilotage.compat.meow.pattern import (
    FILE_RETROACTIVE_EVENT,
    FileEventPattern,
    Pattern,
    SocketPattern,
)
from pilotage.compat.meow.recipe import Recipe
from pilotage.job import template
from pilotage.job.model import JobSpec, Limit
from pilotage.rule import model

#: What stands for what in parameters and outputs.
KEYWORDS = {
    "{PATH}": "{path}",
    "{REL_PATH}": "{rel}",
    "{DIR}": "{dir}",
    "{REL_DIR}": "{rel_dir}",
    "{FILENAME}": "{name}",
    "{PREFIX}": "{stem}",
    "{EXTENSION}": "{suffix}",
    "{BASE}": "{base}",
    "{JOB}": "job_{job}",
}
_PIECE = re.compile("|".join([*map(re.escape, KEYWORDS), "[{}]"]))
#: What a path that begins with one of these starts from is known.
_ABSOLUTE = ("/", "{path}", "{dir}", "{base}")
_FACTS = "MEOW_RULE"


@dataclass
class Rule:
    """A pattern whose recipe is there."""

    pattern: Pattern
    recipe: Recipe
    name: str = field(init=False)

    def __post_init__(self) -> None:
        """Refuse two that do not belong together."""
        if self.pattern.recipe != self.recipe.name:
            raise ValueError(f"pattern {self.pattern.name!r} does not name {self.recipe.name!r}")
        self.name = f"rule_{self.pattern.name}"


class MeowFacts(msgspec.Struct, frozen=True):
    """What a job carries for people and for its recipe, as JSON in `MEOW_RULE`."""

    pattern: str
    recipe: str
    rule: str
    job_type: str
    monitor_base: str
    requirements: dict[str, Any] = {}
    notification: dict[str, Any] = {}


class MeowContext(msgspec.Struct, frozen=True):
    """What a rule of MEOW knows from the monitor and the runner that it is in."""

    #: What tells rules of the same name in two monitors apart.
    label: str
    #: Absolute path of the base of the monitor.
    base: str
    #: The directory that jobs run in, as MEOW ran them in its own.
    cwd: str
    #: How long a file must be left alone.
    settle: float = 0.0
    #: How many such jobs may run at once, where other kinds could take all places.
    limit: Limit | None = None


def build(rule: Rule, place: MeowContext) -> model.Rule:
    """Make a rule of ours."""
    described = rule.pattern
    swept = described.sweep.keys()
    points = tuple(
        {_alias(name): value for name, value in point.items()}
        for point in patterns.points(described.sweep)
    )
    given = {**described.parameters, **described.outputs, described.variable: "{PATH}"}
    params = {name: _fill(value) for name, value in given.items()}
    params |= {name: f"{{{_alias(name)}}}" for name in swept if _alias(name) != name}
    spec = JobSpec(
        recipe=rule.recipe.payload(params.keys() | swept),
        name=described.name,
        params=params,
        optional_outputs={name: _output(path, place) for name, path in described.outputs.items()},
        env={_FACTS: _escape(text.dump(_facts(rule, place)))},
        cwd=_escape(place.cwd),
        base=place.base,
        limit=place.limit,
    )
    pattern = _pattern(described, place)
    return model.Rule(
        name=f"{place.label}/{described.name}{_version(described, spec, points)}",
        pattern=pattern,
        spec=spec,
        points=points,
        sha256=isinstance(pattern, model.FilePattern),
    )


def facts(spec: JobSpec) -> MeowFacts:
    """Read what a job carries."""
    return msgspec.convert(text.load(template.render(spec.env[_FACTS], {})), MeowFacts)


def _facts(rule: Rule, place: MeowContext) -> MeowFacts:
    return MeowFacts(
        pattern=rule.pattern.name,
        recipe=rule.recipe.name,
        rule=rule.name,
        job_type=rule.recipe.job_type,
        monitor_base=place.base,
        requirements=rule.recipe.requirements,
        notification=rule.pattern.notifications,
    )


def _pattern(described: Pattern, place: MeowContext) -> model.Pattern:
    if isinstance(described, FileEventPattern):
        return model.FilePattern(
            globs=(patterns.glob_below(place.base, described.triggering_path),),
            base=place.base,
            events=patterns.kinds(described.event_mask),
            settle=place.settle,
        )
    port = check.kind(described, SocketPattern, "pattern").triggering_port
    return model.MessagePattern(topics=(f"meow.port-{port}",), port=port)


def _version(described: Pattern, spec: JobSpec, points: tuple[dict[str, Any], ...]) -> str:
    """Let a rule that changes be another one where it applies to what exists, as in MEOW.

    Elsewhere the name stays, and with it the files that wait to settle.
    """
    if (
        not isinstance(described, FileEventPattern)
        or FILE_RETROACTIVE_EVENT not in described.event_mask
    ):
        return ""
    said = [described.triggering_path, described.event_mask, spec.recipe, spec.params, points]
    return "@" + hashlib.blake2b(text.dump(said).encode(), digest_size=4).hexdigest()


def _alias(variable: str) -> str:
    """Name a swept variable so that it does not hide one of our keywords."""
    return f"swept_{variable}" if variable in template.KEYWORDS else variable


def _fill(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Write a parameter as a template; only texts by themselves have keywords."""
    if isinstance(value, str):
        return _PIECE.sub(lambda found: KEYWORDS.get(found[0], 2 * found[0]), value)
    return _escape(value)


def _escape(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Write a value as a template without keywords."""
    if isinstance(value, str):
        return value.replace("{", "{{").replace("}", "}}")
    if isinstance(value, dict):
        return {key: _escape(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escape(inner) for inner in value]
    return value


def _output(path: str, place: MeowContext) -> str:
    """Write the path of an output, which starts where jobs run, as a template."""
    filled = str(_fill(path))
    return filled if filled.startswith(_ABSOLUTE) else f"{_escape(place.cwd)}/{filled}"
