-- name: edges_all
-- All sites with an agent that were heard of, and whether it comes by this hub's port.
SELECT name, speaker, heard, state, since, gaps, body, EXISTS (
    SELECT 1 FROM token
    WHERE scope = 'agent' AND uses IS NULL AND revoked IS NULL AND token.site = edge_site.name
) FROM edge_site ORDER BY name;

-- name: edges_one
-- A site with an agent that was heard of, and whether it comes by this hub's port.
SELECT name, speaker, heard, state, since, gaps, body, EXISTS (
    SELECT 1 FROM token
    WHERE scope = 'agent' AND uses IS NULL AND revoked IS NULL AND token.site = edge_site.name
) FROM edge_site WHERE name = :name;

-- name: edges_heard
-- Note a heartbeat.
INSERT INTO edge_site (name, speaker, heard, state, since, gaps, body)
VALUES (:name, :speaker, :heard, :state, :since, :gaps, :body)
ON CONFLICT (name) DO UPDATE SET speaker = excluded.speaker, heard = excluded.heard,
    state = excluded.state, since = excluded.since, gaps = excluded.gaps, body = excluded.body;

-- name: edges_became
-- Note how a site is now.
UPDATE edge_site SET state = :state, since = :since WHERE name = :name;

-- name: edges_forget
-- Forget a site; its next heartbeat brings it back.
DELETE FROM edge_site WHERE name = :name RETURNING name;

-- name: edges_broker
-- How it goes with the broker.
SELECT trouble, since, seen FROM edge_broker;

-- name: edges_listen
-- Note how it goes with the broker.
INSERT INTO edge_broker (id, trouble, since, seen) VALUES (1, :trouble, :since, :now)
ON CONFLICT (id) DO UPDATE
SET trouble = excluded.trouble, since = excluded.since, seen = excluded.seen;
