"""Where files that matter can be: which directories to watch and to scan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pilotage.rule import component
from pilotage.rule.component import DEEP, Component, Token


class Place(NamedTuple):
    """A set of directories: those that one kind of glob speaks of."""

    #: The directory that all of them are or are below.
    prefix: str
    #: What is between the prefix and the file; `ANYWHERE` for regular expressions.
    steps: tuple[Component, ...] = ()

    def regex(self) -> re.Pattern[str] | None:
        """Return what a directory must be; None means exactly the prefix."""
        if self.steps == ANYWHERE:
            return re.compile(re.escape(self.prefix.rstrip("/")) + "(?:/[^/]+)*", re.DOTALL)
        return component.directory_regex(self.prefix, self.steps)


#: The steps of a place that takes in every directory below, hidden ones too.
ANYWHERE: tuple[Component, ...] = ((Token("anywhere"),),)


def ancestors(directory: str) -> Iterator[str]:
    """Yield the directory and all above it, up to the root."""
    while directory != "/":
        yield directory
        directory = directory[: directory.rfind("/")] or "/"
    yield "/"


class Scope:
    """The part of the file system that the rules of an index speak of."""

    def __init__(self, places: Iterable[Place]) -> None:
        """Take the places of all globs."""
        self._below: dict[str, list[Place]] = {}
        for place in places:
            self._below.setdefault(place.prefix, []).append(place)
        self._above = {above for prefix in self._below for above in ancestors(prefix)}
        self._regexes = {place: place.regex() for at in self._below.values() for place in at}
        #: The fewest directories that hold everything that can match.
        self.roots: tuple[str, ...] = tuple(sorted(self._minimal()))

    def descend(self, directory: str) -> bool:
        """Tell whether anything at or below a directory may match, now or when it exists."""
        if directory in self._above:
            return True
        return any(
            _leads_on(place.steps, directory[len(prefix.rstrip("/")) + 1 :].split("/"))
            for prefix in ancestors(directory)
            for place in self._below.get(prefix, ())
        )

    def inside(self, directory: str) -> bool:
        """Tell whether files directly in a directory may match."""
        return any(
            self.match(place, directory) is not None
            for prefix in ancestors(directory)
            for place in self._below.get(prefix, ())
        )

    def match(self, place: Place, directory: str) -> dict[str, str] | None:
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
    """Tell whether the directories of `parts` can begin what `steps` describe."""
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
