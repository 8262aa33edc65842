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

-- name: edge_brought
-- How many bytes were brought to a job.
INSERT INTO edge_left (job, read) VALUES (:job, :read)
ON CONFLICT (job) DO UPDATE SET read = excluded.read;

-- name: edge_left
-- What a job has sent.
INSERT INTO edge_left (job, left) VALUES (:job, :left)
ON CONFLICT (job) DO UPDATE SET left = excluded.left;

-- name: edge_resend
-- Have what a job has left sent once more; nothing is returned if it has left nothing.
INSERT INTO edge_resend (job, time) SELECT job, :now FROM edge_left WHERE job = :job AND left <> '[]'
ON CONFLICT (job) DO UPDATE SET time = time RETURNING job;

-- name: edge_resends
-- Jobs whose outputs are to be sent once more.
SELECT job FROM edge_resend ORDER BY time, job;

-- name: edge_resent
-- It is done, or cannot be.
DELETE FROM edge_resend WHERE job = :job;

-- name: edge_tell_why
-- What the newest message on a job says of why.
UPDATE edge_outbox SET kind = :kind, code = :code, reason = :reason
WHERE id = (SELECT max(id) FROM edge_outbox WHERE job = :job);
