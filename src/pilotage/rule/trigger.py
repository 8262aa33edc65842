"""Build the pattern of a rule, which says what it waits for, from its keys in a rule file."""

from __future__ import annotations

import fnmatch
import re
import zoneinfo
from collections.abc import Iterable
from functools import lru_cache

from pilotage.base import errors, names, units
from pilotage.event import message, timer
from pilotage.event.model import Event, EventKind
from pilotage.job import template
from pilotage.job.model import State
from pilotage.rule import exclude, glob, regex, sweep
from pilotage.rule.model import (
    COMPLETE,
    FilePattern,
    Gather,
    JobPattern,
    MessagePattern,
    Pattern,
    TimerPattern,
)
from pilotage.rule.schema import TRIGGER_KEYS, TRIGGERS, GatherText, RuleText, Texts
from pilotage.rule.span import key

#: How a job can end.
FINAL = (State.DONE, State.FAILED, State.CANCELLED, State.REJECTED)
_EVENTS = {
    **{kind.value: kind for kind in EventKind if kind.startswith(("file.", "dir."))},
    **{kind.removeprefix("file."): kind for kind in EventKind if kind.startswith("file.")},
}


def pattern(written: RuleText, base: str) -> Pattern:
    """Build the pattern of a rule."""
    kinds = [name for name in TRIGGERS if getattr(written, name) is not None]
    if len(kinds) != 1:
        told = " and ".join(f"`{name}`" for name in kinds) or "nothing"
        raise errors.BadRule(
            f"a rule waits for one thing; this one has {told}",
            hint=f"give exactly one of {', '.join(f'`{name}`' for name in TRIGGERS)}",
        )
    kind = kinds[0]
    for name, allowed in TRIGGER_KEYS.items():
        if getattr(written, name) is not None and kind not in allowed:
            with key(name):
                takers = " and ".join(f"`{each}`" for each in allowed)
                raise errors.BadRule(f"this goes with {takers}, not with `{kind}`")
    if kind in ("files", "regex"):
        return _files(written, base)
    if kind in ("every", "cron"):
        return _timer(written)
    return _message(written) if kind == "message" else _job(written)


def groups(built: Pattern) -> frozenset[str]:
    """Return the names that a pattern captures whatever part of it matches."""
    if not isinstance(built, FilePattern):
        return frozenset()
    if built.regex:
        return frozenset(regex.compile_regex(built.regex).groupindex)
    return frozenset.intersection(*(frozenset(glob.parse(text).groups) for text in built.globs))


def texts(value: Texts | None) -> tuple[str, ...]:
    """Return one or several texts as several."""
    return () if value is None else (value,) if isinstance(value, str) else value


def _files(written: RuleText, base: str) -> FilePattern:
    with key("files"):
        globs = tuple(glob.absolute(text, base) for text in texts(written.files))
        if not globs and written.regex is None:
            raise errors.BadRule("a list of globs is empty")
        for text in globs:
            for group in glob.parse(text).groups:
                names.check_parameter(group)
    with key("regex"):
        for group in regex.compile_regex(written.regex or "").groupindex:
            names.check_parameter(group)
    with key("exclude"):
        for text in texts(written.exclude):
            exclude.compile_exclude(text, base)
    built = FilePattern(
        globs=globs,
        regex=written.regex or "",
        base=base,
        exclude=texts(written.exclude),
        events=_events(written.events),
        min_size=_size(written, "min_size") or 0,
        max_size=_size(written, "max_size"),
        min_age=_seconds(written, "min_age") or 0.0,
        max_age=_seconds(written, "max_age"),
        settle=_seconds(written, "settle") or 0.0,
        version=written.version or "stat",
        gather=_gather(written.gather) if written.gather else None,
    )
    _check_bounds(built)
    return built


def _check_bounds(built: FilePattern) -> None:
    if built.max_size is not None and built.max_size < built.min_size:
        with key("max_size"):
            raise errors.BadRule(f"{built.max_size} is below `min_size` {built.min_size}")
    if built.max_age is not None and built.max_age < built.min_age:
        with key("max_age"):
            raise errors.BadRule(f"{built.max_age} s is below `min_age` {built.min_age} s")


