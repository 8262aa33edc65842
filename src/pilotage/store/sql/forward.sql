-- name: forward_queue
-- Queued jobs that may go to the hub now, the oldest first; :full is [limit_key, ...].
SELECT id, limit_key FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND not_before <= :now
  AND (limit_key = '' OR limit_key NOT IN (SELECT value FROM json_each(:full)))
ORDER BY id LIMIT :most;

-- name: forward_due
-- When the next queued job may go that may not go now.
SELECT min(not_before) FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND not_before > :now;

-- name: forward_away
-- Jobs that are at the hub, or on their way there.
SELECT job.id, job.attempt, job.spec, job.binding, job.rule, job.depth, job.owner, job.limit_key,
       attempt.starter
FROM job INDEXED BY job_live JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state = 'submitted' AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
ORDER BY job.id;

-- name: forward_note
-- Say where a job is.
UPDATE job SET reason = :reason WHERE id = :id AND attempt = :attempt AND state = 'submitted';
