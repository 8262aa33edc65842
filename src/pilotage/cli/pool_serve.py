"""`pilotage pool serve` and `pilotage pool hubs`: start pilots for hubs that have no way here."""

from __future__ import annotations

import signal

import msgspec

from pilotage.cli import shape
from pilotage.cli.answer import Answer, Cell, Style, Styled, Table, columns
from pilotage.cli.common import HERE, Common
from pilotage.edge.factory import files, view
from pilotage.edge.factory.view import Look

_INTERRUPTED = 130
_HEADS = columns("HUB STATE WANTS> WAIT> RUN> CORES> LIMIT> HEARD ABOUT")
_STYLES: dict[str, Style] = {"fed": "green", "not fed": "dim"}


def serve(*, at: Common = HERE) -> Answer:
    """Start pilots at the sites of this folder for the hubs in `hubs/`, until Ctrl-C."""
    from pilotage.cli import engine
    from pilotage.edge.factory.serve import Serve

    with at.open() as project:
        named = ", ".join(files.names(project.root)) or "nobody any more"
        words = (
            f"starts pilots for {named}",
            "`pilotage pool hubs` shows how that goes; pilots go on without this process",
        )
        choices = engine.Choices(
            serve=False, local=False, words=words,
            instead=lambda project, writer, _: Serve(project, writer),
        )  # fmt: skip
        _, heard = engine.drive(project, choices)
        found = view.hubs(project.db, project.root, project.clock.now())
    left = sum(one.waiting + one.running for one in found)
    notes = (f"{shape.count(left, 'pilot')} left at the sites; the next `pool serve` finds them",)
    data = {"project": str(project.root), "pilots": left}
    status = _INTERRUPTED if heard == signal.SIGINT else 0
    return Answer(data, notes=notes if left else (), status=status)


def hubs(*, at: Common = HERE) -> Answer:
    """List the hubs that this folder starts pilots for: what each wants, has and may have."""
    with at.open() as project:
        found = view.hubs(project.db, project.root, project.clock.now())
        idle = bool(found) and not project.running()
    notes = () if found else (f"no hubs: a hub is a file `{files.FOLDER}/NAME.toml`",)
    return Answer(
        {"hubs": [msgspec.to_builtins(one) for one in found]},
        (Table(_HEADS, tuple(_row(one) for one in found)),) if found else (),
        tuple(one.name for one in found),
        ("nothing runs this project now: `pilotage pool serve` does",) if idle else notes,
    )


def _row(one: Look) -> tuple[Cell, ...]:
    heard = shape.clock(one.heard) if one.heard else "never"
    return (
        one.name, Styled(one.state, _STYLES.get(one.state, "red")), one.wanted, one.waiting,
        one.running, one.cores, one.maximum, heard, one.trouble or one.about,
    )  # fmt: skip
