"""From events and rules to bindings, indexed: what cannot match costs nothing.

Rules are grouped by the set of directories that they speak of; which groups hold a directory is
found once and kept. In a group, names are looked up by exact name, by literal prefix and by literal
suffix; only globs without any of these, and regular expressions, are tried one by one.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pilotage.bus import port as bus
from pilotage.event.model import Event, EventKind
from pilotage.rule import component, glob, regex, trigger
from pilotage.rule.component import DEEP, Component, GlobToken
from pilotage.rule.exclude import excluded_by
from pilotage.rule.model import FilePattern, JobPattern, MessagePattern, Rule, TimerPattern


class WatchedDirectory(NamedTuple):
    """A set of directories: those that one kind of glob speaks of."""

    #: The directory that all of them are or are below.
    prefix: str
    #: What is between the prefix and the file; `ANYWHERE` for regular expressions.
    steps: tuple[Component, ...] = ()

    def regex(self) -> re.Pattern[str] | None:
        """Return a regular expression of the directories; None means exactly the prefix."""
        if self.steps == ANYWHERE:
            return re.compile(re.escape(self.prefix.rstrip("/")) + "(?:/[^/]+)*", re.DOTALL)
        return component.directory_regex(self.prefix, self.steps)


#: The steps of a place that takes in every directory below, hidden ones too.
ANYWHERE: tuple[Component, ...] = ((GlobToken("anywhere"),),)


def ancestors(directory: str) -> Iterator[str]:
    """Yield the directory and all above it, up to the root."""
    while directory != "/":
        yield directory
        directory = directory[: directory.rfind("/")] or "/"
    yield "/"


class RuleScope:
    """The part of the file system that the rules of an index speak of."""

    def __init__(self, places: Iterable[WatchedDirectory]) -> None:
        """Use the directories of all globs."""
        self._below: dict[str, list[WatchedDirectory]] = {}
        for place in places:
            self._below.setdefault(place.prefix, []).append(place)
        self._above = {above for prefix in self._below for above in ancestors(prefix)}
        self._regexes = {place: place.regex() for at in self._below.values() for place in at}
        #: The fewest directories that hold everything that can match.
        self.roots: tuple[str, ...] = tuple(sorted(self._minimal()))

    def descend(self, directory: str) -> bool:
        """Return whether anything at or below a directory may match, now or when it exists."""
        if directory in self._above:
            return True
        return any(
            _leads_on(place.steps, directory[len(prefix.rstrip("/")) + 1 :].split("/"))
            for prefix in ancestors(directory)
            for place in self._below.get(prefix, ())
        )

    def inside(self, directory: str) -> bool:
        """Return whether files directly in a directory may match."""
        return any(
            self.match(place, directory) is not None
            for prefix in ancestors(directory)
            for place in self._below.get(prefix, ())
        )

    def match(self, place: WatchedDirectory, directory: str) -> dict[str, str] | None:
        """Return the groups captured in a directory, or None when it is not of the place."""
        regex = self._regexes[place]
        if regex is None:
            return {} if directory == place.prefix else None
        found = regex.fullmatch("" if directory == "/" else directory)
        return None if found is None else found.groupdict()

    def _minimal(self) -> Iterator[str]:
        for prefix in self._below:
            inner = ancestors(prefix)
            next(inner)
            if not any(above in self._below for above in inner):
                yield prefix


def _leads_on(steps: tuple[Component, ...], parts: list[str]) -> bool:
    """Return whether the directories of `parts` can begin what `steps` describe."""
    if steps == ANYWHERE:
        return True
    states = _skip(steps, {0})
    for part in parts:
        states = _skip(
            steps,
            {
                at if steps[at] == DEEP else at + 1
                for at in states
                if at < len(steps) and _admits(steps[at], part)
            },
        )
    return bool(states)


def _skip(steps: tuple[Component, ...], states: set[int]) -> set[int]:
    """Add the states that are reached because `**` may stand for nothing."""
    reached = set(states)
    for at in sorted(states):
        step = at
        while step < len(steps) and steps[step] == DEEP:
            step += 1
            reached.add(step)
    return reached


def _admits(step: Component, part: str) -> bool:
    if step == DEEP:
        return not part.startswith(".")
    return re.fullmatch(component.regex(step), part, re.DOTALL) is not None


#: A rule with the groups that its pattern captured; the groups are not to be changed.
Found = tuple[Rule, dict[str, str]]

#: How many directories are remembered before all are forgotten.
MOST_DIRECTORIES = 50_000

_FEW = 3
_NO_GROUPS: dict[str, str] = {}
_ANY_NAME = glob.parse("/*", hidden=True).name


class _Entry:
    """One glob or regular expression of one rule."""

    __slots__ = (
        "dotless",
        "group",
        "hit",
        "least",
        "most",
        "name",
        "order",
        "pattern",
        "plain",
        "prefix",
        "rule",
        "suffix",
        "whole",
    )

    def __init__(self, order: int, rule: Rule, pattern: FilePattern, name: glob.Name) -> None:
        self.order = order
        self.rule = rule
        self.pattern = pattern
        self.name = name
        self.whole = regex.compile_regex(pattern.regex) if name is _ANY_NAME else None
        self.prefix = name.prefix
        self.suffix = name.suffix
        #: What lies between prefix and suffix, if that is all that is captured.
        self.group = name.single
        self.least = len(name.prefix) + len(name.suffix) + bool(name.single)
        self.most = self.least if name.exact else sys.maxsize
        self.dotless = not name.hidden
        #: Whether prefix and suffix decide alone.
        self.plain = bool(
            (name.exact or name.simple or name.single) and not pattern.exclude and not self.whole
        )
        #: What is found where nothing is captured; shared.
        self.hit: tuple[int, Found] = (order, (rule, _NO_GROUPS))

    def between(self, name: str) -> tuple[int, Found]:
        """Return the entry with its one group, which needs no regular expression."""
        group = name[len(self.prefix) : len(name) - len(self.suffix)]
        return self.order, (self.rule, {self.group: group})

    def bind(self, directory: str, name: str, outer: dict[str, str]) -> dict[str, str] | None:
        """Return what is captured, or None when the file does not match."""
        found: re.Match[str] | None
        if self.whole is None:
            found = self.name.regex.fullmatch(name)
        else:
            found = self.whole.fullmatch(regex.relative(directory, name, self.pattern.base))
        if found is None or excluded_by(self.pattern, directory or "/", name):
            return None
        return outer | found.groupdict("") if outer or found.re.groups else _NO_GROUPS


class _Table:
    """The entries of one place, by what is literal in their names."""

    __slots__ = ("exact", "few", "prefixes", "rest", "suffixes")

    def __init__(self, entries: Sequence[_Entry]) -> None:
        # Looking at a few is faster than looking them up.
        self.few = tuple(entries) if len(entries) <= _FEW else None
        self.exact: dict[str, tuple[_Entry, ...]] = {}
        prefixes: dict[int, dict[str, tuple[_Entry, ...]]] = {}
        suffixes: dict[int, dict[str, tuple[_Entry, ...]]] = {}
        self.rest: tuple[_Entry, ...] = ()
        for entry in entries:
            prefix, suffix = entry.prefix, entry.suffix
            if entry.name.exact:
                self.exact[prefix] = (*self.exact.get(prefix, ()), entry)
            elif not prefix and not suffix:
                self.rest = (*self.rest, entry)
            else:
                sort, key = (prefixes, prefix) if len(prefix) > len(suffix) else (suffixes, suffix)
                bucket = sort.setdefault(len(key), {})
                bucket[key] = (*bucket.get(key, ()), entry)
        self.prefixes = tuple(prefixes.items())
        self.suffixes = tuple(suffixes.items())

    def candidates(self, name: str) -> tuple[_Entry, ...]:
        """Return the entries whose literal parts may fit."""
        if self.few is not None:
            return self.few
        found = self.exact.get(name, ())
        for length, entries in self.prefixes:
            if more := entries.get(name[:length]):
                found += more
        for length, entries in self.suffixes:
            if more := entries.get(name[-length:]):
                found += more
        return found + self.rest


class Index:
    """All enabled rules of a project, ready to be asked; it never changes."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules: tuple[Rule, ...] = tuple(rule for rule in rules if rule.enabled)
        places: dict[WatchedDirectory, list[_Entry]] = {}
        for order, (place, rule, pattern, name) in enumerate(_entries(self.rules)):
            places.setdefault(place, []).append(_Entry(order, rule, pattern, name))
        self._tables: dict[str, list[tuple[WatchedDirectory, _Table]]] = {}
        for place, entries in places.items():
            self._tables.setdefault(place.prefix, []).append((place, _Table(entries)))
        self._known: dict[str, tuple[tuple[_Table, dict[str, str]], ...]] = {}
        #: Where files that matter can be.
        self.scope = RuleScope(places)
        #: What may have happened for any rule to care.
        self.kinds: frozenset[EventKind] = frozenset().union(
            *(kinds_of(rule) for rule in self.rules)
        )
        self._others = _Others(self.rules)

    def find(self, directory: str, name: str) -> Sequence[Found]:
        """Return the file rules that a path matches, in their order, with what they captured.

        Only the path is looked at: `rule.firing` looks at the rest.
        """
        known = self._known.get(directory)
        if known is None:
            known = self._learn(directory)
        hits: list[tuple[int, Found]] = []
        size = len(name)
        for table, outer in known:
            for entry in table.candidates(name):
                if entry.plain and not outer:
                    if (
                        entry.least <= size <= entry.most
                        and name.endswith(entry.suffix)
                        and name.startswith(entry.prefix)
                        and not (entry.dotless and name[0] == ".")
                    ):
                        hits.append(entry.between(name) if entry.group else entry.hit)
                elif (groups := entry.bind(directory, name, outer)) is not None:
                    hits.append((entry.order, (entry.rule, groups)))
        if len(hits) == 1:
            return (hits[0][1],)
        return _in_order(hits) if hits else ()

    def others(self, event: Event) -> list[Found]:
        """Return the rules on messages, ended jobs and timers that an event matches."""
        return [(rule, _NO_GROUPS) for rule in self._others.find(event)]

    def _learn(self, directory: str) -> tuple[tuple[_Table, dict[str, str]], ...]:
        found = []
        for prefix in ancestors(directory or "/"):
            for place, table in self._tables.get(prefix, ()):
                groups = self.scope.match(place, directory or "/")
                if groups is not None:
                    found.append((table, groups or _NO_GROUPS))
        if len(self._known) >= MOST_DIRECTORIES:
            self._known.clear()
        self._known[directory] = known = tuple(found)
        return known


