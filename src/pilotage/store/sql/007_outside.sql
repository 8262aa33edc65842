-- Pools that somebody outside the hub steers.

-- What was asked for last: a `pool.outside.Told` as JSON.
ALTER TABLE pool ADD COLUMN told TEXT NOT NULL DEFAULT '';
