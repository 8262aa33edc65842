"""`pilotage agent status`: the state of this site's agent, and refused jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from pilotage.agent import pilots, records
from pilotage.agent import status as look
from pilotage.agent.app.model import Application
from pilotage.agent.model import RefusedMessage
from pilotage.agent.pilots import HubPilots
from pilotage.agent.registry import Registry
from pilotage.agent.status import AgentStatus, ConnectionStatus
from pilotage.base import units
from pilotage.bus.fields import State
from pilotage.cli import formatting
from pilotage.cli.agent import open_project
from pilotage.cli.answer import Answer, Cell, Shown, Style, Styled, Table, columns, line
from pilotage.cli.common import HERE, Common

_HEADS = columns("WHEN USER CODE REASON")
_HUBS = columns("HUB STATE SITE ORDERED> WAIT> RUN> CORES> LIMIT> SINCE ABOUT")
_FEW = 10
#: Days below which the lifetime of a certificate is a warning.
_WORRY_DAYS = 14


def status(
    folder: Annotated[
        Path | None, Parameter(help="Folder of `agent.toml`; else the project from here upwards.")
    ] = None,
    /,
    *,
    refused: Annotated[int, Parameter(help="Refused messages to show, the newest.")] = _FEW,
    at: Common = HERE,
) -> Answer:
    """Show the state of this site's agent: connection, batch system, jobs, refusals."""
    with open_project(folder, at) as project:
        seen, runs = look.read(project.state), project.running()
        counts, held = records.counts(project.db), pilots.held(project.db)
        app = pilots.found(Registry(project.root).find)
        waiting, bad = records.waiting(project.db), records.refused(project.db, refused)
    word, style = _word(seen, runs=runs)
    facts = _facts(seen, counts, waiting)
    shown: list[Shown] = [
        line(Styled(f"agent of {seen.beat.site}", "bold"), "  ", Styled(word, style)),
        *(formatting.pair(name, value) for name, value in facts.items() if value),
    ]
    if len(seen.carriers) > 1:
        rows = tuple(_hub(one, held.get(one.user, HubPilots()), app) for one in seen.carriers)
        shown += ["", Table(_HUBS, rows)]
    if bad:
        shown += ["", Table(_HEADS, tuple(_row(one) for one in bad))]
    data = msgspec.to_builtins(seen) | {
        "state": word, "running": runs, "counts": counts, "outbox": waiting,
        "refused": msgspec.to_builtins(bad), "pilots": msgspec.to_builtins(held),
    }  # fmt: skip
    notes = () if runs else ("nothing serves the site now: `pilotage agent run` does",)
    return Answer({"agent": data}, tuple(shown), (seen.beat.site,), notes, status=0 if runs else 1)


def _word(seen: AgentStatus, *, runs: bool) -> tuple[str, Style]:
    """Return in a word how it is; the worst comes first."""
    if not runs:
        return "not running", "red"
    if seen.carriers and all(one.trouble for one in seen.carriers):
        return f"no {seen.carriers[0].kind}", "red"
    if not seen.beat.scheduler.well:
        return "no batch system", "red"
    if any(one.trouble for one in seen.carriers) or seen.parts or seen.settings or seen.waits:
        return "has trouble", "yellow"
    return ("drained", "yellow") if seen.beat.draining else ("well", "green")


def _facts(seen: AgentStatus, counts: Mapping[State, int], waiting: int) -> dict[str, str]:
    beat, scheduler = seen.beat, seen.beat.scheduler
    # Several have a table of their own.
    only = seen.carriers if len(seen.carriers) == 1 else ()
    jobs = ", ".join(f"{count} {word.replace('_', ' ')}" for word, count in counts.items() if count)
    return {
        "since": formatting.clock(beat.since),
        "version": f"{beat.version}, epoch {beat.epoch}",
        **{one.kind: _since(one.trouble or "connected", one.since) for one in only},
        "batch": _since(f"{scheduler.batch}: {scheduler.text or 'answers'}", scheduler.since),
        "jobs": jobs or "none",
        "outbox": f"{formatting.count(waiting, 'status message')} not sent yet" if waiting else "",
        "certificate": _days(beat.certificate_days),
        "disk": f"{units.bytes_for_people(beat.disk_free)} free",
        "settings": seen.settings,
        "trouble": "; ".join(f"{name}: {words}" for name, words in seen.parts.items()),
        "apps": "; ".join(f"{name}: {words}" for name, words in seen.waits.items()),
    }


def _since(words: str, when: float) -> str:
    return f"{words}, since {formatting.clock(when)}" if when else words


def _days(days: float | None) -> str:
    if days is None:
        return ""
    whole = formatting.count(round(abs(days)), "day")
    if days < 0:
        return f"ended {whole} ago: renew it, the agent takes the new one by itself"
    return f"{whole} left" + (": renew it soon" if days < _WORRY_DAYS else "")


def _hub(one: ConnectionStatus, held: HubPilots, app: Application | None) -> tuple[Cell, ...]:
    """Write how it goes with one of several carriers, and which pilots it has here."""
    state = Styled("away", "red") if one.trouble else Styled("connected", "green")
    limit = app.limits_of(one.user).maximum if app and one.user else ""
    why = one.trouble or held.why
    return (
        one.name or one.kind, state, one.site, held.ordered, held.queued, held.running, held.cores,
        limit, formatting.clock(one.since), why,
    )  # fmt: skip


def _row(one: RefusedMessage) -> tuple[str, ...]:
    return formatting.clock(one.time), one.user or "-", one.code, one.reason
