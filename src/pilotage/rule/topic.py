"""Names of jobs, by wildcard."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache


def name_match(pattern: str, name: str) -> bool:
    """Tell whether the name of a job matches a glob."""
    return name_regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def name_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob of names."""
    return re.compile(fnmatch.translate(pattern))
