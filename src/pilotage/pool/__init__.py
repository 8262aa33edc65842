"""Pools: what pilots are given to do comes in, how many there shall be goes out.

    Controller ─demand─▶ Shape ─demand─▶ Composite ─demand─▶ Pool ─▶ pilots
               ◀reading─       ◀reading─           ◀reading─

`model` has the nouns, `fitness` says how well a pilot is used, `control` decides, `shape` changes
what was decided, `compose` makes one pool of many, `pipeline` joins them by `>>`, and `config`
reads COBalD's files. Nothing there sleeps: what is decided depends on a reading, on the time that
has passed and on a state, all of them handed in. `outside` is what somebody asks of a pool of a hub
from outside; `drive` is who does, with a `remote` pool whose failures are `guarded`.
"""
