"""MEOW monitors: the patterns and recipes of one base, changeable while running."""

from __future__ import annotations

import copy
import os
import sys
import threading
from collections.abc import Callable, Mapping
from typing import TextIO, TypeVar

from pilotage.compat.meow import check
from pilotage.compat.meow.pattern import FileEventPattern, Pattern, SocketPattern
from pilotage.compat.meow.recipe import Recipe
from pilotage.compat.meow.rule import Rule

_Named = TypeVar("_Named", Pattern, Recipe)
#: One for all monitors: a change of one is put in force together with the rules of the others.
EDITING = threading.RLock()


def nothing() -> None:
    """Do nothing: no runner runs."""


class Monitor:
    """Patterns and recipes, and the rules that they make together."""

    #: The type of its patterns.
    takes: type[Pattern] = Pattern

    def __init__(
        self,
        base_dir: str,
        patterns: Mapping[str, Pattern],
        recipes: Mapping[str, Recipe],
        name: str,
        print: TextIO | None,  # noqa: A002 - MEOW's name
        logging: int,
    ) -> None:
        """Take what MEOW's monitors take; nothing happens before a runner starts."""
        self.base_dir = check.name(base_dir, "base_dir")
        self.name = check.kind(name, str, "name") or base_dir
        self.print = print or sys.stdout
        self.logging = check.log_level(logging)
        #: Seconds for which a file must be left alone.
        self.settletime = 0.0
        #: The base, wherever the process goes.
        self.base = os.path.abspath(base_dir)
        #: Puts what has become of the rules in force; the runner sets it while it runs.
        self.publish: Callable[[], None] = nothing
        self._patterns = copy.deepcopy(check.by_name(patterns, self.takes, "patterns"))
        self._recipes = copy.deepcopy(check.by_name(recipes, Recipe, "recipes"))

    # -- patterns --------------------------------------------------------------------------------

    def add_pattern(self, pattern: Pattern) -> None:
        """Add a pattern; with its recipe it is a rule at once, also for files that are there."""
        with EDITING:
            check.kind(pattern, self.takes, "pattern")
            self._swap(_with(self._patterns, pattern, known=False), self._recipes)

    def update_pattern(self, pattern: Pattern) -> None:
        """Put a pattern in the place of the one that has its name."""
        with EDITING:
            check.kind(pattern, self.takes, "pattern")
            self._swap(_with(self._patterns, pattern, known=True), self._recipes)

    def remove_pattern(self, pattern: str | Pattern) -> None:
        """Remove a pattern, by itself or by its name."""
        with EDITING:
            self._swap(_without(self._patterns, pattern), self._recipes)

    def get_patterns(self) -> dict[str, Pattern]:
        """Return copies of the patterns."""
        return copy.deepcopy(self._patterns)

    # -- recipes ---------------------------------------------------------------------------------

    def add_recipe(self, recipe: Recipe) -> None:
        """Add a recipe; patterns that name it are rules at once."""
        with EDITING:
            check.kind(recipe, Recipe, "recipe")
            self._swap(self._patterns, _with(self._recipes, recipe, known=False))

    def update_recipe(self, recipe: Recipe) -> None:
        """Put a recipe in the place of the one that has its name."""
        with EDITING:
            check.kind(recipe, Recipe, "recipe")
            self._swap(self._patterns, _with(self._recipes, recipe, known=True))

    def remove_recipe(self, recipe: str | Recipe) -> None:
        """Remove a recipe, by itself or by its name."""
        with EDITING:
            self._swap(self._patterns, _without(self._recipes, recipe))

    def get_recipes(self) -> dict[str, Recipe]:
        """Return copies of the recipes."""
        return copy.deepcopy(self._recipes)

    # -- rules -----------------------------------------------------------------------------------

    def get_rules(self) -> dict[str, Rule]:
        """Return the patterns whose recipe is there, with it."""
        with EDITING:
            rules = [
                Rule(pattern, self._recipes[pattern.recipe])
                for pattern in self._patterns.values()
                if pattern.recipe in self._recipes
            ]
            return copy.deepcopy({rule.name: rule for rule in rules})

    def _swap(self, patterns: dict[str, Pattern], recipes: dict[str, Recipe]) -> None:
        """Take these patterns and recipes, or change nothing."""
        before = self._patterns, self._recipes
        self._patterns, self._recipes = patterns, recipes
        good = False
        try:
            self.publish()
            good = True
        finally:
            if not good:
                self._patterns, self._recipes = before


class WatchdogMonitor(Monitor):
    """Watches the files below a directory."""

    takes = FileEventPattern

    def __init__(
        self,
        base_dir: str,
        patterns: Mapping[str, FileEventPattern],
        recipes: Mapping[str, Recipe],
        autostart: bool = False,  # noqa: ARG002, FBT001, FBT002 - the runner starts it
        settletime: float = 1,
        name: str = "",
        print: TextIO | None = None,  # noqa: A002 - MEOW's name
        logging: int = 0,
    ) -> None:
        """Take what MEOW takes, and settle times below a second as well."""
        super().__init__(base_dir, patterns, recipes, name, print, logging)
        self.settletime = check.number(settletime, "settletime")
        if not 0 <= settletime < float("inf"):
            raise ValueError(f"settletime is {settletime}: it must be a number of seconds")


class SocketMonitor(Monitor):
    """Listens on the ports of its patterns."""

    takes = SocketPattern

    def __init__(
        self,
        base_dir: str,
        patterns: Mapping[str, SocketPattern],
        recipes: Mapping[str, Recipe],
        autostart: bool = False,  # noqa: ARG002, FBT001, FBT002 - the runner starts it
        name: str = "",
        print: TextIO | None = None,  # noqa: A002 - MEOW's name
        logging: int = 0,
    ) -> None:
        super().__init__(base_dir, patterns, recipes, name, print, logging)


def _with(there: dict[str, _Named], one: _Named, *, known: bool) -> dict[str, _Named]:
    if (one.name in there) is not known:
        raise KeyError(f"{one.name!r} is {'not there' if known else 'there already'}")
    return {**there, one.name: copy.deepcopy(one)}


def _without(there: dict[str, _Named], one: str | _Named) -> dict[str, _Named]:
    name = check.kind(one if isinstance(one, str) else one.name, str, "a name")
    if name not in there:
        raise KeyError(f"{name!r} is not there")
    return {key: value for key, value in there.items() if key != name}
