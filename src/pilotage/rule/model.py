"""Data types of rules: patterns, limits and the rule itself.

A rule is a pattern and the definition of a job. A rule that names a recipe is in force as long as
that recipe exists.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pilotage.event.model import Event, EventKind
from pilotage.job.model import JobSpec, State

#: What a file rule fires on unless it says otherwise: complete files only.
COMPLETE = frozenset({EventKind.FILE_CLOSED, EventKind.FILE_MOVED, EventKind.FILE_EXISTING})


class Gather(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Several files, one job."""

    #: Template of what the files of one set share, such as `"{match.scan}"`.
    by: str = ""
    #: So many different files make a set complete.
    count: int | None = None
    #: Template of the item that distinguishes the files of a set; together with `values`.
    item: str = ""
    #: All these items make a set complete.
    values: tuple[str, ...] = ()


class Rate(msgspec.Struct, frozen=True):
    """At most this many jobs in a span of time; more are delayed, never dropped."""

    #: Jobs.
    count: int
    #: Seconds.
    per: float


class FilePattern(msgspec.Struct, frozen=True, tag="file", tag_field="kind"):
    """Files and directories by path."""

    #: Absolute globs; `*` stays in one directory, `**` does not, `{name}` captures.
    globs: tuple[str, ...] = ()
    #: A regular expression on the path below `base`; named groups become parameters.
    regex: str = ""
    #: The directory that relative paths of the rule start from.
    base: str = "/"
    #: Globs of what is left out.
    exclude: tuple[str, ...] = ()
    #: What may have happened.
    events: frozenset[EventKind] = COMPLETE
    #: Bounds on the size in bytes.
    min_size: int = 0
    max_size: int | None = None
    #: The file must have been unchanged for this many seconds; the rule waits for it.
    min_age: float = 0.0
    #: Files last changed longer ago are ignored.
    max_age: float | None = None
    #: Wait until nothing has happened to the file for this many seconds.
    settle: float = 0.0
    #: Several files, one job.
    gather: Gather | None = None
    #: What makes a version: the file's inode, size and time, or its SHA-256.
    version: Literal["stat", "content"] = "stat"

    def too_small(self, event: Event) -> bool:
        """Return whether a file is below `min_size`; a file that is gone has no size."""
        gone = event.kind in (EventKind.FILE_DELETED, EventKind.FILE_MOVED_FROM)
        return event.size < self.min_size and not gone


class TimerPattern(msgspec.Struct, frozen=True, tag="timer", tag_field="kind"):
    """Points in time."""

    #: Seconds between ticks.
    every: float | None = None
    #: Minute, hour, day of month, month, day of week.
    cron: str = ""
    #: Time zone of `cron`.
    zone: str = "UTC"
    #: What is made up for after a pause: nothing, the last missed tick, or all.
    catch_up: Literal["none", "one", "all"] = "one"


class MessagePattern(msgspec.Struct, frozen=True, tag="message", tag_field="kind"):
    """Messages by topic: from the bus, HTTP, TCP or `pilotage event emit`."""

    #: Topics; `*` stands for one word between dots, `**` for any number.
    topics: tuple[str, ...]
    #: A TCP port on which this rule listens; each connection is a message.
    port: int | None = None


class JobPattern(msgspec.Struct, frozen=True, tag="job", tag_field="kind"):
    """Jobs that ended."""

    #: Globs of names (that is, of the rules that made the jobs).
    names: tuple[str, ...]
    #: In which states.
    states: frozenset[State] = frozenset({State.DONE})


Pattern = FilePattern | TimerPattern | MessagePattern | JobPattern


class Rule(msgspec.Struct, frozen=True):
    """What to wait for, and the job to make then."""

    #: Unique among all rule files of a project.
    name: str
    #: What it waits for.
    pattern: Pattern
    #: What each job is.
    spec: JobSpec
    #: The points of its sweep; one job each.
    points: tuple[dict[str, Any], ...] = ({},)
    #: At most this many jobs in a span of time.
    rate: Rate | None = None
    #: How often the rule may stand among the ancestors of its own job before the job is held.
    max_depth: int = 100
    #: How often a minute the same file may fire the rule before the job is held.
    max_repeats: int = 60
    #: Whether the SHA-256 of the trigger is recorded at match time.
    sha256: bool = False
    #: Whether it takes events.
    enabled: bool = True
    #: The rule file and the line that it came from.
    book: str = ""
    line: int | None = None
