"""Names of jobs, by wildcard."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from functools import lru_cache

from pilotage.event.model import Event


def ended_match(patterns: Iterable[str], event: Event) -> bool:
    """Tell whether the job that ended, or the workflow that it is, has one of some names."""
    names = {event.subject, event.data.get("flow_name", event.subject)}
    return any(name_match(pattern, name) for pattern in patterns for name in names)


def name_match(pattern: str, name: str) -> bool:
    """Tell whether the name of a job matches a glob."""
    return name_regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def name_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob of names."""
    return re.compile(fnmatch.translate(pattern))
