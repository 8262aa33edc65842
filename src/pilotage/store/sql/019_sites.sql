-- Who had a site drained, when and why; and what its name stands for: '' until jobs went there,
-- 'batch' for a file of the project, 'agent' for a site that its agent speaks for.
ALTER TABLE site ADD COLUMN asked_by TEXT NOT NULL DEFAULT '';
ALTER TABLE site ADD COLUMN asked_why TEXT NOT NULL DEFAULT '';
ALTER TABLE site ADD COLUMN asked_at REAL NOT NULL DEFAULT 0;
ALTER TABLE site ADD COLUMN way TEXT NOT NULL DEFAULT '';
UPDATE site SET way = 'batch' WHERE facts <> '{}';
INSERT INTO site (name, way) SELECT name, 'agent' FROM edge_site WHERE true
ON CONFLICT (name) DO UPDATE SET way = excluded.way WHERE facts = '{}';

-- In an agent: what the batch system says of a job that waits there is told, too. A change of state
-- has a line of the journal, and is told by that.
CREATE TRIGGER edge_waits AFTER UPDATE OF reason ON job
WHEN NEW.state = 'submitted' AND OLD.state = 'submitted' AND NEW.reason <> OLD.reason
  AND NEW.reason <> '' AND EXISTS (SELECT 1 FROM edge_job WHERE job = NEW.id)
BEGIN
    UPDATE edge_job SET seq = seq + 1 WHERE job = NEW.id;
    INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time)
    SELECT job, seq, NEW.attempt, state, step, '', '', NEW.reason, unixepoch('subsec')
    FROM edge_job WHERE job = NEW.id;
END;
