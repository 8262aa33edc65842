"""Pools: readings of pilots and waiting jobs in, orders for pilots out, with the reason of each.

Controllers decide from a reading, decorators change the demand on its way, composites split it:

    Controller ─demand─▶ Decorator ─demand─▶ Composite ─demand─▶ Pool ─▶ pilots
               ◀reading─           ◀reading─           ◀reading─

`pipeline` joins them by `>>`. Decisions are pure functions of a reading, the elapsed time and a
state; `service` runs them for all pools of a hub, `drive` runs a pipeline from another process,
`providers` order the pilots, and `simulate` tests policies.
"""
