-- name: file_seen
-- Note the entries of directories; :rows is [[dir, name, is_dir, inode, size, mtime_ns], ...].
INSERT INTO file (dir, name, is_dir, inode, size, mtime_ns)
SELECT value->>0, value->>1, value->>2, value->>3, value->>4, value->>5 FROM json_each(:rows)
WHERE true
ON CONFLICT (dir, name) DO UPDATE SET
    is_dir = excluded.is_dir, inode = excluded.inode,
    size = excluded.size, mtime_ns = excluded.mtime_ns;

-- name: file_gone
-- Forget entries; :rows is [[dir, name], ...].
DELETE FROM file WHERE (dir, name) IN (SELECT value->>0, value->>1 FROM json_each(:rows));

-- name: file_tree_gone
-- Forget all that is below a directory.
DELETE FROM file WHERE dir = :dir OR (dir >= :dir || '/' AND dir < :dir || '0');

-- name: file_listing
-- What is known of the entries of a directory.
SELECT name, is_dir, inode, size, mtime_ns FROM file WHERE dir = :dir;

-- name: file_dirs_below
-- Directories at or below one that have known entries or are known themselves.
SELECT DISTINCT dir FROM file WHERE dir = :dir OR (dir >= :dir || '/' AND dir < :dir || '0');

-- name: file_below
-- Every known entry below a directory, for a new rule.
SELECT dir, name, is_dir, inode, size, mtime_ns FROM file
WHERE dir = :dir OR (dir >= :dir || '/' AND dir < :dir || '0');

-- name: event_last
-- The number of the newest event, also if it was forgotten.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'event'), 0);

-- name: event_add
-- Write events, numbered from :first on; :rows is
-- [[time, kind, subject, version, data, cause, taken], ...].
INSERT INTO event (id, time, kind, subject, version, data, cause, taken)
SELECT :first + key, value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6
FROM json_each(:rows);

-- name: event_waiting
-- Events that were stored but whose jobs are not made yet.
SELECT id, time, kind, subject, version, data, cause FROM event WHERE taken = 0 ORDER BY id LIMIT 1000;

-- name: event_taken
-- Their jobs are made; :ids is [id, ...].
UPDATE event SET taken = 1 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: event_message
-- The number of a message by its topic and identity.
SELECT id FROM event WHERE kind = 'message' AND subject = :topic AND version = :identity;

-- name: event_get
-- One event.
SELECT id, time, kind, subject, version, data, cause FROM event WHERE id = :id;

-- name: event_list
-- The newest events of some kinds, oldest first.
SELECT * FROM (
    SELECT id, time, kind, subject, version, data, cause FROM event
    WHERE id > :after AND kind GLOB :kind ORDER BY id DESC LIMIT :most
) ORDER BY id;

-- name: event_purgeable
-- Events that no job refers to.
SELECT id, kind, data FROM event WHERE taken = 1 AND time < :before AND id NOT IN (
    SELECT event FROM job WHERE event IS NOT NULL
) LIMIT :most;

-- name: event_purge
-- Forget events; :ids is [id, ...].
DELETE FROM event WHERE id IN (SELECT value FROM json_each(:ids));

-- name: cursor_get
-- How far a source has come.
SELECT value FROM cursor WHERE source = :source;

-- name: cursor_set
-- Remember how far a source has come.
INSERT INTO cursor (source, value) VALUES (:source, :value)
ON CONFLICT (source) DO UPDATE SET value = excluded.value;
