"""Factories: what they have is reported, and they hear what is wanted."""

from __future__ import annotations

from pilotage.edge.factory import desk, wire
from pilotage.hub.api.call import Call
from pilotage.store import Db


def sync(db: Db, call: Call) -> wire.FactoryOrders:
    """Hear a report, and say what is wanted."""
    return desk.sync(db, call.hands.project.root, call.grant, call.body, call.now)


def enrol(db: Db, call: Call) -> wire.FactorySecrets:
    """Make secrets for pilots that are about to be submitted."""
    return desk.enrol(db, call.hands.project.root, call.grant, call.body, call.now)