def _events(written: tuple[str, ...] | None) -> frozenset[EventKind]:
    if written is None:
        return COMPLETE
    with key("events"):
        if not written:
            raise errors.BadRule("a rule that waits for no events never fires")
        for name in written:
            if name not in _EVENTS:
                short = [each for each in _EVENTS if not each.startswith("file.")]
                raise errors.BadRule(f"there is no event {name!r}", hint=names.closest(name, short))
    return frozenset(_EVENTS[name] for name in written)


def _gather(written: GatherText) -> Gather:
    with key("gather"):
        if (written.count is None) == (written.values is None):
            raise errors.BadRule(
                "a set is complete by `count` or by `values`; give one of them",
                hint='write `gather = { by = "{match.scan}", count = 60 }`',
            )
        if bool(written.item) != (written.values is not None):
            raise errors.BadRule("`item` and `values` go together")
        if written.count is not None and written.count < 1:
            raise errors.BadRule(f"a set of {written.count} files is never complete")
        values = () if written.values is None else sweep.values(written.values, "values")
        found = tuple(dict.fromkeys(template.write(value) for value in values))
        return Gather(by=written.by, count=written.count, item=written.item, values=found)


def _timer(written: RuleText) -> TimerPattern:
    every = _seconds(written, "every")
    if every == 0:
        with key("every"):
            raise errors.BadRule("a timer cannot tick every 0 seconds")
    with key("cron"):
        if written.cron is not None:
            timer.parse(written.cron)
    zone = written.zone or "UTC"
    with key("zone"):
        try:
            zoneinfo.ZoneInfo(zone)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            raise errors.BadRule(
                f"there is no time zone {zone!r}", hint="write one such as `Europe/Berlin`"
            ) from None
    catch_up = written.catch_up or "one"
    return TimerPattern(every=every, cron=written.cron or "", zone=zone, catch_up=catch_up)


def _message(written: RuleText) -> MessagePattern:
    topics = texts(written.message)
    with key("message"):
        if not topics or not all(topics):
            raise errors.BadRule("a topic is empty", hint="write `**` for every message")
    with key("port"):
        if written.port is not None and not 1 <= written.port <= 65535:
            raise errors.BadRule(f"a port is a number from 1 to 65535, not {written.port}")
        if written.port is not None:
            _check_topic(topics[0])
    return MessagePattern(topics=topics, port=written.port)


def _check_topic(topic: str) -> None:
    """Complain of a pattern: what comes in by a port gets the first topic of the rule."""
    try:
        message.check_topic(topic)
    except errors.UsageError as error:
        raise errors.BadRule(f"a port needs a plain topic: {error}", hint=error.hint) from None


def _job(written: RuleText) -> JobPattern:
    wanted = texts(written.job)
    with key("job"):
        if not wanted or not all(wanted):
            raise errors.BadRule("a name is empty", hint="write `*` for every job")
    states = written.states if written.states is not None else (State.DONE,)
    with key("states"):
        for state in states:
            if state not in FINAL:
                raise errors.BadRule(
                    f"no job ends as {state.value!r}", hint=names.closest(state, FINAL)
                )
        if not states:
            raise errors.BadRule("a rule that waits for no states never fires")
    return JobPattern(names=wanted, states=frozenset(states))


def _seconds(written: RuleText, name: str) -> float | None:
    value = getattr(written, name)
    with key(name):
        return None if value is None else units.seconds(value)


def _size(written: RuleText, name: str) -> int | None:
    value = getattr(written, name)
    with key(name):
        return None if value is None else units.size(value)


def ended_match(patterns: Iterable[str], event: Event) -> bool:
    """Return whether the job that ended, or the workflow that it is, has one of some names."""
    names = {event.subject, event.data.get("flow_name", event.subject)}
    return any(name_match(pattern, name) for pattern in patterns for name in names)


def name_match(pattern: str, name: str) -> bool:
    """Return whether the name of a job matches a glob."""
    return name_regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def name_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob of names."""
    return re.compile(fnmatch.translate(pattern))
