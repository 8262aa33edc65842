-- name: job_name_counts
-- How many of some jobs are in each state, by name; :ids is [id, ...].
SELECT name, state, count(*) FROM job WHERE id IN (SELECT value FROM json_each(:ids))
GROUP BY name, state ORDER BY min(id);

-- name: job_counts_after
-- How many jobs of each name after a number are in each state.
SELECT name, state, count(*) FROM job WHERE id > :after GROUP BY name, state ORDER BY min(id);

-- name: job_first_live
-- The number of the oldest job that is not at an end.
SELECT min(id) FROM job INDEXED BY job_live
WHERE state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: journal_end_counts
-- How many jobs ended in which state after a line.
SELECT state, count(*) FROM journal
WHERE seq > :after AND state IN ('done', 'failed', 'cancelled', 'rejected') GROUP BY state;

-- name: job_asked_of
-- What a person asked of a running job.
SELECT asked FROM job WHERE id = :id;

-- name: journal_news
-- What is worth telling after a line: ends, holds, and attempts that are followed by another.
SELECT journal.seq, journal.time, journal.job, journal.state, journal.reason, job.name
FROM journal JOIN job ON job.id = journal.job
WHERE journal.seq > :after AND (
    journal.state IN ('done', 'failed', 'cancelled', 'rejected', 'held')
    OR (journal.state = 'queued' AND journal.attempt > 0 AND journal.reason <> '')
) ORDER BY journal.seq LIMIT 5000;

-- name: job_queued_kinds
-- Definitions and owners of queued jobs.
SELECT DISTINCT spec, owner FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: job_queued_count
-- The first queued job of each of some definitions and owners, and how many there are;
-- :kinds is [[definition, owner], ...].
SELECT spec, min(id), count(*) FROM job INDEXED BY job_live
WHERE state = 'queued' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND (spec, owner) IN (SELECT value->>0, value->>1 FROM json_each(:kinds))
GROUP BY spec ORDER BY min(id);
