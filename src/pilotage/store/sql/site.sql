-- name: site_number
-- The number of a site; a new one if it has none.
INSERT INTO site (name) VALUES (:name) ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING id;

-- name: site_show
-- Write down how a site is.
UPDATE site SET trouble = :trouble, since = :since, facts = :facts, seen = :now WHERE name = :name;

-- name: site_asked
-- What a person asked of a site.
SELECT asked FROM site WHERE name = :name;

-- name: site_ask
-- Ask something of a site; the same again changes neither who asked first nor when.
INSERT INTO site (name, asked, asked_by, asked_why, asked_at)
VALUES (:name, :asked, :by, :why, :now)
ON CONFLICT (name) DO UPDATE SET asked = excluded.asked, asked_by = excluded.asked_by,
    asked_why = excluded.asked_why, asked_at = excluded.asked_at WHERE asked <> excluded.asked;

-- name: site_drained
-- Who had a site drained, when and why; nothing if it is not.
SELECT asked_by, asked_at, asked_why FROM site WHERE name = :name AND asked <> '';

-- name: site_drains
-- Sites that are given nothing more.
SELECT name FROM site WHERE asked = 'drain';

-- name: site_way
-- What the name of a site stands for: 'batch', 'agent' or nothing yet.
SELECT way FROM site WHERE name = :name;

-- name: site_stand
-- Let the name of a site stand for something.
INSERT INTO site (name, way) VALUES (:name, :way)
ON CONFLICT (name) DO UPDATE SET way = excluded.way;

-- name: site_release
-- Let names stand for nothing whose file or agent is gone and that hold no jobs; :files is [name, ...].
UPDATE site SET way = '' WHERE way <> ''
  AND ((way = 'batch' AND name NOT IN (SELECT value FROM json_each(:files)))
    OR (way = 'agent' AND name NOT IN (SELECT name FROM edge_site)))
  AND 'site:' || name NOT IN (
    SELECT attempt.starter FROM job INDEXED BY job_live
    JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
    WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
      AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  );

-- name: site_all
-- All sites that were ever used, and how they are.
SELECT id, name, trouble, since, seen, facts, asked, asked_by, asked_at, asked_why, way
FROM site ORDER BY name;

-- name: site_counts
-- How many attempts each site holds, by the state of their jobs.
SELECT attempt.starter, job.state, count(*) FROM job INDEXED BY job_live
JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND attempt.starter GLOB 'site:*'
GROUP BY attempt.starter, job.state;

