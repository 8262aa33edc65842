-- name: spec_put
-- Store a definition once.
INSERT INTO spec (digest, name, priority, body) VALUES (:digest, :name, :priority, :body)
ON CONFLICT (digest) DO NOTHING;

-- name: spec_id
-- Find a definition by its digest.
SELECT id FROM spec WHERE digest = :digest;

-- name: specs_put
-- Store definitions once; :rows is [[digest, name, priority, body], ...].
INSERT INTO spec (digest, name, priority, body)
SELECT value->>0, value->>1, value->>2, value->>3 FROM json_each(:rows) WHERE true
ON CONFLICT (digest) DO NOTHING;

-- name: specs_ids
-- Find definitions by their digests; :digests is [digest, ...].
SELECT digest, id FROM spec WHERE digest IN (SELECT value FROM json_each(:digests));

-- name: spec_body
-- Read a definition.
SELECT body FROM spec WHERE id = :id;

-- name: job_last
-- The number of the newest job.
SELECT coalesce(max(id), 0) FROM job;

-- name: job_add
-- Make jobs that are queued and have no cause or limit, as most; one whose key exists already is
-- passed over. :rows is [[key, rule, spec, binding, event], ...]; events are numbered from :event on.
INSERT INTO job (key, name, rule, spec, binding, state, reason, priority, not_before, limit_key,
                 attempt, failures, created, event, depth, tag, owner)
SELECT value->>0, spec.name, value->>1, spec.id, value->>3, 'queued', '', spec.priority, 0, '',
       0, 0, :now, value->>4 + :event, 0, '', :owner
FROM json_each(:rows) CROSS JOIN spec ON spec.id = value->>2
WHERE value->>0 NOT IN (SELECT key FROM spent)
ON CONFLICT (key) DO NOTHING;

-- name: job_add_special
-- Make other jobs; :rows is [[key, rule, spec, binding, event, state, reason, not_before, limit_key,
-- parent, depth], ...].
INSERT INTO job (key, name, rule, spec, binding, state, reason, priority, not_before, limit_key,
                 attempt, failures, created, event, parent, depth, tag, owner)
SELECT value->>0, spec.name, value->>1, spec.id, value->>3, value->>5, value->>6, spec.priority,
       value->>7, value->>8, 0, 0, :now, value->>4 + :event, value->>9, value->>10, '', :owner
FROM json_each(:rows) CROSS JOIN spec ON spec.id = value->>2
WHERE value->>0 NOT IN (SELECT key FROM spent)
ON CONFLICT (key) DO NOTHING;

-- name: job_add_one
-- Make one job; nothing is returned if its key exists already.
INSERT INTO job (key, name, rule, spec, binding, state, reason, priority, not_before, limit_key,
                 attempt, failures, created, ended, event, parent, depth, tag, owner)
SELECT :key, :name, :rule, :spec, :binding, :state, :reason, :priority, :not_before, :limit_key,
       0, 0, :now, :ended, :event, :parent, :depth, :tag, :owner
WHERE :key IS NULL OR :key NOT IN (SELECT key FROM spent)
ON CONFLICT (key) DO NOTHING RETURNING id;

-- name: job_add_steps
-- Make jobs of workflows; those whose key exists already are not returned. :rows is [[key, spec,
-- binding, limit_key, parent, depth, tag, owner], ...].
INSERT INTO job (key, name, rule, spec, binding, state, reason, priority, not_before, limit_key,
                 attempt, failures, created, parent, depth, tag, owner)
SELECT value->>0, spec.name, '', spec.id, value->>2, 'queued', '', spec.priority, 0, value->>3,
       0, 0, :now, value->>4, value->>5, value->>6, value->>7
FROM json_each(:rows) CROSS JOIN spec ON spec.id = value->>1
WHERE value->>0 NOT IN (SELECT key FROM spent)
ON CONFLICT (key) DO NOTHING RETURNING key, id;

-- name: job_pace
-- When the newest jobs of a rule could start, the newest first.
SELECT max(created, not_before) FROM job WHERE rule = :rule ORDER BY id DESC LIMIT :most;

-- name: job_keys
-- Which of these keys have a job, or had one; :keys is [key, ...].
SELECT key FROM job WHERE key IN (SELECT value FROM json_each(:keys))
UNION ALL SELECT key FROM spent WHERE key IN (SELECT value FROM json_each(:keys));

-- name: journal_new_jobs
-- Write the first line of each job since a number.
INSERT INTO journal (time, job, attempt, state, reason)
SELECT created, id, 0, state, reason FROM job WHERE id > :after;

-- name: journal_add
-- Write a line.
INSERT INTO journal (time, job, attempt, state, reason) VALUES (:now, :job, :attempt, :state, :reason);

