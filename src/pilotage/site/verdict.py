"""How an ending counts: the exit code by what the job calls success, the outputs by looking."""

from __future__ import annotations

import msgspec

from pilotage import crash
from pilotage.job import retry
from pilotage.payload import report
from pilotage.payload.model import Ending, Why
from pilotage.site import launch
from pilotage.site.tenant import Tenant


def judge(tenant: Tenant, ending: Ending) -> retry.End:
    """Say what an ending means for its job."""
    ok = ending.ok
    missing: tuple[str, ...] = ()
    if ending.reason is Why.EXITED:
        ok = ending.exit in tenant.spec.ok_codes
        missing = launch.missing(tenant.outputs) if ok else ()
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
