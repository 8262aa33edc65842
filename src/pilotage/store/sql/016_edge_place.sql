-- Attempts of jobs that were sent to sites with an agent.
CREATE TABLE edge_attempt (
    job     INTEGER NOT NULL,
    number  INTEGER NOT NULL,
    site    TEXT    NOT NULL,
    -- What the site said last: its state, the reason, and the class and code of that.
    state   TEXT    NOT NULL DEFAULT '',
    reason  TEXT    NOT NULL DEFAULT '',
    kind    TEXT    NOT NULL DEFAULT '',
    code    TEXT    NOT NULL DEFAULT '',
    -- The highest number among the messages about it.
    seq     INTEGER NOT NULL DEFAULT 0,
    -- How often the site was told to cancel it.
    cancel  INTEGER NOT NULL DEFAULT 0,
    created REAL    NOT NULL,
    -- When the broker took it, when the site was last heard on it and last asked about it.
    sent    REAL,
    heard   REAL,
    asked   REAL,
    -- When it began to run and when it ended, by the clock of the site.
    began   REAL,
    stopped REAL,
    -- The folder that it leaves its outputs in, as this hub names it; '' if it leaves none.
    place   TEXT    NOT NULL DEFAULT '',
    -- The digest of the manifest there, as the site told it, and bytes that it read.
    digest  TEXT    NOT NULL DEFAULT '',
    read    INTEGER NOT NULL DEFAULT 0,
    -- The ends of its two streams in base64, until they are in the folder of the attempt.
    stdout  TEXT    NOT NULL DEFAULT '',
    stderr  TEXT    NOT NULL DEFAULT '',
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

-- Messages to sites, each until it need not be sent again: a job until its site was heard on it.
CREATE TABLE edge_message (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The attempt that it is about; 0 if it is about many.
    job    INTEGER NOT NULL,
    number INTEGER NOT NULL,
    -- `job` or `control`.
    kind   TEXT    NOT NULL,
    topic  TEXT    NOT NULL,
    body   TEXT    NOT NULL,
    -- Tries so far, and when the next may be.
    tries  INTEGER NOT NULL DEFAULT 0,
    after  REAL    NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX edge_message_due ON edge_message (after);
CREATE INDEX edge_message_of ON edge_message (job, number);

CREATE TRIGGER edge_attempt_forgotten AFTER DELETE ON job
BEGIN
    DELETE FROM edge_attempt WHERE job = OLD.id;
    DELETE FROM edge_message WHERE job = OLD.id;
END;
