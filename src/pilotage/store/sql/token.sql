-- name: token_add
-- Keep the digest of a new token.
INSERT INTO token (digest, scope, owner, pool, site, label, created, expires, uses, pilot)
VALUES (:digest, :scope, :owner, :pool, :site, :label, :now, :expires, :uses, :pilot) RETURNING id;

-- name: token_get
-- What the holder of a secret may do, whether or not it still counts.
SELECT id, scope, owner, pool, site, expires, uses, revoked, pilot FROM token WHERE digest = :digest;

-- name: token_use
-- Take one use of a token that has only so many.
UPDATE token SET uses = uses - 1 WHERE id = :id AND uses > 0;

-- name: token_revoke
-- Let a token count no longer.
UPDATE token SET revoked = coalesce(revoked, :now) WHERE id = :id RETURNING id;

-- name: token_list
-- All tokens, the newest first; of their secrets nothing is known.
SELECT id, scope, owner, pool, site, label, created, expires, uses, revoked
FROM token ORDER BY id DESC LIMIT :most;

-- name: agent_renew
-- Have another key of an agent count; what it enrolled with is used up by that.
UPDATE token SET digest = :digest, expires = :expires, uses = NULL WHERE id = :id;

-- name: agent_others_revoke
-- A site has one agent: others that enrolled for it count no longer.
UPDATE token SET revoked = coalesce(revoked, :now)
WHERE scope = 'agent' AND site = :site AND uses IS NULL AND id <> :id;

-- name: agent_sites
-- Sites whose agents have enrolled at this hub's port.
SELECT DISTINCT site FROM token WHERE scope = 'agent' AND uses IS NULL AND revoked IS NULL;

-- name: agent_expected
-- Whether the agent of a site dials this hub's port, or was given a token to do so.
SELECT 1 FROM token WHERE scope = 'agent' AND site = :site LIMIT 1;

-- name: agent_site
-- Whether the agent of a site has enrolled at this hub's port.
SELECT 1 FROM token WHERE scope = 'agent' AND uses IS NULL AND revoked IS NULL AND site = :site;
