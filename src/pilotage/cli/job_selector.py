"""Selectors of jobs on the command line."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from pilotage.base import errors
from pilotage.job.model import State

if TYPE_CHECKING:
    from pilotage.hub.project import Project
    from pilotage.job.records import Selection

EXAMPLES = "write `42`, `3-9`, `1,4,7-9`, `last`, `last~2`, `all`, `@tag`, `failed` or a name"
HELP = "Jobs: 42, 3-9, last, all, failed, @tag or a name; `pilotage help selectors` has all."
_END = 2**62
_RANGE = re.compile(r"(\d{1,18})(?:-(\d{1,18}))?", re.ASCII)
_LAST = re.compile(r"last(?:~(\d{1,18}))?", re.ASCII)
_NAME = re.compile(r"[\w*?\[][\w*?\[\]!.:/+ -]*")


class Numbers(msgspec.Struct, frozen=True):
    """Jobs by number, both ends included."""

    first: int
    last: int


class Last(msgspec.Struct, frozen=True):
    """The newest job, or the Nth before it."""

    back: int = 0


class Tagged(msgspec.Struct, frozen=True):
    """Jobs with a label."""

    tag: str


class InState(msgspec.Struct, frozen=True):
    """Jobs in a state."""

    state: State


class Named(msgspec.Struct, frozen=True):
    """Jobs by name or glob."""

    name: str


Wanted = Numbers | Last | Tagged | InState | Named


def parse(text: str) -> list[Wanted]:
    """Read a selector; its parts are joined by commas."""
    return [_part(part.strip(), text) for part in text.split(",")]


def _part(part: str, whole: str) -> Wanted:
    if part == "all":
        return Numbers(0, _END)
    if numbers := _RANGE.fullmatch(part):
        first, last = int(numbers[1]), int(numbers[2] or numbers[1])
        if first > last:
            message = f"`{whole}` goes backwards: {first} is after {last}"
            raise errors.BadSelector(message, hint=f"write `{last}-{first}`")
        return Numbers(first, last)
    if last_one := _LAST.fullmatch(part):
        return Last(int(last_one[1] or 0))
    if part.startswith("@") and len(part) > 1:
        return Tagged(part[1:])
    if part in {str(state) for state in State}:
        return InState(State(part))
    if _NAME.fullmatch(part) and not part.startswith("last~"):
        return Named(part)
    message = f"cannot understand the selector `{whole}`"
    raise errors.BadSelector(message, hint=EXAMPLES)


def numbers(project: Project, texts: Sequence[str]) -> list[int]:
    """Find the jobs that are meant, each once, in order."""
    found: set[int] = set()
    for text in texts:
        for wanted in parse(text):
            found.update(_find(project, wanted))
    return sorted(found)


def _find(project: Project, wanted: Wanted) -> list[int]:
    match wanted:
        case Numbers(first=first, last=last):
            found = _ids(project, first=first, last=last)
            if not found and last != _END:
                raise _missing(f"job {first}" if first == last else f"job from {first} to {last}")
            return found
        case Last(back=back):
            found = _ids(project)
            if back >= len(found):
                raise _missing("job" if not found else f"job so far back: {len(found)} in all")
            return [found[-1 - back]]
        case Tagged(tag=tag):
            return _ids(project, tag=tag) or _none(f"job with the tag `{tag}`")
        case InState(state=state):
            return _ids(project, states=(state,))
        case Named(name=name):
            return _ids(project, name=name) or _none(
                f"job with the name `{name}`", _closest(project, name)
            )


def _ids(project: Project, **facts: object) -> list[int]:
    from pilotage.job.records import Selection

    selection: Selection = msgspec.convert(facts, Selection)
    values = selection.values()
    wanted = {key: values[key] for key in ("first", "last", "states", "name", "tag")}
    return [row[0] for row in project.db.rows("job_ids", **wanted)]


def _none(what: str, hint: str = "") -> list[int]:
    raise _missing(what, hint)


def _missing(what: str, hint: str = "") -> errors.NotFound:
    return errors.NotFound(f"there is no {what}", hint=hint or "`pilotage job ls` lists the jobs")


def _closest(project: Project, name: str) -> str:
    known = {row[0] for row in project.db.rows("job_counts")}
    words = [*known, *(str(state) for state in State), "last", "all"]
    close = difflib.get_close_matches(name, words, n=1)
    return f"did you mean `{close[0]}`?" if close else EXAMPLES