-- name: site_running
-- Attempts at sites that have begun to run.
SELECT job.id, job.attempt FROM job INDEXED BY job_live
JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state IN ('running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND attempt.starter GLOB 'site:*';

-- name: submission_add
-- Write down what is about to be submitted.
INSERT INTO submission (key, site, batch, body, state, created)
VALUES (:key, :site, :batch, :body, 'intent', :now) RETURNING id;

-- name: submission_renew
-- Write down that a submission is tried anew.
UPDATE submission SET key = :key, body = :body, state = 'intent', number = '', tries = tries + 1
WHERE id = :id AND state <> 'over';

-- name: submission_former
-- Write down that an earlier try of a submission is over.
INSERT INTO submission (key, site, batch, body, state, tries, created, ended, reason)
SELECT :key, site, batch, :body, 'over', tries - 1, created, :now, reason FROM submission
WHERE id = :id;

-- name: submission_know
-- Write down the id that the batch system gave.
UPDATE submission SET state = 'known', number = :number, reason = '' WHERE id = :id AND state <> 'over';

-- name: submission_note
-- Write down the last word about a submission.
UPDATE submission SET reason = :reason WHERE id = :id;

-- name: submission_over
-- End submissions of which nothing is out; :rows is [[submission, place], ...].
UPDATE submission SET state = 'over', ended = :now
WHERE id IN (SELECT value->>0 FROM json_each(:rows)) AND state <> 'over' AND NOT EXISTS (
    SELECT 1 FROM submitted WHERE submission = submission.id AND state = 'out'
);

-- name: submission_live
-- Submissions of a site that are not over.
SELECT id, key, batch, body, state, number, tries, created
FROM submission INDEXED BY submission_live
WHERE site = :site AND state <> 'over' ORDER BY id;

-- name: submission_closed
-- Which of these submissions are over; :keys is [key, ...].
SELECT key FROM submission
WHERE key IN (SELECT value FROM json_each(:keys)) AND state = 'over';

-- name: submission_of
-- What was submitted for an attempt of a job, the newest first.
SELECT submission.batch, submission.key, submission.number, submission.reason, submitted.place,
       submission.tries, submission.body->'fit'->>'why'
FROM submitted JOIN submission ON submission.id = submitted.submission
WHERE submitted.job = :job AND submitted.attempt = :attempt ORDER BY submission.id DESC;

-- name: submitted_purge
-- Forget what was submitted for jobs; :ids is [id, ...].
DELETE FROM submitted WHERE job IN (SELECT value FROM json_each(:ids));

-- name: submission_purge
-- Forget submissions of which nothing is left.
DELETE FROM submission WHERE state = 'over'
  AND NOT EXISTS (SELECT 1 FROM submitted WHERE submission = submission.id);

-- name: submitted_add
-- What a submission is for; :rows is [[submission, place, job, attempt, pilot], ...].
INSERT INTO submitted (submission, place, job, attempt, pilot)
SELECT value->>0, value->>1, value->>2, value->>3, value->>4 FROM json_each(:rows);

-- name: submitted_over
-- End parts of submissions; :rows is [[submission, place], ...].
UPDATE submitted SET state = 'over' FROM json_each(:rows) AS one
WHERE submission = one.value->>0 AND place = one.value->>1;

-- name: submitted_out
-- What submissions of a site are for that is not over.
SELECT submission, place, job, attempt, pilot FROM submission INDEXED BY submission_live
JOIN submitted ON submission = submission.id
WHERE site = :site AND submission.state <> 'over' AND submitted.state = 'out';

-- name: site_claims
-- Attempts that a holder has, as claims.
SELECT job.id, job.attempt, spec, binding, rule, depth, owner, job.state FROM job INDEXED BY job_live
JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND attempt.starter = :holder
ORDER BY job.id;

-- name: job_say
-- Say why jobs at a site wait; :rows is [[job, attempt], ...].
UPDATE job SET reason = :reason FROM json_each(:rows) AS one
WHERE job.id = one.value->>0 AND job.attempt = one.value->>1
  AND job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out');

-- name: job_stranded
-- Say of jobs that their site has no file any more; :marks is [holder, ...] of those that have.
UPDATE job SET reason = 'sites/' || substr(attempt.starter, 6) || '.toml is gone: nobody looks after '
    || 'it there until the file is back' FROM attempt
WHERE attempt.job = job.id AND attempt.number = job.attempt
  AND job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND attempt.starter GLOB 'site:*' AND attempt.starter NOT IN (SELECT value FROM json_each(:marks))
  AND substr(attempt.starter, 6) NOT IN (SELECT name FROM edge_site);

-- name: site_taken
-- How many pilots of each site have not ended, and how many cores they have or shall have.
SELECT site, count(*), sum(coalesce(facts->>'cpus', wish->>'cpus', 1))
FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost') AND id > 0 GROUP BY site;

-- name: site_pilots
-- Sites with pilots that have not ended: how many, how many take work, and when one was heard of.
SELECT site, count(*), sum(state = 'available'), max(seen) FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost') AND id > 0 GROUP BY site;

-- name: site_tokens
-- Sites that something may still come from, by tokens that count.
SELECT DISTINCT site, scope FROM token
WHERE site <> '' AND revoked IS NULL AND expires > :now AND (uses IS NULL OR uses > 0);

-- name: site_last_pilot
-- When a pilot of a site was last heard of; nothing if it never had one.
SELECT max(seen) FROM pilot WHERE site = :name AND id > 0;
