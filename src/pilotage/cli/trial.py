"""`pilotage rule test`: show which rules an event would fire, and their jobs."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from pilotage.base import errors, text
from pilotage.base.names import closest
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, Shown, Styled, line
from pilotage.cli.common import HERE, Common
from pilotage.event.model import Event, EventKind, FileVersion
from pilotage.hub.project import Project
from pilotage.rule import dryrun
from pilotage.rule.dryrun import Trial
from pilotage.rule.model import Rule

_FEW = 5


def trial(
    *,
    event: Annotated[str, Parameter(help="The file that it would happen to.")] = "",
    kind: Annotated[
        str, Parameter(help="What would happen: closed, created, deleted, …")
    ] = "closed",
    topic: Annotated[str, Parameter(help="Instead of a file: the topic of a message.")] = "",
    data: Annotated[str, Parameter(help="The fields of the message, as JSON.")] = "{}",
    every: Annotated[
        bool, Parameter(name=("--all", "-a"), help="Show also the rules that do not fire.")
    ] = False,
    at: Common = HERE,
) -> Answer:
    """Show which rules an event would fire and which jobs they would make; run nothing."""
    if bool(event) == bool(topic):
        message = "give either `--event FILE` or `--topic TOPIC`"
        raise errors.UsageError(message, hint="`pilotage rule test --event inbox/hi.txt`")
    with at.open() as project:
        now = project.clock.now()
        happened = _message(topic, data, now) if topic else _file(event, kind, now)
        report = dryrun.dry_run(_rules(project), happened, now, str(project.root))
    fired = [one for one in report.trials if one.verdict.fires]
    shown: list[Shown] = [line(Styled(f"{happened.kind} ", "dim"), text.show(happened.subject))]
    for one in report.trials:
        if one.verdict.fires or every or not fired:
            shown += _trial(one)
    notes = [] if os.path.lexists(happened.subject) or topic else ["there is no such file yet"]
    if not report.trials:
        notes.append("there are no rules")
    data_out = {"event": msgspec.to_builtins(happened), "rules": msgspec.to_builtins(report.trials)}
    return Answer(data_out, tuple(shown), tuple(one.rule for one in fired), tuple(notes))


def _rules(project: Project) -> list[Rule]:
    loaded, known = project.read_books(), project.rules()
    for error in loaded.failed.values():
        raise error
    return [
        msgspec.structs.replace(rule, enabled=known[name].enabled) if name in known else rule
        for name, rule in loaded.rules.items()
    ]


def _file(path: str, kind: str, now: float) -> Event:
    subject = os.path.abspath(path)
    word = kind if "." in kind else f"file.{kind}"
    kinds = {str(one): one for one in EventKind}
    if word not in kinds:
        known = [one.removeprefix("file.") for one in kinds if "." in one]
        raise errors.UsageError(f"there is no kind of event `{kind}`", hint=closest(kind, known))
    try:
        found = Path(subject).stat()
    except OSError:
        return Event(kinds[word], subject, now, mtime=now)
    version = FileVersion(found.st_ino, found.st_size, found.st_mtime_ns)
    return Event(kinds[word], subject, now, str(version), size=found.st_size, mtime=found.st_mtime)


def _message(topic: str, data: str, now: float) -> Event:
    try:
        fields: Any = text.load(data)
    except ValueError as error:
        message = f"`--data` is not JSON: {error}"
        raise errors.UsageError(message, hint="""write `--data '{"sample": 7}'`""") from error
    if not isinstance(fields, dict):
        raise errors.UsageError("`--data` is not a JSON object", hint="""write `{"sample": 7}`""")
    return Event(EventKind.MESSAGE, topic, now, data=fields)


def _trial(one: Trial) -> list[Shown]:
    if not one.verdict.fires:
        reasons = one.verdict.reasons
        return [line(Styled("✘", "red"), f" {one.rule}"), *(f"    {why}" for why in reasons)]
    words = f" {one.rule}  makes {formatting.count(one.count, one.what)}"
    shown: list[Shown] = [line(Styled("✔", "green"), words)]
    shown += [f"    {one.note}"] if one.note else []
    for job in one.jobs[:_FEW]:
        point = ", ".join(f"{name} = {value}" for name, value in job.sweep.items())
        shown.append(f"    {text.show(shlex.join(job.argv))}{'  # ' if point else ''}{point}")
        shown += [
            line(Styled(f"      → {text.show(path)}", "dim")) for path in job.outputs.values()
        ]
    if one.count > _FEW:
        shown.append(f"    … and {one.count - _FEW} more")
    return shown
