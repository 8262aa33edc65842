"""`pilotage event`: send and list events."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from cyclopts import App, Parameter

from pilotage.base import errors, text
from pilotage.cli import formatting
from pilotage.cli.answer import Answer, AnswerStream, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common
from pilotage.event import records
from pilotage.event.records import StoredEvent

app = App(name="event", help="Send messages, and see what happened.", group_commands="Commands")
_HEADS = columns("ID> TIME KIND CAUSE> SUBJECT")
_GLANCE_S = 0.2
_Kind = Annotated[str, Parameter(help="Only of this kind, such as `message` or `file.*`.")]


@app.command
def emit(
    topic: Annotated[str, Parameter(help="Topic, words joined by dots: `lab.scan.done`.")],
    /,
    *,
    data: Annotated[
        str, Parameter(help="JSON, or `@FILE` for the content of a file as it is.")
    ] = "",
    identity: Annotated[
        str, Parameter(name="--id", help="The same id on the same topic is one event.")
    ] = "",
    at: Common = HERE,
) -> Answer:
    """Send a message to the rules; it is on disk when this returns."""
    body = _body(data)
    with at.open() as project:
        number = project.receive(topic, body, identity)
        running = project.running()
    notes = () if running else ("nothing runs this project now; the event is kept: `pilotage up`",)
    return Answer({"event": number, "topic": topic}, (f"event {number}",), (number,), notes)


def _body(data: str) -> bytes:
    if data.startswith("@"):
        try:
            return Path(data[1:]).read_bytes()
        except OSError as error:
            message = f"cannot read `{data[1:]}`: {error.strerror}"
            raise errors.NotFound(message, hint="`--data @FILE` sends a file") from error
    try:
        return text.dump(text.load(data or "{}")).encode()
    except ValueError as error:
        message = f"`--data` is not JSON: {error}"
        raise errors.UsageError(message, hint="""write `--data '{"sample": 7}'`""") from error


@app.command
def ls(
    *,
    kind: _Kind = "*",
    most: Annotated[int, Parameter(help="Show only the newest N.")] = 50,
    at: Common = HERE,
) -> Answer:
    """List events that fired rules, and messages, the newest last."""
    with at.open() as project:
        found = records.newest(project.db, kind=kind, most=most)
    rows = tuple(
        (one.id, formatting.clock(one.event.time), one.event.kind, one.event.cause or "",
         one.event.subject) for one in found
    )  # fmt: skip
    return Answer(
        {"events": [_data(one) for one in found]},
        (Table(_HEADS, rows),) if rows else (),
        tuple(one.id for one in found),
        () if rows else ("no events",),
    )


@app.command
def tail(*, kind: _Kind = "*", at: Common = HERE) -> AnswerStream:
    """Print events as they arrive, until Ctrl-C."""
    return AnswerStream(_news(at, kind))


def _news(at: Common, kind: str) -> Iterator[Answer]:
    with at.open() as project:
        found = records.newest(project.db, most=1)
        last = found[-1].id if found else 0
        while True:
            # Oldest first, and never a gap: as many as there are, not the newest few.
            for one in records.newest(project.db, after=last, kind=kind, most=2**62):
                last = one.id
                event = one.event
                shown = line(
                    Styled(f"{formatting.clock(event.time)}  ", "dim"),
                    f"{event.kind:<14}  {text.show(event.subject)}",
                )
                yield Answer(_data(one), (shown,), (one.id,))
            time.sleep(_GLANCE_S)


def _data(one: StoredEvent) -> dict[str, Any]:
    event = one.event
    return {
        "id": one.id, "time": formatting.stamp(event.time), "kind": event.kind,
        "subject": event.subject, "version": event.version, "other": event.other,
        "data": event.data, "cause": event.cause,
    }  # fmt: skip
