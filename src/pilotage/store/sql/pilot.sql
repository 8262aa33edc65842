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
SELECT id, name, site, pool, state, reason, digest, facts, enrolled, seen, ended, running, used, asked
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
SELECT id, name, site, pool, state, reason, digest, facts, enrolled, seen, ended, running, used, asked
FROM pilot WHERE state NOT IN ('down', 'failed', 'lost') AND id > 0 ORDER BY id;

-- name: pilot_move
-- Change the state of a pilot.
UPDATE pilot SET state = :state, reason = :reason, seen = :now, ended = :ended WHERE id = :id;

-- name: pilot_seen
-- Write down how pilots are; :rows is [[id, seen, running, used], ...].
UPDATE pilot SET seen = now.value->>1, running = now.value->>2, used = now.value->>3
FROM json_each(:rows) AS now WHERE pilot.id = now.value->>0;

-- name: pilot_asked
-- Pilots of which a person wants something.
SELECT id, asked FROM pilot WHERE asked <> '';

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

-- name: pilot_list
-- Pilots by state and site, the newest first; :states is [state, ...].
SELECT id, name, site, pool, state, reason, facts, enrolled, seen, ended, running, used, asked
FROM pilot
WHERE (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
  AND (:site = '' OR site = :site)
ORDER BY id DESC LIMIT :most;
