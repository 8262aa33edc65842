-- Pilots at sites with an agent: one is an attempt of no job, whose number is the pilot's. In an
-- agent, the orders of pilots that are not over are looked at together.
CREATE INDEX edge_pilot ON edge_job (job)
WHERE application = 'pilot' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');

CREATE INDEX edge_pilot_live ON edge_attempt (number)
WHERE job = 0 AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- In an agent: the order of a pilot that is over keeps no secret.
CREATE TRIGGER edge_pilot_over AFTER UPDATE OF state ON edge_job
WHEN NEW.application = 'pilot' AND NEW.state IN ('done', 'failed', 'cancelled', 'rejected')
BEGIN
    UPDATE edge_job SET message = json_set(message, '$.config', '') WHERE job = NEW.job;
END;
