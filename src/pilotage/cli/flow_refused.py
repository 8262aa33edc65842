"""`pilotage flow refused`: workflows that came by the broker and were not taken."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from pilotage.base import text
from pilotage.cli import shape
from pilotage.cli.answer import Answer, Styled, Table, columns
from pilotage.cli.common import HERE, Common

_HEADS = columns("WHEN USER KEY REASON")


def refused(
    *,
    limit: Annotated[int, Parameter(help="At most so many, the newest first.")] = 50,
    at: Common = HERE,
) -> Answer:
    """List workflows that came by the broker and were refused, and why."""
    with at.open() as project:
        found = project.db.rows("flows_refusals", most=max(1, limit))
    told = Table(
        _HEADS,
        tuple(
            (shape.clock(when), text.show(user), text.show(key), Styled(text.show(reason), "red"))
            for when, user, key, reason in found
        ),
    )
    return Answer(
        {
            "refused": [
                {"time": shape.stamp(when), "user": user, "key": key, "reason": reason}
                for when, user, key, reason in found
            ]
        },
        (told,) if found else (),
        tuple(one[2] for one in found),
        () if found else ("none was refused",),
    )
