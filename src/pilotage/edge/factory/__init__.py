"""Factories: pilots for hubs that have no way to a batch system, started by whoever has one.

    hub: pools ──▶ pilots wanted ──▶ Desk ◀──HTTPS── Feeder ──▶ Floor ──▶ guests ──▶ Factory :site
                                      └── what became of them ◀──────────────┘

The factory calls hubs, never the other way. The number that a pilot has at its hub is the key:
whatever is said twice counts once.
"""
