-- Workflows: what was asked for, and how far each has come.

CREATE TABLE flow (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- The same key is the same flow; another definition under it is a conflict.
    key     TEXT    NOT NULL UNIQUE,
    digest  TEXT    NOT NULL,
    name    TEXT    NOT NULL,
    owner   TEXT    NOT NULL,
    tag     TEXT    NOT NULL,
    -- `command`, `message`, `api` or `flow`.
    source  TEXT    NOT NULL,
    -- The task that it is the inside of, and the flow of that.
    parent  INTEGER,
    -- `running`, `cancelling`, `staging_out`, `done`, `failed` or `cancelled`.
    state   TEXT    NOT NULL,
    reason  TEXT    NOT NULL DEFAULT '',
    -- Steps that are not over, and steps whose failure makes it fail.
    open    INTEGER NOT NULL,
    failed  INTEGER NOT NULL DEFAULT 0,
    -- How often its tasks may still be tried again.
    budget  INTEGER NOT NULL,
    -- Counts what was told of it.
    seq     INTEGER NOT NULL DEFAULT 0,
    created REAL    NOT NULL,
    ended   REAL,
    -- When its data was cleared away.
    cleared REAL
) STRICT;
CREATE INDEX flow_live ON flow (state) WHERE ended IS NULL;
CREATE INDEX flow_parent ON flow (parent) WHERE parent IS NOT NULL;

-- What flows are. Apart from how far they have come, which changes often and is small.
CREATE TABLE flow_text (
    flow INTEGER PRIMARY KEY,
    -- A `flow.model.Flow` as JSON; and the same without its steps, which is what ends read.
    body TEXT NOT NULL,
    head TEXT NOT NULL
) STRICT;

