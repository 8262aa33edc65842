-- name: api_jobs
-- Jobs with numbers from :floor to below :before that fit, the newest first; :states is [state, ...].
SELECT job.id, job.name, job.state, job.reason, owner, priority, job.attempt, created, job.started,
       job.ended, rule, tag, coalesce(last.starter, '')
FROM job LEFT JOIN attempt AS last ON last.job = job.id AND last.number = job.attempt
WHERE job.id >= :floor AND job.id < :before
  AND (:states = '[]' OR job.state IN (SELECT value FROM json_each(:states)))
  AND (:name = '' OR job.name GLOB :name) AND (:owner = '' OR owner = :owner)
  AND (:tag = '' OR tag = :tag)
  AND (:search = '' OR job.name LIKE :search ESCAPE '\' OR tag LIKE :search ESCAPE '\'
       OR job.reason LIKE :search ESCAPE '\' OR job.id = :number)
ORDER BY job.id DESC LIMIT :most;

-- name: api_jobs_live
-- The same for one state that is not an end.
SELECT job.id, job.name, job.state, job.reason, owner, priority, job.attempt, created, job.started,
       job.ended, rule, tag, coalesce(last.starter, '')
FROM job INDEXED BY job_live
LEFT JOIN attempt AS last ON last.job = job.id AND last.number = job.attempt
WHERE job.state = :state AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND job.id >= :floor AND job.id < :before
  AND (:name = '' OR job.name GLOB :name) AND (:owner = '' OR owner = :owner)
  AND (:tag = '' OR tag = :tag)
  AND (:search = '' OR job.name LIKE :search ESCAPE '\' OR tag LIKE :search ESCAPE '\'
       OR job.reason LIKE :search ESCAPE '\' OR job.id = :number)
ORDER BY job.id DESC LIMIT :most;

-- name: api_jobs_changed
-- Jobs that the newest lines after one are about, each once.
SELECT job.id, job.name, job.state, job.reason, owner, priority, job.attempt, created, job.started,
       job.ended, rule, tag, coalesce(last.starter, '')
FROM (SELECT DISTINCT job AS id FROM
         (SELECT job FROM journal WHERE seq > :after ORDER BY seq DESC LIMIT :most)) AS changed
JOIN job ON job.id = changed.id
LEFT JOIN attempt AS last ON last.job = job.id AND last.number = job.attempt
ORDER BY job.id;

-- name: api_job_by_key
-- The job with a key, and who it belongs to.
SELECT id, owner FROM job WHERE key = :key;

-- name: api_counts
-- How many jobs are in each state.
SELECT state, count(*) FROM job GROUP BY state;

-- name: api_moves
-- How many jobs went from which state to which by the lines between two.
SELECT new.state, (
    SELECT old.state FROM journal AS old WHERE old.job = new.job AND old.seq < new.seq
    ORDER BY old.seq DESC LIMIT 1
) AS before, count(*)
FROM journal AS new WHERE new.seq > :after AND new.seq <= :until GROUP BY 1, 2;

-- name: api_lines
-- How many lines between two are about which state.
SELECT state, count(*) FROM journal WHERE seq > :after AND seq <= :until GROUP BY state;

-- name: api_recent
-- The first of the newest lines that is not older than a time, when it was written, and the first
-- new job among them.
SELECT min(seq), min(time), min(CASE WHEN attempt = 0 THEN job END) FROM (
    SELECT seq, time, attempt, job FROM journal ORDER BY seq DESC LIMIT :most
) WHERE time >= :since;

-- name: api_ends
-- Ends of jobs by the lines between two.
SELECT journal.seq, journal.job, journal.state, journal.reason, result.body
FROM journal JOIN job ON job.id = journal.job LEFT JOIN result ON result.job = journal.job
WHERE journal.seq > :after AND journal.seq <= :until
  AND journal.state IN ('done', 'failed', 'cancelled', 'rejected')
  AND (:tag = '' OR job.tag = :tag)
ORDER BY journal.seq LIMIT :most;

-- name: api_owners
-- How many jobs of each owner run or are queued.
SELECT owner, state, count(*) FROM job INDEXED BY job_live
WHERE state IN ('running', 'queued') AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
GROUP BY owner, state;

-- name: api_rule_last
-- When rules last made a job, among the jobs after a number.
SELECT rule, max(created) FROM job WHERE id > :after GROUP BY rule;

-- name: api_pilots
-- Pilots before a number that fit, the newest first; :states is [state, ...].
SELECT id, name, site, pool, state, reason, facts, enrolled, seen, ended, running, used, asked,
    busy, resident
FROM pilot
WHERE id < :before AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
ORDER BY id DESC LIMIT :most;

-- name: api_pilots_live
-- Pilots that have not ended, and those that ended since a time.
SELECT id, name, site, pool, state, reason, facts, enrolled, seen, ended, running, used, asked,
    busy, resident
FROM pilot INDEXED BY pilot_live WHERE state NOT IN ('down', 'failed', 'lost')
UNION ALL
SELECT id, name, site, pool, state, reason, facts, enrolled, seen, ended, running, used, asked,
    busy, resident
FROM pilot WHERE id > :after AND state IN ('down', 'failed', 'lost') AND ended >= :since
LIMIT :most;

-- name: api_pilot_facts
-- What pilots that have not ended are and use.
SELECT facts, used FROM pilot INDEXED BY pilot_live WHERE state IN ('available', 'draining')
  AND state NOT IN ('down', 'failed', 'lost');

-- name: api_pilot_last
-- The number of the newest pilot.
SELECT coalesce(max(id), 0) FROM pilot;

-- name: api_pilot_counts
-- How many pilots are in each state.
SELECT state, count(*) FROM pilot GROUP BY state;

-- name: api_pilot_jobs
-- Jobs that run with a holder; whoever is no pilot is the hub's own machine, `pilot:0`.
SELECT job.id, job.name, job.state FROM job INDEXED BY job_live
JOIN attempt AS last ON last.job = job.id AND last.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND CASE WHEN last.starter GLOB '/*' THEN 'pilot:0' ELSE last.starter END = :holder
ORDER BY job.id LIMIT :most;

-- name: api_samples
-- How full sites were since a time.
SELECT time, site, pilots, cpus, used, running FROM sample WHERE time >= :since
ORDER BY time LIMIT :most;

-- name: api_history
-- How full all sites together were since a time.
SELECT time, sum(running), sum(cpus), sum(used) FROM sample WHERE time > :since
GROUP BY time ORDER BY time;
