-- The log of a job at a site with an agent, while it runs.

-- In an agent: whether a hub has followed a job, and so understands where the ends of its streams begin.
ALTER TABLE edge_job ADD COLUMN followed INTEGER NOT NULL DEFAULT 0;

-- In a hub: until when somebody follows the log of an attempt, of which attempt at the site the hub
-- has something, and how many bytes of both streams.
ALTER TABLE edge_attempt ADD COLUMN followed REAL NOT NULL DEFAULT 0;
ALTER TABLE edge_attempt ADD COLUMN log_attempt INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edge_attempt ADD COLUMN stdout_size INTEGER NOT NULL DEFAULT 0;
ALTER TABLE edge_attempt ADD COLUMN stderr_size INTEGER NOT NULL DEFAULT 0;
CREATE INDEX edge_attempt_followed ON edge_attempt (followed) WHERE followed > 0;
