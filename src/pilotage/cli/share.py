"""`pilotage share`: usage and fair shares of owners."""

from __future__ import annotations

import msgspec

from pilotage.base import units
from pilotage.cli.answer import Answer, Table, columns
from pilotage.cli.common import HERE, Common

_HEADS = columns("OWNER RUNNING> QUEUED> USED> SHARE> TOTAL> WEIGHT> QUOTA>")


def share(*, at: Common = HERE) -> Answer:
    """Show the usage and fair shares of owners; the least served come first."""
    from pilotage.pilot import view

    with at.open() as project:
        settings = project.settings.share
        found = view.shares(project.db, settings, project.clock.now())
    everything = sum(one.usage for one in found if not one.owner.endswith("/"))
    rows = tuple(
        (
            one.owner, one.running, one.queued, units.for_people(one.usage),
            f"{one.usage / everything:.0%}" if everything else "", units.for_people(one.total),
            f"{one.weight:g}", one.quota or "any",
        )
        for one in sorted(found, key=lambda one: one.usage / one.weight)
    )  # fmt: skip
    half = f"core time; use of {settings.half_life} ago counts half"
    return Answer(
        {"half_life": units.seconds(settings.half_life), "shares": msgspec.to_builtins(found)},
        (Table(_HEADS, rows),) if rows else (),
        tuple(one.owner for one in found),
        (half if rows else "no usage yet",),
    )
