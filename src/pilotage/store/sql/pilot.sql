-- name: pilot_add
-- Enrol a pilot.
INSERT INTO pilot (name, site, pool, state, reason, digest, facts, enrolled, seen)
VALUES (:name, :site, :pool, :state, '', :digest, :facts, :now, :now) RETURNING id;

-- name: pilot_token
-- Note with which token a pilot enrolled.
UPDATE pilot SET token = :token WHERE id = :id;

-- name: pilot_of_key
-- The pilot whose node made a key.
SELECT id, site, pool, state FROM pilot WHERE digest = :digest AND digest <> '';

-- name: pilot_get
-- One pilot.
SELECT id, name, site, pool, state, reason, digest, facts, enrolled, seen, ended, running, used,
    asked, busy, resident, drained
FROM pilot WHERE id = :id;

-- name: pilot_state
-- Where a pilot is in its life.
SELECT state FROM pilot WHERE id = :id;

-- name: pilot_revoked
-- Pilots that enrolled with a token that was revoked since, and have not ended.
SELECT pilot.id FROM token CROSS JOIN pilot ON pilot.token = token.id
WHERE token.revoked IS NOT NULL AND pilot.state NOT IN ('down', 'failed', 'lost');

-- name: pilot_alive
-- Pilots that have not ended.
SELECT id, name, site, pool, state, reason, digest, facts, enrolled, seen, ended, running, used,
    asked, busy, resident, drained
FROM pilot WHERE state IN ('booting', 'available', 'draining') AND id > 0 ORDER BY id;

-- name: pilot_move
-- Change the state of a pilot; whoever had it drain before, this is another matter.
UPDATE pilot SET state = :state, reason = :reason, seen = :now, ended = :ended, drained = ''
WHERE id = :id;

-- name: pilot_describe
-- Write down what a pilot has found out about its node.
UPDATE pilot SET facts = :facts WHERE id = :id;

-- name: pilot_done
-- Note how many jobs a pilot has done.
UPDATE pilot SET done = :done WHERE id = :id;

-- name: pilot_shed
-- Note that the pool of a pilot has it drain.
UPDATE pilot SET drained = 'pool' WHERE id = :id AND state = 'draining';

-- name: pilot_recall
-- Call a pilot back that its pool had drain, unless a person wants something of it.
UPDATE pilot SET state = 'available', reason = :reason, drained = ''
WHERE id = :id AND state = 'draining' AND drained = 'pool' AND asked = '' RETURNING id;

-- name: pilot_seen
-- Write down how pilots are; :rows is [[id, seen, running, used, busy, resident], ...].
UPDATE pilot SET seen = now.value->>1, running = now.value->>2, used = now.value->>3,
    busy = now.value->>4, resident = now.value->>5
FROM json_each(:rows) AS now WHERE pilot.id = now.value->>0;

-- name: pilot_asked
-- Pilots of which a person wants something.
SELECT id, asked FROM pilot WHERE asked <> '' AND state NOT IN ('requested', 'submitted');

-- name: pilot_ask
-- Ask a pilot to drain or stop.
UPDATE pilot SET asked = :asked WHERE id = :id AND state NOT IN ('down', 'failed', 'lost') RETURNING id;

-- name: pilot_answer
-- Note that what a person asked for is done.
UPDATE pilot SET asked = '' WHERE id = :id;

-- name: pilot_local
-- Show this machine among the pilots; its number is 0.
INSERT INTO pilot (id, name, site, pool, state, reason, digest, facts, enrolled, seen)
VALUES (0, :name, :site, '', :state, '', '', :facts, :now, :now)
ON CONFLICT (id) DO UPDATE SET name = excluded.name, state = excluded.state, facts = excluded.facts,
    seen = excluded.seen, running = 0, used = 0, ended = NULL;

-- name: pilot_want
-- Ask for a pilot at a site.
INSERT INTO pilot (name, site, pool, state, reason, digest, facts, enrolled, seen, wish)
VALUES (:name, :site, :pool, 'requested', '', '', '{}', :now, :now, :wish) RETURNING id;

-- name: pilot_wanted
-- Pilots of a site that were asked for and not submitted; those that nobody wants any more, too.
SELECT id, pool, wish, asked FROM pilot INDEXED BY pilot_live
WHERE state = 'requested' AND state NOT IN ('down', 'failed', 'lost') AND site = :site
  AND NOT EXISTS (SELECT 1 FROM submitted WHERE pilot = pilot.id AND submitted.state = 'out')
ORDER BY id;

-- name: pilot_unwanted
-- Pilots of a site that are submitted and that nobody wants any more.
SELECT id FROM pilot WHERE asked <> '' AND state IN ('requested', 'submitted') AND site = :site;

-- name: pilot_queued
-- Note that the batch system has pilots; :ids is [id, ...].
UPDATE pilot SET state = 'submitted', reason = :reason
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('requested', 'submitted');

-- name: pilot_say
-- Say why pilots wait; :ids is [id, ...].
UPDATE pilot SET reason = :reason
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('requested', 'submitted');

-- name: pilot_wish
-- What was asked for when a pilot was.
SELECT pool, wish FROM pilot WHERE id = :id;

-- name: pilot_come
-- Enrol a pilot that was asked for.
UPDATE pilot SET name = :name, state = 'booting', digest = :digest, facts = :facts,
    enrolled = :now, seen = :now, reason = ''
WHERE id = :id AND state IN ('requested', 'submitted') RETURNING id;

-- name: pilot_never
-- End a pilot that never came.
UPDATE pilot SET state = :state, reason = :reason, ended = :now, asked = ''
WHERE id = :id AND state IN ('requested', 'submitted') RETURNING id;

-- name: pilot_end_add
-- Keep how the batch job of a pilot that had come ended, until that is acted on.
INSERT INTO pilot_end (pilot, words) VALUES (:pilot, :words) ON CONFLICT (pilot) DO NOTHING;

-- name: pilot_end_drop
-- Forget how the batch job of a pilot ended.
DELETE FROM pilot_end WHERE pilot = :pilot;

-- name: pilot_list
-- Pilots by state and site, the newest first; :states is [state, ...].
SELECT id, name, site, pool, state, reason, facts, enrolled, seen, ended, running, used, asked,
    busy, resident
FROM pilot
WHERE (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:site = '' OR site = :site)
ORDER BY id DESC LIMIT :most;
