-- The edge service: jobs that come by messages, and what is said of them.

-- Beside a job that came as a message: whose it is, what was asked for, and how far it has come.
CREATE TABLE edge_job (
    job         INTEGER PRIMARY KEY,
    -- Who sent it, as the broker has verified.
    user        TEXT    NOT NULL,
    application TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    -- The sender's own key; '' if there was none. The key of the job itself is made of it.
    token       TEXT    NOT NULL,
    -- The SHA-256 of what was asked for: another with the same key is a conflict.
    body_sha256 TEXT    NOT NULL,
    -- The `bus.model.Job` with all that was left open filled in, as JSON.
    message     TEXT    NOT NULL,
    -- Of it, what each status message needs: a `site.agent.model.Return` as JSON.
    back        TEXT    NOT NULL,
    -- What was not taken as the sender may have meant it: sentences, as JSON.
    notes       TEXT    NOT NULL,
    -- The state that was told last, what is done in it, and who or what is to blame, if known.
    state       TEXT    NOT NULL DEFAULT '',
    step        TEXT    NOT NULL DEFAULT 'accept',
    kind        TEXT    NOT NULL DEFAULT '',
    code        TEXT    NOT NULL DEFAULT '',
    -- Counts the messages on this job.
    seq         INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX edge_token ON edge_job (token, user) WHERE token <> '';
CREATE INDEX edge_waiting ON edge_job (user, queue, job) WHERE state = 'waiting';

-- How many jobs of whom are in which state; kept, since counting would take longer with each job.
CREATE TABLE edge_count (
    user        TEXT    NOT NULL,
    application TEXT    NOT NULL,
    queue       TEXT    NOT NULL,
    state       TEXT    NOT NULL,
    count       INTEGER NOT NULL,
    PRIMARY KEY (user, application, queue, state)
) STRICT, WITHOUT ROWID;

-- Messages that the bus does not have yet, in their order.
CREATE TABLE edge_outbox (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    -- 0 if it is not about a job that was accepted.
    job     INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    state   TEXT    NOT NULL,
    step    TEXT    NOT NULL,
    kind    TEXT    NOT NULL,
    code    TEXT    NOT NULL,
    reason  TEXT    NOT NULL,
    time    REAL    NOT NULL,
    -- Where it goes and what it says, if that is written already; else it is made of the job.
    topic   TEXT    NOT NULL DEFAULT '',
    body    TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX edge_outbox_job ON edge_outbox (job, id);

-- Messages that were refused, each once however often it came.
CREATE TABLE edge_dead (
    -- The SHA-256 of who sent it and what.
    digest TEXT PRIMARY KEY,
    time   REAL    NOT NULL,
    user   TEXT    NOT NULL,
    topic  TEXT    NOT NULL,
    code   TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    size   INTEGER NOT NULL,
    -- Its beginning.
    body   BLOB    NOT NULL,
    count  INTEGER NOT NULL DEFAULT 1
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_dead_time ON edge_dead (time);

-- Controls that were obeyed and must not be twice: one that is delivered again is only answered.
CREATE TABLE edge_control (
    digest TEXT PRIMARY KEY,
    time   REAL NOT NULL,
    answer TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX edge_control_time ON edge_control (time);

-- The agent itself: its number goes up each time that one takes over.
CREATE TABLE edge_agent (
    id    INTEGER PRIMARY KEY CHECK (id = 1),
    epoch INTEGER NOT NULL,
    since REAL    NOT NULL
) STRICT;

-- No change of state can miss its message, whoever makes it.
CREATE TRIGGER edge_told AFTER INSERT ON journal
WHEN EXISTS (SELECT 1 FROM edge_job WHERE job = NEW.job)
BEGIN
    UPDATE edge_count SET count = count - 1
    WHERE (user, application, queue, state) = (
        SELECT user, application, queue, state FROM edge_job WHERE job = NEW.job
    );
    UPDATE edge_job SET seq = seq + 1, state = NEW.state,
        step = CASE NEW.state
            WHEN 'waiting' THEN 'accept'
            WHEN 'queued' THEN 'accept'
            WHEN 'staging_in' THEN CASE step WHEN 'accept' THEN 'stage_in' ELSE step END
            WHEN 'submitted' THEN 'queue'
            WHEN 'running' THEN 'run'
            WHEN 'staging_out' THEN CASE step WHEN 'run' THEN 'postprocess' ELSE step END
            ELSE step
        END
    WHERE job = NEW.job;
    INSERT INTO edge_count (user, application, queue, state, count)
    SELECT user, application, queue, state, 1 FROM edge_job WHERE job = NEW.job
    ON CONFLICT (user, application, queue, state) DO UPDATE SET count = count + 1;
    INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time)
    SELECT job, seq, NEW.attempt, state, step, kind, code, NEW.reason, NEW.time
    FROM edge_job WHERE job = NEW.job;
    -- Who is to blame was said of this end; the next attempt begins with nobody.
    UPDATE edge_job SET kind = '', code = '' WHERE job = NEW.job AND kind <> '';
END;

-- What is forgotten of a job is forgotten here, too.
CREATE TRIGGER edge_forgotten AFTER DELETE ON job
WHEN EXISTS (SELECT 1 FROM edge_job WHERE job = OLD.id)
BEGIN
    UPDATE edge_count SET count = count - 1
    WHERE (user, application, queue, state) = (
        SELECT user, application, queue, state FROM edge_job WHERE job = OLD.id
    );
    DELETE FROM edge_count WHERE count < 1;
    DELETE FROM edge_job WHERE job = OLD.id;
END;
