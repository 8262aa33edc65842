-- The first schema: one project on one machine.
-- Times are seconds since 1970 UTC; paths are stored as `pilotage.base.text.store_path` writes them.

-- What is known of each file and directory in scope. A row changes in the same transaction as the
-- jobs that its events made, so that a scan after a crash finds exactly what was not yet taken.
CREATE TABLE file (
    dir      TEXT    NOT NULL,
    name     TEXT    NOT NULL,
    is_dir   INTEGER NOT NULL,
    inode    INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    PRIMARY KEY (dir, name)
) STRICT, WITHOUT ROWID;

-- Events that fired a rule, and all messages, timers and ends of jobs that were taken in.
CREATE TABLE event (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    time    REAL    NOT NULL,
    kind    TEXT    NOT NULL,
    subject TEXT    NOT NULL,
    version TEXT    NOT NULL,
    data    TEXT    NOT NULL,
    cause   INTEGER,
    -- 1 once its jobs are made; a message is stored before it is matched.
    taken   INTEGER NOT NULL
) STRICT;
CREATE INDEX event_waiting ON event (id) WHERE taken = 0;
-- The same message, by its identity, is one event.
CREATE UNIQUE INDEX event_message ON event (subject, version) WHERE kind = 'message';

-- Definitions of jobs, stored once each.
CREATE TABLE spec (
    id       INTEGER PRIMARY KEY,
    digest   TEXT    NOT NULL UNIQUE,
    name     TEXT    NOT NULL,
    priority INTEGER NOT NULL,
    body     TEXT    NOT NULL
) STRICT;

CREATE TABLE job (
    -- Never given again, also when the job with the highest number is forgotten.
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    key        TEXT UNIQUE,
    name       TEXT    NOT NULL,
    rule       TEXT    NOT NULL,
    spec       INTEGER NOT NULL REFERENCES spec,
    binding    TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    priority   INTEGER NOT NULL,
    not_before REAL    NOT NULL,
    limit_key  TEXT    NOT NULL,
    attempt    INTEGER NOT NULL,
    -- Attempts that failed on the job's own account; lost ones are not counted.
    failures   INTEGER NOT NULL,
    created    REAL    NOT NULL,
    started    REAL,
    ended      REAL,
    event      INTEGER,
    parent     INTEGER,
    depth      INTEGER NOT NULL,
    tag        TEXT    NOT NULL,
    -- What a person asked for while it ran: '', 'cancel' or 'hold'.
    asked      TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX job_queue ON job (priority DESC, id) WHERE state = 'queued';
CREATE INDEX job_delayed ON job (not_before) WHERE state = 'queued' AND not_before > 0;
CREATE INDEX job_live ON job (state, id) WHERE state NOT IN ('done', 'failed', 'cancelled', 'rejected');
CREATE INDEX job_asked ON job (id) WHERE asked <> '';

-- Keys of jobs that were forgotten: their events must not make them again.
CREATE TABLE spent (
    key TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Which jobs a waiting job waits for.
CREATE TABLE dependency (
    job INTEGER NOT NULL,
    on_job INTEGER NOT NULL,
    PRIMARY KEY (job, on_job)
) STRICT, WITHOUT ROWID;
CREATE INDEX dependency_reverse ON dependency (on_job, job);

CREATE TABLE attempt (
    job           INTEGER NOT NULL,
    number        INTEGER NOT NULL,
    state         TEXT    NOT NULL,
    dir           TEXT    NOT NULL,
    starter       TEXT    NOT NULL,
    started       REAL    NOT NULL,
    ended         REAL,
    pid           INTEGER,
    exit          INTEGER,
    signal        INTEGER,
    reason        TEXT    NOT NULL DEFAULT '',
    cpu           REAL,
    wall          REAL,
    max_rss       INTEGER,
    read_bytes    INTEGER,
    written_bytes INTEGER,
    PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;

-- Every change of state, in order; what ended here becomes an event again.
CREATE TABLE journal (
    seq     INTEGER PRIMARY KEY AUTOINCREMENT,
    time    REAL    NOT NULL,
    job     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state   TEXT    NOT NULL,
    reason  TEXT    NOT NULL
) STRICT;
CREATE INDEX journal_job ON journal (job, seq);

-- Books of rules as they were loaded, and the rules in them.
CREATE TABLE book (
    name   TEXT PRIMARY KEY,
    -- The file it was read from, read again at start and when it changes; '' for one given as text.
    origin TEXT NOT NULL,
    source TEXT NOT NULL,
    loaded REAL NOT NULL
) STRICT;

CREATE TABLE rule (
    name    TEXT PRIMARY KEY,
    book    TEXT    NOT NULL,
    digest  TEXT    NOT NULL,
    body    TEXT    NOT NULL,
    enabled INTEGER NOT NULL,
    loaded  REAL    NOT NULL,
    -- 1 once what existed at its birth has been taken.
    settled INTEGER NOT NULL
) STRICT;

-- How many jobs each rule has made; apart, since it changes with every batch of events.
CREATE TABLE hit (
    rule  TEXT PRIMARY KEY,
    count INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a rule waits to do: a file that settles, or that must grow older.
CREATE TABLE pending (
    rule    TEXT NOT NULL,
    path    TEXT NOT NULL,
    due     REAL NOT NULL,
    event   TEXT NOT NULL,
    PRIMARY KEY (rule, path)
) STRICT, WITHOUT ROWID;
CREATE INDEX pending_due ON pending (due);

-- Files of sets that are not complete yet.
CREATE TABLE gathered (
    rule    TEXT NOT NULL,
    set_key TEXT NOT NULL,
    item    TEXT NOT NULL,
    path    TEXT NOT NULL,
    event   TEXT NOT NULL,
    PRIMARY KEY (rule, set_key, item)
) STRICT, WITHOUT ROWID;

-- How far each source has come: a timer's last tick, the last journal line turned into an event.
CREATE TABLE cursor (
    source TEXT PRIMARY KEY,
    value  TEXT NOT NULL
) STRICT;

-- Which files jobs declared as outputs, so that an event on one knows its cause.
CREATE TABLE output (
    path TEXT PRIMARY KEY,
    job  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX output_job ON output (job);
