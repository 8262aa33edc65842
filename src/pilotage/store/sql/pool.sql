-- name: pool_all
-- All pools that were ever steered.
SELECT name, demand, state, care, died, looked, seen, words, asked, reason, changed
FROM pool ORDER BY name;

-- name: pool_put
-- Write down what was seen of a pool and what was decided.
INSERT INTO pool (name, demand, state, care, died, looked, seen, words, asked, reason)
VALUES (:name, :demand, :state, :care, :died, :looked, :seen, :words, :asked, :reason)
ON CONFLICT (name) DO UPDATE SET demand = excluded.demand, state = excluded.state,
    care = excluded.care, died = excluded.died, looked = excluded.looked, seen = excluded.seen,
    words = excluded.words, asked = excluded.asked, reason = excluded.reason;

-- name: pool_drop
-- Forget a pool that has no file and no pilots.
DELETE FROM pool WHERE name = :name;

-- name: pool_ask
-- Pause a pool, or let it go on; what died before counts no more.
INSERT INTO pool (name, asked, reason) VALUES (:name, :asked, :reason)
ON CONFLICT (name) DO UPDATE SET asked = excluded.asked, reason = excluded.reason,
    care = CASE WHEN excluded.asked = '' THEN '{}' ELSE care END;

-- name: pool_set
-- Set what holds instead of what the file of a pool says.
INSERT INTO pool (name, changed) VALUES (:name, :changed)
ON CONFLICT (name) DO UPDATE SET changed = excluded.changed;

-- name: pool_pilots
-- Pilots of pools that have not ended.
SELECT id, pool, site, state, asked, wish, drained, enrolled, wanted FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost') AND id > 0 AND pool <> '' ORDER BY id;

-- name: pool_ended
-- Pilots of pools that ended after a time.
SELECT pool, state, reason, facts <> '{}', facts->>'lifetime', enrolled, wanted, ended,
    done > 0, asked <> ''
FROM pilot INDEXED BY pilot_ended WHERE ended > :since AND pool <> '' ORDER BY ended;

-- name: pool_want
-- Ask for a pilot of a pool.
INSERT INTO pilot (name, site, pool, state, reason, digest, facts, enrolled, seen, wish, wanted)
VALUES (:site, :site, :pool, 'requested', '', '', '{}', :now, :now, :wish, :now) RETURNING id;

-- name: pool_said
-- What is said of most pilots of a pool that wait.
SELECT reason FROM pilot INDEXED BY pilot_live
WHERE state IN ('requested', 'submitted') AND state NOT IN ('down', 'failed', 'lost')
  AND pool = :pool AND asked = '' AND reason <> ''
GROUP BY reason ORDER BY count(*) DESC, max(id) DESC LIMIT 1;

-- name: pool_sight
-- What the last pilot of a pool that came saw of the project's folder.
SELECT facts->>'project' FROM pilot
WHERE pool = :pool AND id > 0 AND state NOT IN ('requested', 'submitted')
ORDER BY id DESC LIMIT 1;

-- name: pool_call_off
-- Cancel pilots that have not come; one that comes before it hears of this drains.
-- :ids is [id, ...].
UPDATE pilot SET asked = 'drain' WHERE id IN (SELECT value FROM json_each(:ids))
  AND state IN ('requested', 'submitted') AND asked = '';

-- name: pool_needs
-- What the AIMD policy remembers of kinds of jobs.
SELECT name, body FROM pool_need;

-- name: pool_need_clear
-- Forget what the AIMD policy remembered of kinds of jobs.
DELETE FROM pool_need;

-- name: pool_need_put
-- Remember kinds of jobs; :rows is [[name, body], ...].
INSERT INTO pool_need (name, body) SELECT value->>0, value->>1 FROM json_each(:rows);

-- name: pool_sample_put
-- Write down how a pool is.
INSERT OR REPLACE INTO pool_sample
    (time, pool, supply, demand, utilisation, allocation, queued, waiting)
VALUES (:now, :pool, :supply, :demand, :utilisation, :allocation, :queued, :waiting);

-- name: pool_sample_purge
-- Forget pictures of long ago.
DELETE FROM pool_sample WHERE time < :before;

-- name: pool_samples
-- How pools were since a time: the last picture of each step.
SELECT max(time), pool, supply, demand, utilisation, allocation, queued, waiting
FROM pool_sample WHERE time >= :since AND (:pool = '' OR pool = :pool)
GROUP BY pool, CAST(time / :step AS INTEGER) ORDER BY max(time) LIMIT :most;
