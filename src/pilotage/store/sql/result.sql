-- name: result_totals
-- How many jobs are in each state, with the time of processors, and the first and last moment.
SELECT job.state, count(*), min(job.created), max(coalesce(job.ended, job.started, job.created)),
       sum(coalesce(attempt.cpu, 0)), max(attempt.max_rss)
FROM job LEFT JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
GROUP BY job.state ORDER BY count(*) DESC;

-- name: result_jobs
-- Jobs with their last attempts and the events that made them; the newest :most, oldest first.
SELECT * FROM (
    SELECT job.id, job.name, job.state, job.reason, job.binding, job.created, job.started,
           job.ended, job.parent, coalesce(event.kind, ''), coalesce(event.subject, ''),
           attempt.dir, attempt.wall, attempt.cpu, attempt.max_rss, job.attempt
    FROM job LEFT JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
             LEFT JOIN event ON event.id = job.event
    WHERE :states = '[]' OR job.state IN (SELECT value FROM json_each(:states))
    ORDER BY job.id DESC LIMIT :most
) ORDER BY 1;

-- name: result_rules
-- How many jobs of each name are in each state.
SELECT name, state, count(*) FROM job GROUP BY name, state ORDER BY min(id);

-- name: result_causes
-- How often a job of one name caused a job of another.
SELECT before.name, job.name, count(*)
FROM job JOIN job AS before ON before.id = job.parent
GROUP BY before.name, job.name ORDER BY min(job.id);

-- name: result_waits
-- How often a job of one name had to wait for a job of another.
SELECT before.name, job.name, count(*)
FROM dependency JOIN job ON job.id = dependency.job JOIN job AS before ON before.id = on_job
GROUP BY before.name, job.name ORDER BY min(job.id);

-- name: result_births
-- What made the jobs that no job caused, by name.
SELECT job.name, job.rule, coalesce(event.kind, ''), count(*),
       CASE WHEN event.kind LIKE 'dir.%' THEN event.subject ELSE '' END AS folder
FROM job LEFT JOIN event ON event.id = job.event
WHERE job.parent IS NULL AND NOT EXISTS (SELECT 1 FROM dependency WHERE dependency.job = job.id)
GROUP BY job.name, job.rule, event.kind, folder ORDER BY min(job.id);

-- name: result_writers
-- Names of jobs that declared outputs in a folder, with how many.
SELECT job.name, count(DISTINCT job.id) FROM output JOIN job ON job.id = output.job
WHERE path >= :folder || '/' AND path < :folder || '0'
GROUP BY job.name ORDER BY min(job.id);

-- name: result_outputs
-- Declared outputs of the newest jobs, oldest first.
SELECT path, output.job, job.name FROM output JOIN job ON job.id = output.job
WHERE output.job >= :first ORDER BY output.job, path;

-- name: result_dependencies
-- What some jobs had to wait for; :ids is [id, ...].
SELECT on_job, job FROM dependency WHERE job IN (SELECT value FROM json_each(:ids));