CREATE TABLE flow_step (
    flow    INTEGER NOT NULL,
    name    TEXT    NOT NULL,
    -- Its place among the steps of the definition.
    place   INTEGER NOT NULL,
    -- `waiting`, `running`, `done`, `failed`, `skipped` or `cancelled`.
    state   TEXT    NOT NULL,
    reason  TEXT    NOT NULL DEFAULT '',
    -- Steps before it that are not over.
    unmet   INTEGER NOT NULL,
    -- Steps before it that were not skipped; without any it is skipped, too.
    ran     INTEGER NOT NULL DEFAULT 0,
    -- Its tasks: all, those that are not over, those that failed, those that were called off.
    total   INTEGER NOT NULL DEFAULT 0,
    open    INTEGER NOT NULL DEFAULT 0,
    failed  INTEGER NOT NULL DEFAULT 0,
    off     INTEGER NOT NULL DEFAULT 0,
    -- Whether steps after it have tasks that wait until its data is there again.
    stale   INTEGER NOT NULL DEFAULT 0,
    started REAL,
    ended   REAL,
    PRIMARY KEY (flow, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX flow_step_stale ON flow_step (flow) WHERE stale = 1;

-- What steps are, likewise.
CREATE TABLE flow_spec (
    flow INTEGER NOT NULL,
    step TEXT    NOT NULL,
    -- A `flow.model.Step` as JSON, without the list that it goes through.
    body TEXT    NOT NULL,
    -- That list, or the template of one, as JSON; '' if there is none.
    list TEXT    NOT NULL,
    PRIMARY KEY (flow, step)
) STRICT, WITHOUT ROWID;

-- Which step waits for which.
CREATE TABLE flow_edge (
    flow INTEGER NOT NULL,
    step TEXT    NOT NULL,
    next TEXT    NOT NULL,
    PRIMARY KEY (flow, step, next)
) STRICT, WITHOUT ROWID;
CREATE INDEX flow_edge_next ON flow_edge (flow, next);

CREATE TABLE flow_task (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    flow       INTEGER NOT NULL,
    step       TEXT    NOT NULL,
    -- Its place in the list that the step goes through, and its value there as JSON.
    item       INTEGER NOT NULL,
    value      TEXT    NOT NULL,
    -- `queued` until it is sent somewhere, `ready` until it goes on there, then as the site says;
    -- `waiting` if data that it reads must be made again first.
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL DEFAULT '',
    -- The number of the current attempt; 0 before the first.
    attempt    INTEGER NOT NULL DEFAULT 0,
    -- The number of the last attempt before a person had it run again: what was before is past.
    since      INTEGER NOT NULL DEFAULT 0,
    -- How often it may be tried again.
    retries    INTEGER NOT NULL,
    -- Not to be sent before this time.
    not_before REAL    NOT NULL DEFAULT 0,
    -- What it has found out, as JSON; '' if nothing.
    result     TEXT    NOT NULL DEFAULT '',
    created    REAL    NOT NULL,
    started    REAL,
    ended      REAL,
    UNIQUE (flow, step, item)
) STRICT;
CREATE INDEX flow_task_queued ON flow_task (not_before) WHERE state = 'queued';

CREATE TABLE flow_attempt (
    task     INTEGER NOT NULL,
    number   INTEGER NOT NULL,
    flow     INTEGER NOT NULL,
    -- `bus`, `here` or `flow`.
    way      TEXT    NOT NULL,
    site     TEXT    NOT NULL,
    -- What the site knows it by: `flow.<flow>.<task>.<number>`.
    key      TEXT    NOT NULL UNIQUE,
    -- The number of the job there, of our own job, or of the flow within.
    job      INTEGER,
    state    TEXT    NOT NULL,
    reason   TEXT    NOT NULL DEFAULT '',
    kind     TEXT    NOT NULL DEFAULT '',
    code     TEXT    NOT NULL DEFAULT '',
    -- The highest number among messages about it.
    seq      INTEGER NOT NULL DEFAULT 0,
    -- Whatever it still does does not count.
    fenced   INTEGER NOT NULL DEFAULT 0,
    -- Whether it is to be called off, and whether the site has said that it is.
    cancel   INTEGER NOT NULL DEFAULT 0,
    -- When the broker took it, when the site was last heard on it and last asked about it.
    sent     REAL,
    heard    REAL,
    asked    REAL,
    created  REAL    NOT NULL,
    started  REAL,
    ended    REAL,
    -- Its folder as readers name it, with a slash at the end; '' if it leaves nothing.
    place    TEXT    NOT NULL DEFAULT '',
    -- What is there: the digest of the manifest, files and bytes; and bytes that it read.
    digest   TEXT    NOT NULL DEFAULT '',
    files    INTEGER NOT NULL DEFAULT 0,
    bytes    INTEGER NOT NULL DEFAULT 0,
    read     INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, number)
) STRICT, WITHOUT ROWID;
CREATE INDEX flow_attempt_live ON flow_attempt (way, site) WHERE ended IS NULL;
CREATE INDEX flow_attempt_flow ON flow_attempt (flow) WHERE ended IS NULL;
CREATE INDEX flow_attempt_over ON flow_attempt (heard)
    WHERE ended IS NULL AND state IN ('done', 'failed', 'cancelled', 'rejected', 'lost');
CREATE INDEX flow_attempt_cancel ON flow_attempt (task) WHERE cancel = 1;
CREATE INDEX flow_attempt_job ON flow_attempt (job) WHERE way = 'here';

-- Files that attempts have left.
CREATE TABLE flow_file (
    task   INTEGER NOT NULL,
    number INTEGER NOT NULL,
    name   TEXT    NOT NULL,
    size   INTEGER NOT NULL,
    sha256 TEXT    NOT NULL,
    PRIMARY KEY (task, number, name)
) STRICT, WITHOUT ROWID;

-- Messages that the broker does not have yet, in their order.
CREATE TABLE flow_outbox (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    flow   INTEGER NOT NULL,
    -- The attempt that it is about; 0 if it is about the flow.
    task   INTEGER NOT NULL DEFAULT 0,
    number INTEGER NOT NULL DEFAULT 0,
    -- `job`, `control`, `status`, `webhook` or `email`.
    kind   TEXT    NOT NULL,
    -- A topic, a URL or an address.
    topic  TEXT    NOT NULL,
    body   TEXT    NOT NULL,
    -- Tries so far, and when the next may be.
    tries  INTEGER NOT NULL DEFAULT 0,
    after  REAL    NOT NULL DEFAULT 0
) STRICT;

-- The story of a flow.
CREATE TABLE flow_journal (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    time  REAL    NOT NULL,
    flow  INTEGER NOT NULL,
    step  TEXT    NOT NULL DEFAULT '',
    task  INTEGER NOT NULL DEFAULT 0,
    number INTEGER NOT NULL DEFAULT 0,
    state TEXT    NOT NULL,
    words TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX flow_journal_flow ON flow_journal (flow, id);

-- Jobs of this hub that are attempts: what became of them, until the flow has taken it in.
CREATE TABLE flow_news (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,
    job   INTEGER NOT NULL,
    state TEXT    NOT NULL,
    reason TEXT   NOT NULL,
    time  REAL    NOT NULL
) STRICT;
CREATE TRIGGER flow_heard AFTER INSERT ON journal
WHEN EXISTS (SELECT 1 FROM flow_attempt WHERE job = NEW.job AND way = 'here')
BEGIN
    INSERT INTO flow_news (job, state, reason, time) VALUES (NEW.job, NEW.state, NEW.reason, NEW.time);
END;
