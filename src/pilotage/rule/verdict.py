"""Why a rule fires on an event or not: every failed condition with both values."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pilotage.base import text, units
from pilotage.bus import port as bus
from pilotage.event.model import Event, EventKind
from pilotage.rule import glob, regex, trigger
from pilotage.rule.exclude import excluded_by
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Rule, TimerPattern


class RuleVerdict(msgspec.Struct, frozen=True):
    """Whether a rule fires, and all conditions that failed."""

    #: Whether it fires.
    fires: bool
    #: What the pattern captured, where it fires.
    groups: dict[str, str] = {}
    #: Every clause that failed, in words.
    reasons: tuple[str, ...] = ()


def judge(rule: Rule, event: Event, now: float) -> RuleVerdict:
    """Compare an event with each clause of a rule."""
    reasons = [] if rule.enabled else ["the rule is disabled"]
    groups: dict[str, str] = {}
    match rule.pattern:
        case FilePattern() as pattern:
            groups, failed = _judge_file(pattern, event, now)
            reasons += failed
        case TimerPattern():
            reasons += _judge_kind(event, [EventKind.TIMER])
            if not reasons and event.subject != rule.name:
                reasons.append(f"the tick is of the rule {event.subject!r}")
        case MessagePattern() as pattern:
            reasons += _judge_kind(event, [EventKind.MESSAGE]) or _judge_topic(pattern, event)
        case JobPattern() as pattern:
            reasons += _judge_kind(event, [EventKind.JOB_ENDED]) or _judge_job(pattern, event)
    return RuleVerdict(not reasons, {} if reasons else groups, tuple(reasons))


def match_file(pattern: FilePattern, directory: str, name: str) -> dict[str, str] | None:
    """Match one path with one pattern, without an index; None means that it does not match."""
    if excluded_by(pattern, directory, name):
        return None
    for written in pattern.globs:
        groups = glob.parse(written).match(directory, name)
        if groups is not None:
            return groups
    if pattern.regex and _is_below(directory, pattern.base):
        path = regex.relative(directory, name, pattern.base)
        found = regex.compile_regex(pattern.regex).fullmatch(path)
        return None if found is None else found.groupdict("")
    return None


def _judge_kind(event: Event, wanted: list[EventKind]) -> list[str]:
    if event.kind in wanted:
        return []
    return [f"event is {event.kind}; the rule waits for {', '.join(sorted(wanted))}"]


def _judge_file(pattern: FilePattern, event: Event, now: float) -> tuple[dict[str, str], list[str]]:
    reasons = _judge_kind(event, sorted(pattern.events))
    if event.kind in (EventKind.TIMER, EventKind.MESSAGE, EventKind.JOB_ENDED):
        return {}, reasons
    directory, _, name = event.subject.rpartition("/")
    groups = match_file(pattern, directory or "/", name)
    if groups is None:
        reasons += _why_not(pattern, directory or "/", name)
    reasons += [*_judge_size(pattern, event), *_judge_age(pattern, event, now)]
    return groups or {}, reasons


def _why_not(pattern: FilePattern, directory: str, name: str) -> Iterator[str]:
    if left_out := excluded_by(pattern, directory, name):
        yield f"{_show(name)} is excluded by '{left_out}'"
    base = pattern.base.rstrip("/") + "/"
    for written in pattern.globs:
        parsed = glob.parse(written)
        short = written.removeprefix(glob.escape(base))
        if parsed.match_directory(directory) is None:
            folder = written if written.endswith("/**") else written.rpartition("/")[0] or "/"
            yield (
                f"path {_show(regex.relative(directory, name, base))} does not match '{short}': "
                f"directory {_show(directory)} is not '{folder}'"
            )
        elif parsed.name.regex.fullmatch(name) is None:
            hidden = name.startswith(".") and not parsed.name.hidden
            why = ": a name that begins with a dot needs a glob that does" if hidden else ""
            yield f"name {_show(name)} does not match '{short}'{why}"
    if pattern.regex and match_file(pattern, directory, name) is None:
        path = regex.relative(directory, name, base)
        yield f"path {_show(path)} does not match the regex '{pattern.regex}'"


def _judge_size(pattern: FilePattern, event: Event) -> Iterator[str]:
    size = units.bytes_for_people(event.size)
    if pattern.too_small(event):
        yield f"size {size} is below min_size {units.bytes_for_people(pattern.min_size)}"
    if pattern.max_size is not None and event.size > pattern.max_size:
        yield f"size {size} is above max_size {units.bytes_for_people(pattern.max_size)}"


def _judge_age(pattern: FilePattern, event: Event, now: float) -> Iterator[str]:
    age = max(0.0, now - event.mtime)
    if age < pattern.min_age:
        wait = units.for_people(pattern.min_age - age)
        yield (
            f"age {units.for_people(age)} is below min_age {units.for_people(pattern.min_age)}; "
            f"the rule fires in {wait} if the file is left alone"
        )
    if pattern.max_age is not None and age > pattern.max_age:
        yield f"age {units.for_people(age)} is above max_age {units.for_people(pattern.max_age)}"


def _judge_topic(pattern: MessagePattern, event: Event) -> list[str]:
    if any(bus.matches(wanted, event.subject) for wanted in pattern.topics):
        return []
    return [f"topic {_show(event.subject)} does not match {_any_of(pattern.topics)}"]


def _judge_job(pattern: JobPattern, event: Event) -> list[str]:
    reasons = []
    if not trigger.ended_match(pattern.names, event):
        reasons.append(f"job {_show(event.subject)} does not match {_any_of(pattern.names)}")
    state = event.data.get("state", "unknown")
    if state not in pattern.states:
        states = ", ".join(sorted(pattern.states))
        reasons.append(f"the job is {state}; the rule waits for {states}")
    return reasons


def _is_below(directory: str, base: str) -> bool:
    return base == "/" or f"{directory}/".startswith(base.rstrip("/") + "/")


def _any_of(wanted: tuple[str, ...]) -> str:
    return " or ".join(f"'{each}'" for each in wanted)


def _show(value: str) -> str:
    return f"'{text.show(value)}'"
