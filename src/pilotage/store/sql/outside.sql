-- name: outside_all
-- What was asked of pools from outside.
SELECT name, told FROM pool WHERE told <> '';

-- name: outside_get
-- What a person has set for a pool, and what was asked of it from outside.
SELECT changed, told FROM pool WHERE name = :name;

-- name: outside_put
-- Write down what was asked of a pool from outside.
INSERT INTO pool (name, told) VALUES (:name, :told)
ON CONFLICT (name) DO UPDATE SET told = excluded.told;
