-- The data of workflows: what jobs of an agent have sent, and what a hub has asked for again.

-- Beside a job that came as a message: what it has sent, and the bytes that were brought to it.
CREATE TABLE edge_left (
    job   INTEGER PRIMARY KEY,
    -- A list of `bus.model.Left` as JSON.
    left  TEXT    NOT NULL DEFAULT '[]',
    read  INTEGER NOT NULL DEFAULT 0
) STRICT;

-- Jobs whose outputs are to be sent once more.
CREATE TABLE edge_resend (
    job  INTEGER PRIMARY KEY,
    time REAL    NOT NULL
) STRICT;

CREATE TRIGGER edge_left_forgotten AFTER DELETE ON job
WHEN EXISTS (SELECT 1 FROM edge_left WHERE job = OLD.id)
BEGIN
    DELETE FROM edge_left WHERE job = OLD.id;
    DELETE FROM edge_resend WHERE job = OLD.id;
END;

-- Attempts whose data was asked for again: once only, each.
CREATE TABLE flow_resend (
    task   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- What was wrong with it, and when it was asked for.
    reason TEXT    NOT NULL,
    time   REAL    NOT NULL,
    -- When the site said what came of it.
    told   REAL,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;

-- Flows whose data is being removed.
CREATE TABLE flow_clearing (
    flow INTEGER PRIMARY KEY
) STRICT;

-- Flows that are over and whose data is still there.
CREATE INDEX flow_uncleared ON flow (ended) WHERE cleared IS NULL AND parent IS NULL;

-- Flows that may be forgotten.
CREATE INDEX flow_cleared ON flow (ended) WHERE cleared IS NOT NULL AND parent IS NULL;
