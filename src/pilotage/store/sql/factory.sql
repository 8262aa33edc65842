-- name: factory_get
-- Who feeds a site, the number of its last report, when it came, and its words.
SELECT name, turn, heard, words FROM factory WHERE site = :site;

-- name: factory_put
-- Note that a factory was heard of.
INSERT INTO factory (site, name, turn, heard, words) VALUES (:site, :name, :turn, :now, :words)
ON CONFLICT (site) DO UPDATE SET name = excluded.name, turn = excluded.turn,
    heard = excluded.heard, words = excluded.words;

-- name: factory_all
-- When the factories of all sites were heard of last, and their words.
SELECT site, heard, words FROM factory;

-- name: factory_pilots
-- Pilots of a site that have not ended.
SELECT id, pool, state, reason, asked, wish FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost') AND site = :site AND id > 0 ORDER BY id;

-- name: factory_some
-- Some pilots of a site that have not come, and that are wanted; :ids is [id, ...].
SELECT id, pool FROM pilot WHERE id IN (SELECT value FROM json_each(:ids)) AND site = :site
  AND state IN ('requested', 'submitted') AND asked = '' AND id > 0 ORDER BY id;

-- name: factory_past
-- Pilots of a site that had come and have ended, and when; :ids is [id, ...].
SELECT id, state, ended FROM pilot WHERE id IN (SELECT value FROM json_each(:ids)) AND site = :site
  AND state IN ('down', 'failed', 'lost') AND facts <> '{}';

-- name: factory_idle
-- How many pilots of a site are wanted and have not been submitted.
SELECT count(*) FROM pilot INDEXED BY pilot_live
WHERE state NOT IN ('down', 'failed', 'lost') AND state = 'requested' AND asked = ''
  AND site = :site;

-- name: factory_unwanted
-- Pilots of a site that nobody has submitted as far as is known, and that nobody wants any more.
SELECT id FROM pilot WHERE asked <> '' AND state = 'requested' AND site = :site;

-- name: factory_end_add
-- Keep what a factory said of the end of a pilot that had come.
INSERT INTO factory_end (pilot, words) VALUES (:pilot, :words) ON CONFLICT (pilot) DO NOTHING;

-- name: factory_ends
-- What factories said of the ends of pilots of a site.
SELECT factory_end.pilot, words FROM factory_end JOIN pilot ON pilot.id = factory_end.pilot
WHERE pilot.site = :site;

-- name: factory_end_drop
-- Forget what a factory said of an end.
DELETE FROM factory_end WHERE pilot = :pilot;

-- name: token_spare
-- Let older secrets of a pilot go that nobody used; some are kept, since an answer may be late.
DELETE FROM token WHERE pilot = :pilot AND uses > 0 AND id NOT IN (
    SELECT id FROM token WHERE pilot = :pilot AND uses > 0 ORDER BY id DESC LIMIT :most
);

-- name: guest_add
-- Take a pilot on, once.
INSERT INTO guest (hub, remote, site, theirs, wish, cores, state, reason, taken)
VALUES (:hub, :remote, :site, :theirs, :wish, :cores, :state, :reason, :now)
ON CONFLICT (hub, remote) DO NOTHING;

-- name: guest_report
-- All pilots of a hub, as it is told of them.
SELECT theirs, remote, state, reason FROM guest WHERE hub = :hub ORDER BY id;

-- name: guest_use
-- What each hub has at each site.
SELECT hub, site, count(*), sum(cores), sum(state IN ('waits', 'submitted')), sum(asked <> '')
FROM guest WHERE state IN ('waits', 'submitted', 'running') GROUP BY hub, site;

-- name: guest_known
-- Which of some numbers of a hub were taken on; :remotes is [number, ...].
SELECT remote FROM guest WHERE hub = :hub AND remote IN (SELECT value FROM json_each(:remotes));

-- name: guest_drop
-- Forget pilots whose ends the hub has heard of; :remotes is [number, ...].
DELETE FROM guest WHERE hub = :hub AND remote IN (SELECT value FROM json_each(:remotes))
  AND state IN ('off', 'ended');

-- name: guest_off
-- Call pilots off; :remotes is [number, ...].
UPDATE guest SET asked = :words WHERE hub = :hub AND asked = ''
  AND remote IN (SELECT value FROM json_each(:remotes)) AND state IN ('waits', 'submitted', 'running');

