"""What a file rule leaves out.

An exclude is a glob below the rule's base, or, without a slash, a glob on the name of the file in
whatever directory. Hidden files are left out like any others.
"""

from __future__ import annotations

from functools import lru_cache

from pilotage.rule import glob
from pilotage.rule.model import FilePattern


def excluded_by(pattern: FilePattern, directory: str, name: str) -> str:
    """Return the first exclude that matches a file, or nothing."""
    for text in pattern.exclude:
        found = compile_exclude(text, pattern.base)
        if found.name.regex.fullmatch(name) and (
            "/" not in text or found.match_directory(directory) is not None
        ):
            return text
    return ""


@lru_cache(maxsize=4096)
def compile_exclude(text: str, base: str) -> glob.Glob:
    """Parse an exclude."""
    if "/" not in text and text != "**":
        return glob.parse(f"/{text}", hidden=True) if text else glob.parse(text)
    return glob.parse(glob.absolute(text, base), hidden=True)