-- name: journal_ends
-- Ends of jobs after a line, and whether they are steps of workflows at sites with an agent.
SELECT journal.seq, journal.time, journal.job, journal.attempt, journal.state, journal.reason,
       job.name, job.rule, job.depth,
       EXISTS (SELECT 1 FROM flow_attempt WHERE flow_attempt.job = job.id AND way = 'edge')
FROM journal JOIN job ON job.id = journal.job
WHERE journal.seq > :after AND journal.state IN ('done', 'failed', 'cancelled', 'rejected')
ORDER BY journal.seq LIMIT 5000;

-- name: journal_last
-- The number of the newest line, also if it was forgotten.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'journal'), 0);

-- name: journal_of
-- The story of a job.
SELECT time, attempt, state, reason FROM journal WHERE job = :job ORDER BY seq;

-- name: attempt_starter
-- Note who holds an attempt.
UPDATE attempt SET starter = :starter WHERE job = :job AND number = :number;

-- name: attempt_pid
-- Note the process of an attempt.
UPDATE attempt SET pid = :pid WHERE job = :job AND number = :number;

-- name: attempt_end
-- End an attempt.
UPDATE attempt SET state = :state, ended = :now, exit = :exit, signal = :signal, reason = :reason,
    cause = :cause, cpu = :cpu, wall = :wall, max_rss = :max_rss, read_bytes = :read_bytes,
    written_bytes = :written_bytes
WHERE job = :job AND number = :number AND state = 'running' RETURNING job;

-- name: attempts_refused
-- How many attempts of a job its places have refused to begin.
SELECT count(*) FROM attempt WHERE job = :job AND state = 'lost' AND cause = 'not_started';

-- name: attempt_list
-- All attempts of a job.
SELECT job, number, state, dir, starter, started, ended, pid, exit, signal, reason, cause,
       cpu, wall, max_rss, read_bytes, written_bytes
FROM attempt WHERE job = :job ORDER BY number;

-- name: job_move
-- Change the state of a job, if it is still as it was.
UPDATE job SET state = :state, reason = :reason, not_before = :not_before, asked = '',
    failures = failures + :failed, ended = :ended
WHERE id = :id AND state = :old AND attempt = :attempt RETURNING id;

-- name: job_ask
-- Ask that a job that is under way be ended.
UPDATE job SET asked = :asked WHERE id = :id AND state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
RETURNING id;

-- name: job_asked
-- Jobs under way that someone wants ended.
SELECT id, attempt, asked FROM job WHERE asked <> '';

-- name: job_running
-- Attempts that run, and who holds them.
SELECT job.id, job.attempt, attempt.dir, attempt.starter, job.limit_key, job.spec, job.binding,
       attempt.pid, job.started, job.rule, job.depth
FROM job JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state = 'running' AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
ORDER BY job.id;

-- name: job_end_facts
-- What must be known of a job to record the end of its attempt.
SELECT state, attempt, failures, asked FROM job WHERE id = :id;

-- name: job_started
-- When the present or last attempt of a job began.
SELECT started FROM job WHERE id = :id;

-- name: job_get
-- One job.
SELECT job.id, job.name, state, reason, spec.body, binding, attempt, job.priority, not_before, limit_key,
       created, started, ended, rule, event, parent, depth, tag, owner
FROM job JOIN spec ON spec.id = job.spec WHERE job.id = :id;

-- name: job_list
-- Jobs by state, name, tag and number, newest last.
SELECT * FROM (
    SELECT job.id, job.name, state, reason, spec.body, binding, attempt, job.priority, not_before,
           limit_key, created, started, ended, rule, event, parent, depth, tag, owner
    FROM job JOIN spec ON spec.id = job.spec
    WHERE job.id BETWEEN :first AND :last
      AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
      AND job.name GLOB :name AND (:tag = '' OR tag = :tag) AND created >= :since
    ORDER BY job.id DESC LIMIT :most
) ORDER BY id;

-- name: job_ids
-- Numbers of jobs by state, name and tag.
SELECT id FROM job WHERE id BETWEEN :first AND :last
  AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND name GLOB :name AND (:tag = '' OR tag = :tag) ORDER BY id;

-- name: job_counts
-- How many jobs of each name are in each state.
SELECT name, state, count(*) FROM job GROUP BY name, state ORDER BY min(id);

-- name: job_state_counts
-- How many of some jobs are in each state; :ids is [id, ...].
SELECT state, count(*) FROM job WHERE id IN (SELECT value FROM json_each(:ids)) GROUP BY state;

-- name: job_live
-- How many jobs are not at an end, not held, and not of a definition that can never run here;
-- :never is [spec, ...].
SELECT count(*) FROM job
WHERE state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND state <> 'held'
  AND (state <> 'queued' OR spec NOT IN (SELECT value FROM json_each(:never)));