-- name: guest_orphans
-- Call off what waits for hubs that have no file; :hubs is [hub, ...] of those that have.
UPDATE guest SET asked = :words WHERE asked = '' AND state IN ('waits', 'submitted')
  AND hub NOT IN (SELECT value FROM json_each(:hubs));

-- name: guest_forget
-- Forget pilots that are over, and of whose end nobody would hear; :hubs is as above.
DELETE FROM guest WHERE state IN ('off', 'ended')
  AND hub NOT IN (SELECT value FROM json_each(:hubs));

-- name: guest_waiting
-- Pilots of a site that were taken on and not submitted; those that nobody wants any more, too.
SELECT id, hub, wish, asked FROM guest WHERE site = :site AND state = 'waits'
  AND NOT EXISTS (SELECT 1 FROM submitted WHERE pilot = guest.id AND submitted.state = 'out')
ORDER BY id;

-- name: guest_unpapered
-- Pilots of a hub that were taken on and not submitted, by what the hub calls their site.
SELECT theirs, site, id, remote FROM guest WHERE hub = :hub AND state = 'waits' AND asked = ''
ORDER BY id;

-- name: guest_newest
-- Pilots of a hub that wait at a site, the newest first.
SELECT remote, cores FROM guest WHERE hub = :hub AND site = :site AND asked = ''
  AND state IN ('waits', 'submitted') ORDER BY id DESC LIMIT :most;

-- name: guest_unwanted
-- Pilots of a site that are submitted and that nobody wants any more.
SELECT id FROM guest WHERE site = :site AND asked <> '' AND state IN ('waits', 'submitted', 'running');

-- name: guest_of
-- Whose pilots are, and what they are to be; :ids is [id, ...].
SELECT id, hub, remote, theirs, wish FROM guest WHERE id IN (SELECT value FROM json_each(:ids));

-- name: guest_asked
-- Why a pilot is to be called off.
SELECT asked FROM guest WHERE id = :id;

-- name: guest_say
-- Say why pilots wait, and how far they are; :ids is [id, ...].
UPDATE guest SET reason = :reason, state = :state
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('waits', 'submitted');

-- name: guest_begin
-- Note that pilots run; :ids is [id, ...]. One that was to make room while it waited stays.
UPDATE guest SET state = 'running', reason = 'its batch job runs',
    asked = CASE asked WHEN :room THEN '' ELSE asked END
WHERE id IN (SELECT value FROM json_each(:ids)) AND state IN ('waits', 'submitted');

-- name: guest_end
-- Note that a pilot is over.
UPDATE guest SET state = :state, reason = :reason
WHERE id = :id AND state IN ('waits', 'submitted', 'running');

-- name: guest_counts
-- How many pilots and cores each hub has, by state.
SELECT hub, state, count(*), sum(cores) FROM guest GROUP BY hub, state;

-- name: guest_live
-- How many pilots are not over.
SELECT count(*) FROM guest WHERE state IN ('waits', 'submitted', 'running');

-- name: factory_own
-- How many pilots of this project's own are at sites, or are to be.
SELECT count(*) FROM submitted JOIN pilot ON pilot.id = submitted.pilot
JOIN submission ON submission.id = submitted.submission
WHERE submitted.state = 'out' AND submission.state <> 'over'
  AND pilot.state IN ('requested', 'submitted', 'booting', 'available', 'draining');

-- name: fed_all
-- How it goes with all hubs.
SELECT hub, heard, trouble, wanted, words FROM fed;

-- name: fed_turn
-- Number the next report to a hub; whatever the clock says, numbers grow.
INSERT INTO fed (hub, turn) VALUES (:hub, :least)
ON CONFLICT (hub) DO UPDATE SET turn = max(turn + 1, excluded.turn) RETURNING turn;

-- name: fed_heard
-- Note that a hub was heard of.
UPDATE fed SET heard = :now, trouble = '' WHERE hub = :hub;

-- name: fed_trouble
-- Note what is wrong with a hub.
INSERT INTO fed (hub, trouble) VALUES (:hub, :trouble)
ON CONFLICT (hub) DO UPDATE SET trouble = excluded.trouble;

-- name: fed_show
-- Note what a hub wants and does not get.
UPDATE fed SET wanted = :wanted, words = :words WHERE hub = :hub;

-- name: fed_forget
-- Forget hubs that have no file; :hubs is [hub, ...] of those that have.
DELETE FROM fed WHERE hub NOT IN (SELECT value FROM json_each(:hubs));
