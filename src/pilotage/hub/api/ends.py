"""Ends of jobs: those that were, and those that are waited for."""

from __future__ import annotations

import functools
import time

from msgspec import UNSET

from pilotage.base import text
from pilotage.hub.api import ask, tell
from pilotage.hub.api.call import Call
from pilotage.hub.api.live import Live
from pilotage.store import Db

_MOST = 1000
#: Lines of the journal that are looked at in one go.
_WINDOW = 50_000


def after(db: Db, tag: str, line: int) -> tell.Ends:
    """Read the ends that follow a line of the journal, so far as one look goes."""
    last = int(db.value("journal_last"))
    until = min(last, line + _WINDOW)
    rows = db.rows("api_ends", after=line, until=until, tag=tag, most=_MOST)
    found = [
        tell.End(seq, job, state, reason, None if body is None else text.load(body))
        for seq, job, state, reason, body in rows
    ]
    return tell.Ends(found, found[-1].seq if len(found) == _MOST else max(line, until))


async def wait(live: Live, call: Call) -> tell.Ends:
    """Answer as soon as there is an end, or when the time is up."""
    wanted: ask.EndsAsk = call.query
    deadline = time.monotonic() + wanted.wait
    if wanted.after is UNSET:
        line = int(await live.readers.ask(lambda db: db.value("journal_last")))
    else:
        line = wanted.after
    with live.watching():
        while True:
            seen = live.seen
            look = functools.partial(after, tag=wanted.tag, line=line)
            found = await live.readers.ask(look)
            moved, line = found.after > line, found.after
            left = deadline - time.monotonic()
            if found.ends or left <= 0 or live.closed:
                return found
            if not moved or line >= live.last:
                await live.moved(seen, left)
