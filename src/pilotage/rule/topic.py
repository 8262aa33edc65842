"""Topics of messages and names of jobs, by wildcard."""

from __future__ import annotations

import fnmatch
import re
from functools import lru_cache


def topic_match(pattern: str, topic: str) -> bool:
    """Tell whether a topic matches: `*` stays in one word, the word `**` is any number of words."""
    return topic_regex(pattern).fullmatch("." + topic) is not None


def name_match(pattern: str, name: str) -> bool:
    """Tell whether the name of a job matches a glob."""
    return name_regex(pattern).fullmatch(name) is not None


@lru_cache(maxsize=4096)
def topic_regex(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of topics; the topic is matched with a dot before it."""
    return re.compile("".join(_word(word) for word in pattern.split(".")), re.DOTALL)


@lru_cache(maxsize=4096)
def name_regex(pattern: str) -> re.Pattern[str]:
    """Compile a glob of names."""
    return re.compile(fnmatch.translate(pattern))


def _word(word: str) -> str:
    if word == "**":
        return r"(?:\.[^.]*)*"
    if word == "*":
        return r"\.[^.]+"
    return r"\." + re.sub(r"(?:\\\*)+", "[^.]*", re.escape(word))
