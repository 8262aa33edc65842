-- A step at a site with an agent is a job, as all other steps are.

-- What the site knows an attempt by: an attempt from before this has the key of its step.
ALTER TABLE edge_attempt ADD COLUMN key TEXT NOT NULL DEFAULT '';
UPDATE edge_attempt SET key = 'job.' || job || '.' || number;
CREATE UNIQUE INDEX edge_attempt_key ON edge_attempt (key);
-- What lies in its folder, as the site told it.
ALTER TABLE edge_attempt ADD COLUMN files INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edge_attempt ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;

-- Until now this was the number of the job at the site. Live attempts get jobs of ours when the hub
-- starts: see `hub.flows.job.adopt`.
UPDATE flow_attempt SET job = NULL, way = 'edge' WHERE way = 'bus';
CREATE INDEX flow_attempt_unadopted ON flow_attempt (task)
    WHERE way = 'edge' AND job IS NULL AND ended IS NULL;
-- What was asked of sites goes out beside what is asked about other jobs.
INSERT INTO edge_message (job, number, kind, topic, body, tries, after)
SELECT 0, 0, kind, topic, body, tries, after FROM flow_outbox WHERE kind = 'control' ORDER BY id;
DELETE FROM flow_outbox WHERE kind = 'control';

DROP INDEX flow_attempt_job;
CREATE INDEX flow_attempt_job ON flow_attempt (job) WHERE way <> 'flow';
DROP TRIGGER flow_heard;
-- At a site with an agent, what happens before its batch system has the job is told by the job.
CREATE TRIGGER flow_heard AFTER INSERT ON journal
WHEN EXISTS (SELECT 1 FROM flow_attempt WHERE job = NEW.job AND way <> 'flow'
             AND (way = 'here' OR NEW.state NOT IN ('staging_in', 'ready')))
BEGIN
    INSERT INTO flow_news (job, state, reason, time) VALUES (NEW.job, NEW.state, NEW.reason, NEW.time);
END;
