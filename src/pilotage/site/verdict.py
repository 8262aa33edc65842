"""How an ending counts: the exit code by what the job calls success, the outputs by looking."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from pilotage import crash
from pilotage.job import model, retry
from pilotage.payload import report
from pilotage.payload.model import Ending, Why


def judge(spec: model.JobSpec, ending: Ending, look: Callable[[], tuple[str, ...]]) -> retry.End:
    """Say what an ending means for its job; `look` names declared outputs that are not there."""
    ok = ending.ok
    missing: tuple[str, ...] = ()
    if ending.reason is Why.EXITED:
        ok = ending.exit in spec.ok_codes
        missing = look() if ok else ()
    crash.point("result.checked")
    end = retry.End(
        ok=ok,
        message=ending.message,
        lost=ending.reason is Why.LOST,
        stopped=ending.reason is Why.STOPPED,
        missing=missing,
        exit=ending.exit,
        signal=ending.signal,
        result=report.result(ending) if ok else "",
    )
    usage = ending.usage
    if usage is None:
        return end
    return msgspec.structs.replace(
        end,
        cpu=usage.cpu_user + usage.cpu_system,
        wall=usage.wall,
        max_rss=usage.max_rss,
        read_bytes=usage.read_bytes,
        written_bytes=usage.written_bytes,
    )
