-- name: edge_staging
-- Whether a job is not ready to be submitted yet.
SELECT 1 FROM job WHERE id = :job AND state = 'staging_in';

-- name: edge_purgeable
-- Jobs that ended well or not, long enough ago, and of which nothing is still to be said.
SELECT job.id FROM job CROSS JOIN edge_job ON edge_job.job = job.id
WHERE job.ended < CASE job.state WHEN 'done' THEN :done ELSE :failed END
  AND job.state IN ('done', 'failed', 'cancelled', 'rejected')
  AND NOT EXISTS (SELECT 1 FROM edge_outbox WHERE edge_outbox.job = job.id)
ORDER BY job.id LIMIT :most;

-- name: edge_gone
-- Of these numbers, those that are not a job's any more; :ids is [id, ...].
SELECT value FROM json_each(:ids) WHERE value NOT IN (SELECT id FROM job);
