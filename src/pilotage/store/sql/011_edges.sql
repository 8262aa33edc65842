-- In a hub: sites that it hears of by the bus, and whether it hears the bus.

CREATE TABLE edge_site (
    name    TEXT PRIMARY KEY,
    -- Who speaks for it, as the broker knows them.
    speaker TEXT NOT NULL,
    -- When its last heartbeat came, by the clock of this hub: the site's may be wrong.
    heard   REAL NOT NULL,
    -- 'well', 'draining', 'trouble' or 'silent', and since when.
    state   TEXT NOT NULL,
    since   REAL NOT NULL,
    -- The last times between two heartbeats, as a JSON list of seconds.
    gaps    TEXT NOT NULL DEFAULT '[]',
    -- The last `bus.model.Heartbeat`, as JSON.
    body    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- One row: how it goes with the broker.
CREATE TABLE edge_broker (
    id      INTEGER PRIMARY KEY CHECK (id = 1),
    -- Why nothing is heard; empty if we listen.
    trouble TEXT NOT NULL,
    -- Since when that is so, and when this was written down last.
    since   REAL NOT NULL,
    seen    REAL NOT NULL
) STRICT;
