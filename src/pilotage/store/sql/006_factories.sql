-- Factories: processes at sites that start pilots for hubs which have no way there themselves.

-- In a hub: who feeds each site that only a factory reaches.
CREATE TABLE factory (
    site  TEXT PRIMARY KEY,
    -- The name that the factory has among all, and the number of its last report.
    name  TEXT    NOT NULL,
    turn  INTEGER NOT NULL,
    -- When it was heard of last, and what it said for people.
    heard REAL    NOT NULL,
    words TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

-- In a hub: pilots that had come, and of which a factory said since that their batch jobs are over.
CREATE TABLE factory_end (
    pilot INTEGER PRIMARY KEY,
    words TEXT NOT NULL
) STRICT;

-- In a factory: pilots that hubs want, from the moment that one is taken on until its hub has
-- heard of its end.
CREATE TABLE guest (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The hub, and the number that the pilot has there.
    hub    TEXT    NOT NULL,
    remote INTEGER NOT NULL,
    -- The site here, and what the hub calls it.
    site   TEXT    NOT NULL,
    theirs TEXT    NOT NULL,
    -- A `site.wish.Wish` as JSON, and how many cores that is.
    wish   TEXT    NOT NULL,
    cores  INTEGER NOT NULL,
    -- 'waits' until the batch system has it, 'submitted', 'running'; 'off' if it was called off and
    -- 'ended' if its batch job is over.
    state  TEXT    NOT NULL,
    reason TEXT    NOT NULL DEFAULT '',
    -- Why it is to be called off; empty if it is not.
    asked  TEXT    NOT NULL DEFAULT '',
    taken  REAL    NOT NULL,
    UNIQUE (hub, remote)
) STRICT;
CREATE INDEX guest_site ON guest (site, state);

-- In a factory: how it goes with each hub.
CREATE TABLE fed (
    hub     TEXT PRIMARY KEY,
    -- The number of the last report.
    turn    INTEGER NOT NULL DEFAULT 0,
    -- When it was heard of last, and what is wrong; empty if nothing is.
    heard   REAL    NOT NULL DEFAULT 0,
    trouble TEXT    NOT NULL DEFAULT '',
    -- Pilots that it wants and that were not taken on, and why not.
    wanted  INTEGER NOT NULL DEFAULT 0,
    words   TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

CREATE INDEX token_pilot ON token (pilot) WHERE pilot IS NOT NULL;
