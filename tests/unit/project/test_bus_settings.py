"""The table `bus` of a project names all that a connection to the broker needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pilotage.edge import broker
from pilotage.project import settings


@pytest.mark.anyio
async def test_a_project_names_how_long_its_broker_may_take(tmp_path: Path) -> None:
    (tmp_path / settings.FILE).write_text(
        '[bus]\nurl = "amqps://broker.example.org/"\npatience = 10.0\nheartbeat = 5\n'
    )
    found = settings.read(tmp_path).bus
    assert (found.patience, found.heartbeat) == (10.0, 5)
    broker.connect(found, tmp_path)
