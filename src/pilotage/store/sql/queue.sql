-- name: queue_load
-- All queued jobs.
SELECT id, spec, priority, limit_key, owner, not_before FROM job
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected') ORDER BY id;

-- name: queue_some
-- Those of some jobs that are queued; :ids is [id, ...].
SELECT id, spec, priority, limit_key, owner, not_before FROM job
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'queued' ORDER BY id;

-- name: queue_tail
-- Jobs that were queued by the lines of the journal between two.
SELECT job.id, spec, priority, limit_key, owner, not_before
FROM journal JOIN job ON job.id = journal.job
WHERE seq > :after AND seq <= :last AND journal.state = 'queued' AND job.state = 'queued'
ORDER BY seq;

-- name: queue_leases
-- Attempts that places hold; a workflow holds its job itself.
SELECT job.id, job.attempt, attempt.starter, job.limit_key, job.spec, job.priority, job.owner,
       attempt.started
FROM job JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND attempt.starter NOT GLOB 'flow:*'
ORDER BY job.id;

-- name: claim_jobs
-- Claim jobs, each at most once; :ids is [id, ...].
UPDATE job SET state = :state, reason = '', attempt = attempt + 1, started = :now, ended = NULL
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'queued' AND not_before <= :now
RETURNING id, attempt, spec, binding, rule, depth, owner;

-- name: progress_jobs
-- Say how far jobs have come; :rows is [[job, attempt], ...], :before the states to leave.
UPDATE job SET state = :state, reason = :reason
FROM json_each(:rows) AS one
WHERE job.id = one.value->>0 AND job.attempt = one.value->>1
  AND job.state IN (SELECT value FROM json_each(:before))
RETURNING job.id, job.attempt;

-- name: claim_attempts
-- Begin attempts, each with a directory as `job.moves.attempt_dir` names it; :rows is
-- [[job, number, starter], ...].
INSERT INTO attempt (job, number, state, dir, starter, started)
SELECT value->>0, value->>1, 'running',
       printf('%s/%04d/%d.%d', :folder, (value->>0) / 1000, value->>0, value->>1), value->>2, :now
FROM json_each(:rows);

-- name: claim_journal
-- Write down that attempts begin; :rows as above.
INSERT INTO journal (time, job, attempt, state, reason)
SELECT :now, value->>0, value->>1, :state, :reason FROM json_each(:rows);

-- name: end_jobs
-- End jobs that succeeded and that no other waits for; :ids is [id, ...].
UPDATE job SET state = 'done', reason = '', asked = '', not_before = 0, ended = :now
WHERE id IN (SELECT value FROM json_each(:ids))
  AND state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND NOT EXISTS (SELECT 1 FROM dependency WHERE on_job = job.id)
RETURNING id, attempt;

-- name: end_facts
-- Where a job is, and in which attempt.
SELECT state, attempt FROM job WHERE id = :id;

-- name: end_attempts
-- End attempts that succeeded; :rows is [[job, number, exit, cpu, wall, max_rss, read, written], ...].
UPDATE attempt SET state = 'done', ended = :now, exit = end.value->>2, cpu = end.value->>3,
    wall = end.value->>4, max_rss = end.value->>5, read_bytes = end.value->>6,
    written_bytes = end.value->>7
FROM json_each(:rows) AS end
WHERE attempt.job = end.value->>0 AND attempt.number = end.value->>1 AND attempt.state = 'running';

-- name: end_journal
-- Write down that jobs are done; :rows as above.
INSERT INTO journal (time, job, attempt, state, reason)
SELECT :now, value->>0, value->>1, 'done', '' FROM json_each(:rows);

-- name: attempt_revive
-- Take back that an attempt was lost: its pilot has come back with its result.
UPDATE attempt SET state = 'running', ended = NULL, cause = '' WHERE job = :job AND number = :number AND state = 'lost'
RETURNING job;

-- name: job_revive
-- Take back that a job was queued again, if nobody has claimed it since.
UPDATE job SET state = 'running' WHERE id = :id AND state = 'queued' AND attempt = :attempt
RETURNING id;

-- name: result_put
-- Keep what a job returned.
INSERT INTO result (job, body) VALUES (:job, :body) ON CONFLICT (job) DO UPDATE SET body = excluded.body;

-- name: result_get
-- What a job returned.
SELECT body FROM result WHERE job = :job;

-- name: result_purge
-- Forget what jobs returned.
DELETE FROM result WHERE job IN (SELECT value FROM json_each(:ids));

-- name: usage_all
-- What owners have used.
SELECT owner, value, time, total FROM usage;

-- name: usage_put
-- Write down what owners have used; :rows is [[owner, value, time, total], ...].
INSERT INTO usage (owner, value, time, total)
SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each(:rows) WHERE true
ON CONFLICT (owner) DO UPDATE
SET value = excluded.value, time = excluded.time, total = excluded.total;

-- name: alarm_put
-- Raise an alarm, or say it anew.
INSERT INTO alarm (name, since, words) VALUES (:name, :now, :words)
ON CONFLICT (name) DO UPDATE SET words = excluded.words;

-- name: alarm_drop
-- Clear an alarm.
DELETE FROM alarm WHERE name = :name;

-- name: alarm_clear
-- Forget the alarms of an earlier process.
DELETE FROM alarm;

-- name: alarm_all
-- What needs attention now.
SELECT name, since, words FROM alarm ORDER BY since;

-- name: sample_put
-- Write down how full sites are; :rows is [[site, pilots, cpus, used, running], ...].
INSERT OR REPLACE INTO sample (time, site, pilots, cpus, used, running)
SELECT :now, value->>0, value->>1, value->>2, value->>3, value->>4 FROM json_each(:rows);

-- name: sample_purge
-- Forget old pictures.
DELETE FROM sample WHERE time < :before;

-- name: queue_alike
-- Queued jobs of one definition.
SELECT id FROM job WHERE state = 'queued'
AND state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND spec = :spec;

-- name: claim_again
-- Claims that were made already; :ids is [id, ...].
SELECT id, attempt, spec, binding, rule, depth, owner FROM job
WHERE id IN (SELECT value FROM json_each(:ids)) AND state = 'running';

-- name: job_rule
-- The rule that made a job.
SELECT rule FROM job WHERE id = :id;

-- name: ends_of_tag
-- Ends of the jobs with a label by the lines of the journal between two, with what they returned.
SELECT seq, job.id, job.state, job.reason, result.body
FROM journal JOIN job ON job.id = journal.job LEFT JOIN result ON result.job = job.id
WHERE seq > :after AND seq <= :last
  AND journal.state IN ('done', 'failed', 'cancelled', 'rejected') AND tag = :tag
ORDER BY seq;

-- name: attempt_facts
-- The definition of an attempt's job, and who held it.
SELECT job.spec, attempt.starter FROM attempt JOIN job ON job.id = attempt.job
WHERE attempt.job = :job AND attempt.number = :number;

-- name: submit_jobs
-- Make queued jobs; one whose key exists already is passed over.
-- :rows is [[key, spec, binding, limit_key, tag], ...].
INSERT INTO job (key, name, rule, spec, binding, state, reason, priority, not_before, limit_key,
                 attempt, failures, created, depth, tag, owner)
SELECT value->>0, spec.name, '', spec.id, value->>2, 'queued', '', spec.priority, 0, value->>3,
       0, 0, :now, 0, value->>4, :owner
FROM json_each(:rows) CROSS JOIN spec ON spec.id = value->>1
WHERE value->>0 IS NULL OR value->>0 NOT IN (SELECT key FROM spent)
ON CONFLICT (key) DO NOTHING RETURNING id, key;
