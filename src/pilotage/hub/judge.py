"""How an end that a pilot reports counts."""

from __future__ import annotations

from pilotage import text
from pilotage.hub import border
from pilotage.hub.roster import Held
from pilotage.job import retry
from pilotage.payload.model import Why
from pilotage.pilot.model import End


def judge(held: Held, end: End) -> retry.End:
    """Say what an end means for its job."""
    exited = end.reason == Why.EXITED
    ok = exited and end.exit in (held.spec.ok_codes if held.spec else (0,))
    usage = end.usage
    return retry.End(
        ok=ok,
        message=text.show(end.message)[:2000] if end.message else "",
        lost=end.reason == Why.LOST,
        stopped=end.reason == Why.STOPPED,
        missing=end.missing if ok else (),
        exit=border.number(end.exit),
        signal=border.number(end.signal),
        result="" if end.result is None else text.dump(end.result),
        cpu=border.size(usage.cpu_user + usage.cpu_system) if usage else None,
        wall=border.size(usage.wall) if usage else None,
        max_rss=border.number(usage.max_rss) if usage else None,
        read_bytes=border.number(usage.read_bytes) if usage else None,
        written_bytes=border.number(usage.written_bytes) if usage else None,
    )
