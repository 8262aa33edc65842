"""Batch systems of others: found by an entry point of what is installed, or by a dotted name.

A plug-in is a class that takes the `[plugin]` table of the site's file and is a `Batch`. What the
file of a site names is imported, and nothing else: whoever may write that file may run anything
there already.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any

from pilotage.base import errors

from .model import Batch

GROUP = "pilotage.batch"
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_VERBS = (
    "submit", "submitted", "listing", "listed", "history", "remembered", "cancel", "version",
)  # fmt: skip
#: Makes a batch system of what the site's file says to it.
Maker = Callable[[Mapping[str, Any]], Batch]


def is_name(name: str) -> bool:
    """Say whether this could be the name of a plug-in: one word, or `package.module:Class`."""
    return bool(_NAME.fullmatch(name) or _DOTTED.fullmatch(name))


def names() -> tuple[str, ...]:
    """List the plug-ins that are installed."""
    return tuple(sorted({one.name for one in metadata.entry_points(group=GROUP)}))


def make(name: str, settings: Mapping[str, Any]) -> Batch:
    """Make a batch system; raise `ConfigError` if there is none, or if it refuses the settings."""
    maker = find(name)
    try:
        return maker(dict(settings))
    except errors.PilotageError:
        raise
    except Exception as error:
        # Whatever code of others raises, it is what the file says that they do not take.
        message = f"batch system `{name}` does not take its settings: {error}"
        raise errors.ConfigError(
            message, hint="they are in `[plugin]` of the site's file"
        ) from error


@functools.cache
def find(name: str) -> Maker:
    """Load a plug-in, once."""
    found = _import(name) if ":" in name else _installed(name)
    lacking = [verb for verb in (*_VERBS, "name", "arrays") if not hasattr(found, verb)]
    if lacking or not callable(found):
        message = f"`{name}` is no batch system: it has no {', '.join(lacking) or 'call'}"
        raise errors.ConfigError(message, hint="the page on writing a provider says what it needs")
    return found  # type: ignore[no-any-return]


def arrays(name: str) -> bool:
    """Say whether a plug-in can run arrays."""
    return bool(getattr(find(name), "arrays", False))


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
            message, hint="uninstall one, or name it as `package.module:Class`"
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
    return errors.ConfigError(message, hint="is it installed where this runs?")
