-- One queue, many pilots.

-- Who a job belongs to, as `user` or `group/user`; fair share counts by it.
ALTER TABLE job ADD COLUMN owner TEXT NOT NULL DEFAULT '';

-- The queue is in the matchmaker's memory: indexes that every claim would have to change are gone.
DROP INDEX job_queue;
DROP INDEX job_delayed;

-- What functions returned, as JSON; written in the transaction that ends the job.
CREATE TABLE result (
    job  INTEGER PRIMARY KEY,
    body TEXT NOT NULL
) STRICT;

-- Places that run jobs: programs on worker nodes, and this machine itself.
CREATE TABLE pilot (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT    NOT NULL,
    site     TEXT    NOT NULL,
    pool     TEXT    NOT NULL,
    state    TEXT    NOT NULL,
    -- Why it is in this state, in words.
    reason   TEXT    NOT NULL,
    -- SHA-256 of the key that the node made; only its holder may speak for this pilot.
    digest   TEXT    NOT NULL,
    -- What the node is: a `pilot.model.Facts` as JSON.
    facts    TEXT    NOT NULL,
    enrolled REAL    NOT NULL,
    seen     REAL    NOT NULL,
    ended    REAL,
    -- What runs there and how much of it is used; written every few seconds.
    running  INTEGER NOT NULL DEFAULT 0,
    used     INTEGER NOT NULL DEFAULT 0,
    -- What a person asked for: '', 'drain' or 'stop'.
    asked    TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX pilot_live ON pilot (state) WHERE state NOT IN ('down', 'failed', 'lost');
CREATE UNIQUE INDEX pilot_key ON pilot (digest) WHERE digest <> '';
CREATE INDEX pilot_asked ON pilot (id) WHERE asked <> '';

-- Who may do what; of a secret only its digest is kept.
CREATE TABLE token (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    digest  TEXT    NOT NULL UNIQUE,
    -- 'admin', 'user', 'read', 'site' or 'enrol'.
    scope   TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    -- The pool and site of pilots that enrol with it.
    pool    TEXT    NOT NULL,
    site    TEXT    NOT NULL,
    label   TEXT    NOT NULL,
    created REAL    NOT NULL,
    expires REAL    NOT NULL,
    -- How often it may still be used; NULL is as often as one likes.
    uses    INTEGER,
    revoked REAL
) STRICT;

-- How much each owner has used: the sum of core-seconds times 2^(t/half-life), as `match.share` has it.
CREATE TABLE usage (
    owner TEXT PRIMARY KEY,
    value REAL NOT NULL,
    time  REAL NOT NULL,
    -- Core-seconds in all, without decay.
    total REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- What needs a person's attention now.
CREATE TABLE alarm (
    name  TEXT PRIMARY KEY,
    since REAL NOT NULL,
    words TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- How full each site was, every few seconds; for pictures.
CREATE TABLE sample (
    time    REAL    NOT NULL,
    site    TEXT    NOT NULL,
    pilots  INTEGER NOT NULL,
    cpus    INTEGER NOT NULL,
    used    INTEGER NOT NULL,
    running INTEGER NOT NULL,
    PRIMARY KEY (time, site)
) STRICT, WITHOUT ROWID;

-- Pilots that are kept free for large jobs that have waited long, and when there will be room.
CREATE TABLE reserved (
    pilot INTEGER PRIMARY KEY,
    job   INTEGER NOT NULL,
    at    REAL    NOT NULL
) STRICT;
