-- name: book_put
-- Keep a book as it was loaded.
INSERT INTO book (name, origin, source, loaded) VALUES (:name, :origin, :source, :now)
ON CONFLICT (name) DO UPDATE SET
    origin = excluded.origin, source = excluded.source, loaded = excluded.loaded;

-- name: book_drop
-- Forget a book.
DELETE FROM book WHERE name = :name;

-- name: book_list
-- All books.
SELECT name, origin, source, loaded FROM book ORDER BY name;

-- name: rule_put
-- Keep a rule; one that fires on the same as before does not fire on known files again.
INSERT INTO rule (name, book, digest, body, enabled, loaded, settled)
VALUES (:name, :book, :digest, :body, :enabled, :now, 0)
ON CONFLICT (name) DO UPDATE SET
    book = excluded.book, body = excluded.body, loaded = excluded.loaded,
    enabled = excluded.enabled,
    settled = CASE WHEN digest = excluded.digest THEN settled ELSE 0 END,
    digest = excluded.digest;

-- name: rule_drop
-- Forget a rule.
DELETE FROM rule WHERE name = :name;

-- name: rule_list
-- All rules.
SELECT name, book, digest, body, enabled, loaded, settled, coalesce(hit.count, 0)
FROM rule LEFT JOIN hit ON hit.rule = rule.name ORDER BY name;

-- name: rule_enable
-- Let a rule take events, or not; one that takes them again catches up with what exists.
UPDATE rule SET enabled = :enabled,
    settled = CASE WHEN :enabled AND NOT enabled THEN 0 ELSE settled END
WHERE name = :name RETURNING name;

-- name: rule_settled
-- These rules have fired on the files that were known before them; :names is [name, ...].
UPDATE rule SET settled = 1 WHERE name IN (SELECT value FROM json_each(:names));

-- name: rule_hits
-- Count the jobs that rules made since a number.
INSERT INTO hit (rule, count) SELECT rule, count(*) FROM job WHERE id > :after GROUP BY rule
ON CONFLICT (rule) DO UPDATE SET count = count + excluded.count;

-- name: pending_put
-- A rule waits for a file; a later event starts the wait again.
INSERT INTO pending (rule, path, due, event) VALUES (:rule, :path, :due, :event)
ON CONFLICT (rule, path) DO UPDATE SET due = excluded.due, event = excluded.event;

-- name: pending_drop
-- The wait is over, unless it has begun again.
DELETE FROM pending WHERE rule = :rule AND path = :path AND due = :due;

-- name: pending_due
-- Waits that are over.
SELECT rule, path, due, event FROM pending WHERE due <= :now ORDER BY due LIMIT 1000;

-- name: pending_next
-- When the next wait is over.
SELECT min(due) FROM pending;

-- name: gathered_put
-- A file of a set has come; a new version takes the place of the old one.
INSERT INTO gathered (rule, set_key, item, path, event)
VALUES (:rule, :set_key, :item, :path, :event)
ON CONFLICT (rule, set_key, item) DO UPDATE SET path = excluded.path, event = excluded.event;

-- name: gathered_count
-- How many files of a set have come.
SELECT count(*) FROM gathered WHERE rule = :rule AND set_key = :set_key;

-- name: gathered_list
-- The files of a set that have come.
SELECT item, path, event FROM gathered WHERE rule = :rule AND set_key = :set_key ORDER BY item;

-- name: gathered_drop
-- The set is complete and its job made.
DELETE FROM gathered WHERE rule = :rule AND set_key = :set_key;
