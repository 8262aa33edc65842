-- Sites with a batch system: what was asked of it, durably, before it was asked.

CREATE TABLE site (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    -- What is wrong, in words; empty if nothing is.
    trouble TEXT NOT NULL DEFAULT '',
    -- Since when it is as it is, and when this was written down last.
    since   REAL NOT NULL DEFAULT 0,
    seen    REAL NOT NULL DEFAULT 0,
    -- What the hand at the site said of itself, as JSON.
    facts   TEXT NOT NULL DEFAULT '{}',
    -- What a person asked for: '' or 'drain'.
    asked   TEXT NOT NULL DEFAULT ''
) STRICT;

-- One call of a batch system's submit command, however many jobs or pilots it is for. The row is
-- there before the call, and its key is the name that the batch system knows it by.
CREATE TABLE submission (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    key     TEXT NOT NULL UNIQUE,
    site    TEXT NOT NULL,
    -- Which batch system of the site: its own, or `local`.
    batch   TEXT NOT NULL,
    -- A `site.batch.model.Order` as JSON.
    body    TEXT NOT NULL,
    -- 'intent' before the batch system said its id, 'known' after, 'over'.
    state   TEXT NOT NULL,
    -- The id that the batch system gave.
    number  TEXT NOT NULL DEFAULT '',
    tries   INTEGER NOT NULL DEFAULT 1,
    created REAL NOT NULL,
    ended   REAL,
    -- The last word about it.
    reason  TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX submission_live ON submission (site, id) WHERE state <> 'over';

-- What a submission is for: attempts of jobs, or pilots, by their number in the array.
CREATE TABLE submitted (
    submission INTEGER NOT NULL REFERENCES submission ON DELETE CASCADE,
    place      INTEGER NOT NULL,
    job        INTEGER,
    attempt    INTEGER,
    pilot      INTEGER,
    -- 'out' while it may run, 'over' once it has ended.
    state      TEXT NOT NULL DEFAULT 'out',
    PRIMARY KEY (submission, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX submitted_job ON submitted (job, attempt) WHERE job IS NOT NULL;
CREATE INDEX submitted_pilot ON submitted (pilot) WHERE pilot IS NOT NULL;

-- What was asked for when a pilot was: a `site.wish.Wish` as JSON.
ALTER TABLE pilot ADD COLUMN wish TEXT NOT NULL DEFAULT '';

-- A token may be for one pilot that was asked for, which then is that pilot.
ALTER TABLE token ADD COLUMN pilot INTEGER;
