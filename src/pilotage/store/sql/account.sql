-- name: pool_held
-- Core-seconds that pilots of pools were there for; :pool is one of them, or '' for all.
SELECT pool, sum((coalesce(ended, :now) - enrolled) * (facts->>'cpus')) FROM pilot
WHERE id > 0 AND pool <> '' AND facts <> '{}' AND (:pool = '' OR pool = :pool) GROUP BY pool;

-- name: pool_used
-- Core-seconds that jobs took of these: in all, and by attempts that were lost.
SELECT pilot.pool, sum(coalesce(wall, attempt.ended - attempt.started, :now - attempt.started) * cpus),
    sum(CASE WHEN attempt.state = 'lost' THEN (attempt.ended - attempt.started) * cpus ELSE 0 END)
FROM attempt JOIN pilot ON pilot.id = CAST(substr(attempt.starter, 7) AS INTEGER)
JOIN job ON job.id = attempt.job
JOIN (SELECT id, coalesce(body->>'$.resources.cpus', 1) AS cpus FROM spec) AS asked
    ON asked.id = job.spec
WHERE attempt.starter GLOB 'pilot:[1-9]*' AND pilot.pool <> ''
  AND (:pool = '' OR pilot.pool = :pool) GROUP BY pilot.pool;
