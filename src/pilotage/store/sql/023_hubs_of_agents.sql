-- An agent may dial several hubs: each is a user, and hears what is said of its own jobs.
-- What is said carries whose it is; whether a job came from a hub that the agent dials is kept.
ALTER TABLE edge_job ADD COLUMN dialled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edge_outbox ADD COLUMN user TEXT NOT NULL DEFAULT '';
UPDATE edge_outbox SET user = coalesce(
    (SELECT edge_job.user FROM edge_job WHERE edge_job.job = edge_outbox.job), ''
) WHERE job > 0;

DROP TRIGGER edge_told;
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
    INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time, user)
    SELECT job, seq, NEW.attempt, state, step, kind, code, NEW.reason, NEW.time, user
    FROM edge_job WHERE job = NEW.job;
    -- The cause was reported with this end; the next attempt has none yet.
    UPDATE edge_job SET kind = '', code = '' WHERE job = NEW.job AND kind <> '';
END;

DROP TRIGGER edge_waits;
CREATE TRIGGER edge_waits AFTER UPDATE OF reason ON job
WHEN NEW.state = 'submitted' AND OLD.state = 'submitted' AND NEW.reason <> OLD.reason
  AND NEW.reason <> '' AND EXISTS (SELECT 1 FROM edge_job WHERE job = NEW.id)
BEGIN
    UPDATE edge_job SET seq = seq + 1 WHERE job = NEW.id;
    INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time, user)
    SELECT job, seq, NEW.attempt, state, step, '', '', NEW.reason, unixepoch('subsec'), user
    FROM edge_job WHERE job = NEW.id;
END;
