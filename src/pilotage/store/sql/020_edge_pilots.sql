-- Pilots at sites with an agent: one is an attempt of no job, whose number is the pilot's. In an
-- agent, the orders of pilots that are not over are looked at together.
CREATE INDEX edge_pilot ON edge_job (job)
WHERE application = 'pilot' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');

CREATE INDEX edge_pilot_live ON edge_attempt (number)
WHERE job = 0 AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');