class _Others:
    """The rules that are not on files."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.timers: dict[str, Rule] = {}
        self.messages: list[tuple[Rule, MessagePattern]] = []
        self.jobs: list[tuple[Rule, JobPattern]] = []
        for rule in rules:
            match rule.pattern:
                case TimerPattern():
                    self.timers[rule.name] = rule
                case MessagePattern() as pattern:
                    self.messages.append((rule, pattern))
                case JobPattern() as pattern:
                    self.jobs.append((rule, pattern))
                case FilePattern():
                    pass

    def find(self, event: Event) -> Iterator[Rule]:
        """Yield the rules that an event matches."""
        subject = event.subject
        if event.kind is EventKind.TIMER and subject in self.timers:
            yield self.timers[subject]
        elif event.kind is EventKind.MESSAGE:
            for rule, wanted in self.messages:
                if any(bus.matches(pattern, subject) for pattern in wanted.topics):
                    yield rule
        elif event.kind is EventKind.JOB_ENDED:
            for rule, ended in self.jobs:
                if event.data.get("state") in ended.states and trigger.ended_match(
                    ended.names, event
                ):
                    yield rule


def kinds_of(rule: Rule) -> frozenset[EventKind]:
    """Return the kinds of events that a rule waits for."""
    match rule.pattern:
        case FilePattern() as pattern:
            return pattern.events
        case TimerPattern():
            return frozenset({EventKind.TIMER})
        case MessagePattern():
            return frozenset({EventKind.MESSAGE})
        case JobPattern():
            return frozenset({EventKind.JOB_ENDED})


def _entries(
    rules: Iterable[Rule],
) -> Iterator[tuple[WatchedDirectory, Rule, FilePattern, glob.Name]]:
    for rule in rules:
        pattern = rule.pattern
        if not isinstance(pattern, FilePattern):
            continue
        for text in pattern.globs:
            parsed = glob.parse(text)
            yield WatchedDirectory(parsed.prefix, parsed.steps), rule, pattern, parsed.name
        if pattern.regex:
            prefix = regex.literal_directory(pattern.regex, pattern.base)
            yield WatchedDirectory(prefix, ANYWHERE), rule, pattern, _ANY_NAME


def _in_order(hits: list[tuple[int, Found]]) -> list[Found]:
    """Sort by rule; of several globs of one rule, only the first counts."""
    hits.sort(key=lambda hit: hit[0])
    found: list[Found] = []
    for _, pair in hits:
        if not found or found[-1][0] is not pair[0]:
            found.append(pair)
    return found
