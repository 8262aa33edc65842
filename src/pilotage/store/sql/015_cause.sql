-- What ended an attempt: a `job.outcome.Cause`; empty if it succeeded, or ended before this was kept.
ALTER TABLE attempt ADD COLUMN cause TEXT NOT NULL DEFAULT '';
