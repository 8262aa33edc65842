-- name: offer_pilots
-- Pilots that have not ended, and those that were lost since a time.
SELECT id, site, pool, state, reason, facts, enrolled, seen FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost')
UNION ALL
SELECT id, site, pool, state, reason, facts, enrolled, seen FROM pilot
WHERE state = 'lost' AND ended >= :since;

-- name: offer_used
-- Who holds how many running jobs of which definition and owner.
SELECT attempt.starter, job.spec, job.owner, count(*) FROM job INDEXED BY job_live
JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND attempt.starter NOT GLOB 'flow:*'
GROUP BY attempt.starter, job.spec, job.owner;

-- name: offer_ahead
-- How many queued jobs of an owner come before one.
SELECT count(*) FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND (priority > :priority OR (priority = :priority AND id < :id)) AND owner = :owner;

-- name: offer_rivals
-- How many queued jobs some owners have; :owners is [owner, ...].
SELECT count(*) FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND owner IN (SELECT value FROM json_each(:owners));

-- name: offer_owners
-- Owners of the oldest queued jobs.
SELECT DISTINCT owner FROM (
    SELECT owner FROM job INDEXED BY job_live
    WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
    ORDER BY id LIMIT :most
);

-- name: reserved_all
-- Pilots that are kept for jobs, and when there will be room.
SELECT pilot, job, at FROM reserved ORDER BY pilot;

-- name: reserved_clear
-- Keep no pilot for any job.
DELETE FROM reserved;

-- name: reserved_put
-- Keep pilots for jobs; :rows is [[pilot, job, at], ...].
INSERT INTO reserved (pilot, job, at) SELECT value->>0, value->>1, value->>2 FROM json_each(:rows);
