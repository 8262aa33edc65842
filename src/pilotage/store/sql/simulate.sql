-- name: past_jobs
-- Jobs that ran to their end since a time: when they came, seconds that they ran, cores, bytes.
SELECT created, ended - started, json_extract(spec.body, '$.resources.cpus'),
    json_extract(spec.body, '$.resources.memory')
FROM job JOIN spec ON spec.id = job.spec
WHERE state IN ('done', 'failed') AND started IS NOT NULL AND ended > started
    AND created >= :since
ORDER BY created DESC LIMIT :most;

-- name: past_waits
-- How long pilots of pools waited at each site until they came.
SELECT site, enrolled - wanted FROM pilot
WHERE wanted > 0 AND enrolled > wanted AND facts <> '{}' AND enrolled >= :since
ORDER BY enrolled DESC LIMIT :most;