-- name: job_states
-- The states of some jobs; :ids is [id, ...].
SELECT id, state, reason FROM job WHERE id IN (SELECT value FROM json_each(:ids)) ORDER BY id;

-- name: job_holding_limit
-- Running jobs with a limit key.
SELECT id FROM job INDEXED BY job_live
WHERE state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND limit_key = :key ORDER BY id;

-- name: job_children
-- Jobs that a job caused.
SELECT id, name, state FROM job WHERE parent = :id ORDER BY id;

-- name: job_rule_depth
-- How often a rule stands among a job and its ancestors.
WITH RECURSIVE up (id, parent, rule) AS (
    SELECT id, parent, rule FROM job WHERE id = :id
    UNION ALL SELECT job.id, job.parent, job.rule FROM job JOIN up ON job.id = up.parent
) SELECT count(*) FROM up WHERE rule = :rule;

-- name: dependency_add
-- A job waits for another.
INSERT OR IGNORE INTO dependency (job, on_job) VALUES (:job, :on_job);

-- name: dependency_of
-- What a job waits for.
SELECT on_job, state FROM dependency LEFT JOIN job ON job.id = on_job
WHERE job = :job ORDER BY on_job;

-- name: dependants
-- Waiting jobs that wait for one, and whether they still wait for others; the newest of these are
-- looked at first, since the oldest are done.
SELECT job.id, job.attempt, EXISTS (
    SELECT 1 FROM dependency AS other CROSS JOIN job AS before ON before.id = other.on_job
    WHERE other.job = job.id AND before.state <> 'done' ORDER BY other.on_job DESC
) FROM dependency JOIN job ON job.id = dependency.job
WHERE dependency.on_job = :id AND job.state = 'waiting' ORDER BY job.id;

-- name: output_put
-- A job says that it writes these files; :paths is [path, ...].
INSERT INTO output (path, job) SELECT value, :job FROM json_each(:paths) WHERE true
ON CONFLICT (path) DO UPDATE SET job = excluded.job;

-- name: output_of
-- Files that a job said it writes.
SELECT path FROM output WHERE job = :job ORDER BY path;

-- name: output_all
-- The newest declared outputs, oldest first, with their jobs and how deep in a chain these are.
SELECT * FROM (
    SELECT path, output.job, depth FROM output JOIN job ON job.id = output.job
    ORDER BY output.job DESC LIMIT :most
) ORDER BY job;

-- name: job_purgeable
-- Jobs that ended before a time, but for those that a job follows which may still run, and those
-- of which something is still to be said.
SELECT id FROM job WHERE ended < :before AND state IN ('done', 'failed', 'cancelled', 'rejected')
  AND id NOT IN (SELECT on_job FROM dependency JOIN job AS later ON later.id = dependency.job
                 WHERE later.state <> 'done')
  AND NOT EXISTS (SELECT 1 FROM edge_outbox WHERE edge_outbox.job = job.id)
ORDER BY id LIMIT :most;

-- name: attempt_dirs
-- Directories of the attempts of jobs; :ids is [id, ...].
SELECT dir FROM attempt WHERE job IN (SELECT value FROM json_each(:ids));

-- name: job_places
-- What holds or held the last attempts of jobs, the site of a pilot, and what a site's name stands
-- for; :ids is [id, ...].
SELECT job.id, attempt.starter, pilot.site, site.way FROM json_each(:ids)
JOIN job ON job.id = json_each.value
JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
LEFT JOIN pilot ON attempt.starter GLOB 'pilot:[1-9]*'
  AND pilot.id = CAST(substr(attempt.starter, 7) AS INTEGER)
LEFT JOIN site ON attempt.starter GLOB 'site:*' AND site.name = substr(attempt.starter, 6);

-- name: job_spend
-- Keep the keys of jobs that will be forgotten, so that nothing fires again.
INSERT OR IGNORE INTO spent (key)
SELECT key FROM job WHERE key IS NOT NULL AND id IN (SELECT value FROM json_each(:ids));

-- name: job_purge
-- Forget jobs; :ids is [id, ...].
DELETE FROM job WHERE id IN (SELECT value FROM json_each(:ids));

-- name: attempt_purge
-- Forget the attempts of jobs.
DELETE FROM attempt WHERE job IN (SELECT value FROM json_each(:ids));

-- name: journal_purge
-- Forget the stories of jobs.
DELETE FROM journal WHERE job IN (SELECT value FROM json_each(:ids));

-- name: output_purge
-- Forget the declared outputs of jobs.
DELETE FROM output WHERE job IN (SELECT value FROM json_each(:ids));

-- name: dependency_purge
-- Forget what jobs waited for.
DELETE FROM dependency WHERE job IN (SELECT value FROM json_each(:ids));
