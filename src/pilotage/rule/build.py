"""Build a `Rule` and its job definition from their keys in a rule file."""

from __future__ import annotations

from typing import Any

import msgspec

from pilotage.base import errors, names, units
from pilotage.base.text import dump
from pilotage.job import template
from pilotage.job.model import Allocation, JobSpec, Limit, Resources, Retry, Workflow
from pilotage.match import submission
from pilotage.rule import recipe, sweep, trigger
from pilotage.rule.model import (
    FilePattern,
    JobPattern,
    MessagePattern,
    Pattern,
    Rate,
    Rule,
    TimerPattern,
)
from pilotage.rule.schema import WAYS, LimitText, RecipeText, RetryText, RuleText
from pilotage.rule.span import SourceSpan, key

_EVERYWHERE = frozenset({"base", "job"})
_OF_FILES = frozenset({"path", "name", "stem", "suffix", "dir", "rel", "rel_dir", "paths"})
_LARGEST = 2**63 - 1


def rule(name: str, written: RuleText, place: SourceSpan, base: str, folder: str) -> Rule:
    """Build a rule whose recipe's keys have been merged into it."""
    pattern = trigger.pattern(written, base)
    points: tuple[dict[str, Any], ...] = ({},)
    if written.sweep is not None:
        with key("sweep"):
            points = sweep.points(written.sweep, written.sweep_mode)
    spec = job(name, written, folder, base)
    if _undeclared(spec, pattern):
        spec = msgspec.structs.replace(spec, needs_folder=True)
    _check_templates(spec, pattern, known(pattern) | set(points[0]))
    return Rule(
        name=name,
        pattern=pattern,
        spec=spec,
        points=points,
        rate=_rate(written.rate) if written.rate is not None else None,
        max_depth=_at_least(written.max_depth, 1, "max_depth"),
        max_repeats=_at_least(written.max_repeats, 1, "max_repeats"),
        sha256=written.sha256,
        enabled=written.enabled,
        book=place.file,
        line=place.line_of(),
    )


def _undeclared(spec: JobSpec, pattern: Pattern) -> bool:
    """Return whether jobs may use files of the project that the rule does not declare."""
    if spec.inputs or spec.outputs or spec.optional_outputs or spec.site:
        return False
    if isinstance(spec.recipe, Workflow):
        return False
    if isinstance(pattern, TimerPattern):
        # Only what is written there can lead a job to the project.
        return bool(spec.cwd) or "{base}" in dump([spec.recipe, spec.params, spec.env])
    return True


#: Keys of recipes that definitions have by the same name.
_SAME = tuple(one for one in JobSpec.__struct_fields__ if one in RecipeText.__struct_fields__)


def job(name: str, written: RecipeText, folder: str, base: str = "") -> JobSpec:
    """Build the definition of a job."""
    for param in written.params:
        with key("params", param):
            names.check_parameter(param)
    for variable in written.env:
        with key("env", variable):
            if not variable or "=" in variable or "\0" in variable:
                raise errors.BadRule(f"{variable!r} cannot name an environment variable")
    with key("requirements"):
        submission.check_expression(written.requirements or "")
    with key("rank"):
        submission.check_expression(written.rank or "")
    with key("image"):
        submission.check_image(written.image or "")
    _check_site(written)
    for code in written.ok_codes or ():
        with key("ok_codes"):
            if not 0 <= code <= 255:
                raise errors.BadRule(f"an exit code is a number from 0 to 255, not {code}")
    # A key sets the field of its name, but for those that are written in another way.
    given = {one: value for one in _SAME if (value := getattr(written, one)) is not None}
    given |= {
        "recipe": recipe.recipe(written, folder, base),
        "name": name,
        "env": {variable: template.write(value) for variable, value in written.env.items()},
        "resources": _resources(written),
        "retry": _retry(written.retry),
        "via": WAYS[written.via] if written.via else "",
        "allocation": _allocation(written),
        "inputs": trigger.texts(written.inputs or ()),
        "limit": limit(written.limit),
    }
    spec = JobSpec(**given)
    with key("batch" if written.batch else "slurm" if written.slurm else "site"):
        submission.check_site(spec)
    return spec


def known(pattern: Pattern) -> set[str]:
    """Return the keywords that a rule with this pattern gives to its templates."""
    groups = trigger.groups(pattern)
    found = {*_EVERYWHERE, *groups}
    match pattern:
        case FilePattern():
            fields = {"match", *(f"match.{group}" for group in groups)}
            return found | _OF_FILES | fields | {"other"}
        case MessagePattern():
            return found | _OF_FILES | {"message.*"}
        case JobPattern():
            return found | {"ended.*"}
        case TimerPattern():
            return found | {"tick"}


