"""Batch systems of other packages: found by an entry point or by a dotted name.

A plug-in is a callable that takes the `[plugin]` table of the site's file and returns a
`BatchSystem`: a function that returns `Tools`, or a class. Only what the
file of a site names is imported: those who may write that file may run anything there already.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from pilotage.base import errors

from .model import BatchSystem

GROUP = "pilotage.batch"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_MEMBERS = (
    "name", "arrays", "submit", "submitted", "listing", "listed", "history", "remembered", "cancel",
    "version",
)  # fmt: skip
#: Make a batch system of `[plugin]` in the site's file.
Maker = Callable[[Mapping[str, Any]], BatchSystem]


def is_name(name: str) -> bool:
    """Return whether this could name a plug-in: one word, or `package.module:callable`."""
    return bool(_NAME.fullmatch(name) or _DOTTED.fullmatch(name))


def names() -> tuple[str, ...]:
    """List the plug-ins that are installed."""
    return tuple(sorted({one.name for one in metadata.entry_points(group=GROUP)}))


def make(name: str, settings: Mapping[str, Any]) -> BatchSystem:
    """Make a batch system; raise `ConfigError` if there is none, or if it refuses the settings."""
    maker = find(name)
    try:
        made = maker(dict(settings))
    except errors.PilotageError:
        raise
    except Exception as error:
        # Any error of a plug-in's own code means that it does not take what the file says.
        message = f"batch system `{name}` does not take its settings: {error}"
        raise errors.ConfigError(message, hint="correct `[plugin]` in the site's file") from error
    if lacking := [member for member in _MEMBERS if not hasattr(made, member)]:
        raise _unfit(name, f"it has no {', '.join(lacking)}")
    return made


@functools.cache
def find(name: str) -> Maker:
    """Load a plug-in, once."""
    found = _import(name) if ":" in name else _installed(name)
    if not callable(found):
        raise _unfit(name, "it cannot be called with settings")
    return found  # type: ignore[no-any-return]


def _unfit(name: str, why: str) -> errors.ConfigError:
    hint = "the page on writing a provider says what it needs"
    return errors.ConfigError(f"`{name}` is not a batch system: {why}", hint=hint)


def _installed(name: str) -> Any:  # noqa: ANN401 - whatever is there
    found = [one for one in metadata.entry_points(group=GROUP) if one.name == name]
    if not found:
        known = ", ".join(names()) or "none"
        hint = f"plug-ins that are installed here: {known}"
        raise errors.ConfigError(f"there is no batch system {name!r}", hint=hint)
    if len({one.value for one in found}) > 1:
        places = " and ".join(sorted(one.value for one in found))
        message = f"there are two batch systems {name!r}: {places}"
        raise errors.ConfigError(
            message, hint="uninstall one, or name it as `package.module:callable`"
        )
    try:
        return found[0].load()
    except Exception as error:
        raise _broken(name, error) from error


def _import(name: str) -> Any:  # noqa: ANN401 - whatever is there
    module, _, kind = name.partition(":")
    try:
        return getattr(importlib.import_module(module), kind)
    except Exception as error:
        raise _broken(name, error) from error


def _broken(name: str, error: Exception) -> errors.ConfigError:
    message = f"batch system `{name}` cannot be loaded: {type(error).__name__}: {error}"
    return errors.ConfigError(message, hint="install it where the hub runs")
