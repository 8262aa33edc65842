-- Pools that steer themselves: what each wants and why, and how it went.

CREATE TABLE pool (
    name     TEXT PRIMARY KEY,
    -- Cores that it was asked to provide.
    demand   REAL NOT NULL DEFAULT 0,
    -- What its controller wants to be handed the next time, as JSON.
    state    TEXT NOT NULL DEFAULT 'null',
    -- What is remembered of its site: a `pool.law.model.Care` as JSON, and when a pilot last died.
    care     TEXT NOT NULL DEFAULT '{}',
    died     REAL NOT NULL DEFAULT 0,
    -- When it was looked at last, and what was seen: a `hub.pool_model.Seen` as JSON.
    looked   REAL NOT NULL DEFAULT 0,
    seen     TEXT NOT NULL DEFAULT '',
    -- What was decided last, in words.
    words    TEXT NOT NULL DEFAULT '',
    -- '' or 'paused', and why; by a person or by itself.
    asked    TEXT NOT NULL DEFAULT '',
    reason   TEXT NOT NULL DEFAULT '',
    -- What a person has set instead of what the file says: a `hub.pool_model.Set` as JSON.
    changed  TEXT NOT NULL DEFAULT '{}'
) STRICT, WITHOUT ROWID;

-- What our law remembers of kinds of jobs: a `pool.law.model.Need` as JSON.
CREATE TABLE pool_need (
    name TEXT PRIMARY KEY,
    body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- How pools were, for pictures; a fraction that is not defined is NULL.
CREATE TABLE pool_sample (
    time        REAL NOT NULL,
    pool        TEXT NOT NULL,
    supply      REAL NOT NULL,
    demand      REAL NOT NULL,
    utilisation REAL,
    allocation  REAL,
    queued      REAL NOT NULL,
    waiting     REAL NOT NULL,
    PRIMARY KEY (time, pool)
) STRICT, WITHOUT ROWID;

-- When a pool asked for a pilot.
ALTER TABLE pilot ADD COLUMN wanted REAL NOT NULL DEFAULT 0;
CREATE INDEX pilot_ended ON pilot (ended) WHERE ended IS NOT NULL AND pool <> '';