def _check_templates(spec: JobSpec, pattern: Pattern, keywords: set[str]) -> None:
    if isinstance(pattern, FilePattern) and pattern.gather:
        seen = known(pattern) - {"job", "paths"}
        for name in ("by", "item"):
            with key("gather", name):
                template.check(getattr(pattern.gather, name), seen)
    for name, value in spec.params.items():
        with key("params", name):
            _check_all(value, keywords)
    everything = keywords | set(spec.params)
    recipe.check_templates(spec.recipe, everything)
    tables = {
        "outputs": spec.outputs,
        "optional_outputs": spec.optional_outputs,
        "env": spec.env,
    }
    for table, texts in tables.items():
        for name, text in texts.items():
            with key(table, name):
                template.check(text, everything)
    with key("cwd"):
        template.check(spec.cwd, everything)
    with key("inputs"):
        for text in spec.inputs:
            template.check(text, everything)
    with key("limit"):
        template.check(spec.limit.key if spec.limit else "", everything - {"job"})


def _check_all(value: object, keywords: set[str]) -> None:
    if isinstance(value, str):
        template.check(value, keywords)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_all(inner, keywords)
    elif isinstance(value, dict):
        for inner in value.values():
            _check_all(inner, keywords)


def _resources(written: RecipeText) -> Resources:
    with key("memory"):
        memory = None if written.memory is None else units.size(written.memory)
    with key("disk"):
        disk = None if written.disk is None else units.size(written.disk)
    with key("time"):
        time = None if written.time is None else units.seconds(written.time)
        if time == 0:
            raise errors.BadRule("no job ends in 0 seconds")
    cpus = 1 if written.cpus is None else _at_least(written.cpus, 1, "cpus")
    gpus = _at_least(written.gpus or 0, 0, "gpus")
    return Resources(cpus=cpus, memory=memory, gpus=gpus, disk=disk, time=time)


def _check_site(written: RecipeText) -> None:
    """Complain of what only means something at a site, where there is none."""
    for name in ("via", "batch", "slurm", "data"):
        if getattr(written, name) is not None and not written.site:
            with key(name):
                raise errors.BadRule("this goes with `site`", hint='write `site = "NAME"` too')
    if written.batch and written.slurm:
        with key("slurm"):
            raise errors.BadRule("the rule has `batch` already")


def _allocation(written: RecipeText) -> Allocation:
    asked = written.batch or written.slurm
    if asked is None:
        return Allocation()
    given = msgspec.structs.asdict(asked)
    partition = given.pop("partition")
    return Allocation(**{**given, "queue": asked.queue or partition})


def _retry(written: int | RetryText | None) -> Retry:
    if written is None:
        return Retry()
    with key("retry"):
        if isinstance(written, int):
            return Retry(attempts=_at_least(written, 1))
        if not 1 <= written.factor < 1e6:
            raise errors.BadRule(f"`factor` is at least 1, not {written.factor}")
        return Retry(
            attempts=_at_least(written.attempts, 1, "attempts"),
            delay=units.seconds(written.delay),
            factor=written.factor,
            longest=units.seconds(written.longest),
        )


def limit(written: str | LimitText | None) -> Limit | None:
    """Read how many jobs with one key may run at once."""
    if written is None:
        return None
    with key("limit"):
        if isinstance(written, str):
            return Limit(key=written)
        return Limit(key=written.key, most=_at_least(written.most, 1, "most"))


def _rate(written: str) -> Rate:
    with key("rate"):
        count, slash, span = (part.strip() for part in written.partition("/"))
        if not slash or not count.isdecimal() or len(count) > 9 or int(count) < 1:
            raise errors.BadRule(
                f"cannot read {written!r} as a rate", hint="write `10/min` or `100/2h`"
            )
        per = units.seconds(span if span[:1].isdecimal() else f"1{span}")
        if per <= 0:
            raise errors.BadRule(f"the span of {written!r} is zero")
        return Rate(count=int(count), per=per)


def _at_least(value: int, least: int, *keys: str) -> int:
    with key(*keys):
        if not least <= value <= _LARGEST:
            raise errors.BadRule(
                f"{value} is too {'small' if value < least else 'large'}; the least is {least}"
            )
    return value
