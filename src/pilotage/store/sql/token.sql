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
