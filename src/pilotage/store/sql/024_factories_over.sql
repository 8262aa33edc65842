-- A factory is an agent now: what factories and the hubs that they fed had is carried over or over.

-- In a hub: the name of a site that a factory fed is free for the agent of that site.
UPDATE site SET way = '' WHERE name IN (SELECT site FROM factory);
-- Pilots there that have not come and may be in a batch queue: their secrets count no longer, and
-- pools order others of the agent. What was wanted and not enrolled stays wanted.
CREATE TEMP TABLE awaited AS SELECT id FROM pilot
WHERE site IN (SELECT site FROM factory) AND (state = 'submitted' OR (
    state = 'requested' AND id IN (SELECT pilot FROM token WHERE pilot IS NOT NULL)
));
UPDATE token SET revoked = unixepoch('subsec')
WHERE revoked IS NULL AND (scope = 'factory' OR pilot IN (SELECT id FROM awaited));
UPDATE pilot SET state = 'down', reason = 'its factory was replaced by an agent', asked = '',
    ended = unixepoch('subsec')
WHERE id IN (SELECT id FROM awaited);
DROP TABLE awaited;
-- Ends of pilots that had come are heard of from agents alone; a lease tells of the others.
DELETE FROM factory_end WHERE pilot NOT IN (SELECT number FROM edge_attempt WHERE job = 0);
ALTER TABLE factory_end RENAME TO pilot_end;

-- In a factory: batch jobs of pilots end by themselves, and nothing is submitted again for them.
UPDATE submitted SET state = 'over' WHERE state = 'out' AND pilot IN (SELECT id FROM guest);
UPDATE submission SET state = 'over', ended = unixepoch('subsec')
WHERE state <> 'over' AND EXISTS (
    SELECT 1 FROM submitted WHERE submission = submission.id AND pilot IN (SELECT id FROM guest)
) AND NOT EXISTS (SELECT 1 FROM submitted WHERE submission = submission.id AND state = 'out');

DROP TABLE factory;
DROP TABLE guest;
DROP TABLE fed;
