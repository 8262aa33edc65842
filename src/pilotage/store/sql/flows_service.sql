-- name: flows_due
-- What the service has to do by now: tasks to send, attempts whose end is to be looked at or that
-- are to be called off, news of our own jobs, messages to send, and what is to be told; and whether
-- any flow is under way.
SELECT EXISTS (SELECT 1 FROM flow_task WHERE state = 'queued' AND not_before <= :now),
       EXISTS (SELECT 1 FROM flow_attempt WHERE ended IS NULL
               AND state IN ('done', 'failed', 'cancelled', 'rejected', 'lost')),
       EXISTS (SELECT 1 FROM flow_attempt WHERE cancel = 1),
       EXISTS (SELECT 1 FROM flow_news),
       EXISTS (SELECT 1 FROM flow_outbox WHERE after <= :now),
       EXISTS (SELECT 1 FROM flow_journal WHERE id > coalesce(
           (SELECT CAST(value AS INTEGER) FROM cursor WHERE source = 'flows told'), 0)),
       EXISTS (SELECT 1 FROM flow WHERE ended IS NULL);

-- name: flows_next
-- When the next thing is due that only time brings.
SELECT min(soonest) FROM (
    SELECT min(not_before) AS soonest FROM flow_task WHERE state = 'queued' AND not_before > :now
    UNION ALL SELECT min(after) FROM flow_outbox WHERE after > :now AND after < 1e17
);

-- name: flows_next_word
-- When the next message is due.
SELECT min(after) FROM flow_outbox WHERE after > :now AND after < 1e17;

-- name: flows_unsent
-- Messages that are to be sent now, in their order; :kinds is [kind, ...].
SELECT id, flow, task, number, kind, topic, body, tries FROM flow_outbox
WHERE id > :after AND after <= :now AND kind IN (SELECT value FROM json_each(:kinds))
ORDER BY id LIMIT :most;

-- name: flows_put
-- Have a message sent.
INSERT INTO flow_outbox (flow, task, number, kind, topic, body, after)
VALUES (:flow, :task, :number, :kind, :topic, :body, :after);

-- name: flows_sent
-- Forget messages that were sent; :ids is [id, ...].
DELETE FROM flow_outbox WHERE id IN (SELECT value FROM json_each(:ids));

-- name: flows_keep
-- Keep jobs that were sent until they are heard of; :ids is [id, ...].
UPDATE flow_outbox SET after = :after, tries = 0
WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING id;

-- name: flows_drop
-- Forget the job of an attempt.
DELETE FROM flow_outbox WHERE task = :task AND number = :number AND kind = 'job';

-- name: flows_again
-- Send the job of an attempt once more.
UPDATE flow_outbox SET after = 0 WHERE task = :task AND number = :number AND kind = 'job'
RETURNING id;

-- name: flows_never_sent
-- Whether the broker has refused the job of an attempt, and never had it before.
SELECT id FROM flow_outbox AS word
WHERE word.task = :task AND word.number = :number AND word.kind = 'job' AND word.tries > 0
  AND word.after < :kept AND EXISTS (SELECT 1 FROM flow_attempt
    WHERE task = :task AND number = :number AND sent IS NULL);

-- name: flows_later
-- Have a message tried again later.
UPDATE flow_outbox SET tries = tries + 1, after = :after WHERE id = :id;

-- name: flows_gone_out
-- Note that the broker has the jobs of attempts; :rows is [[task, number], ...].
UPDATE flow_attempt SET sent = :now FROM json_each(:rows) AS row
WHERE task = row.value ->> 0 AND number = row.value ->> 1;

-- name: flows_left
-- Note what a site says that an attempt has left.
UPDATE flow_attempt SET digest = :digest, files = :files, bytes = :bytes, read = max(read, :read)
WHERE key = :key;

-- name: flows_story
-- What happened to flows after a line, the oldest first.
SELECT id, time, flow, step, task, number, state, words FROM flow_journal
WHERE id > :after ORDER BY id LIMIT :most;

-- name: flows_count_up
-- Number what is said of a flow.
UPDATE flow SET seq = seq + 1 WHERE id = :flow RETURNING seq, key;

-- name: flows_live_at
-- How many attempts are at each site.
SELECT site, count(*) FROM flow_attempt WHERE way = 'bus' AND ended IS NULL GROUP BY site;

-- name: flows_news
-- What became of jobs of this hub that are attempts.
SELECT flow_news.id, flow_news.state, flow_news.reason, flow_attempt.key
FROM flow_news LEFT JOIN flow_attempt ON flow_attempt.job = flow_news.job AND way = 'here'
ORDER BY flow_news.id LIMIT :most;

-- name: flows_news_taken
-- Forget news.
DELETE FROM flow_news WHERE id <= :last;

-- name: flows_cancel_told
-- A site is told that an attempt is called off; each time counts.
UPDATE flow_attempt SET cancel = max(cancel, 1) + 1 WHERE task = :task AND number = :number;

-- name: flows_quiet
-- Attempts at sites of which nothing was heard since a time, and that were not asked for; those
-- that the site was told to call off are apart.
SELECT task, number, site, cancel > 1, key FROM flow_attempt
WHERE way = 'bus' AND ended IS NULL AND state NOT IN ('done', 'failed', 'cancelled', 'rejected', 'lost')
  AND sent IS NOT NULL AND max(coalesce(heard, 0), sent, coalesce(asked, 0)) <= :before
ORDER BY site, cancel > 1 LIMIT :most;

-- name: flows_asked
-- Sites are asked about attempts; :rows is [[task, number], ...].
UPDATE flow_attempt SET asked = :now FROM json_each(:rows) AS row
WHERE task = row.value ->> 0 AND number = row.value ->> 1;

-- name: flows_silent
-- Attempts at sites that were asked, and of which nothing was heard since a time.
SELECT task, number, flow, site, cancel, max(coalesce(heard, 0), sent) FROM flow_attempt
WHERE way = 'bus' AND ended IS NULL AND state NOT IN ('done', 'failed', 'cancelled', 'rejected', 'lost')
  AND sent IS NOT NULL AND asked IS NOT NULL AND max(coalesce(heard, 0), sent) <= :before
LIMIT :most;

-- name: flows_live
-- How many flows are not over, and messages that nobody has tried to send.
SELECT (SELECT count(*) FROM flow WHERE ended IS NULL)
     + (SELECT count(*) FROM flow_outbox WHERE tries = 0 AND after < 1e17);

-- name: flows_any
-- Whether there is any flow at all.
SELECT EXISTS (SELECT 1 FROM flow);

-- name: flows_say
-- Say why a task does not go on.
UPDATE flow_task SET reason = :reason WHERE id = :task AND attempt = :number AND ended IS NULL
  AND reason <> :reason RETURNING flow, step;

-- name: flows_step_of
-- The step of a task.
SELECT step FROM flow_task WHERE id = :task;

-- name: flows_refused
-- Keep why a workflow was refused.
INSERT INTO flow_refused (time, user, key, reason) VALUES (:now, :user, :key, :reason) RETURNING id;

-- name: flows_refusals
-- Workflows that were refused, the newest first.
SELECT time, user, key, reason FROM flow_refused ORDER BY id DESC LIMIT :most;

-- name: flows_refused_purge
-- Forget refusals before one.
DELETE FROM flow_refused WHERE id < :before;

-- name: flows_ends
-- Stories after a line, and which lines are ends of tasks: not of those that are jobs of this hub,
-- nor of attempts that were followed by others.
SELECT line.id, line.time,
       task.id IS NOT NULL AND line.state IN ('done', 'failed', 'cancelled')
           AND coalesce(attempt.way, '') <> 'here',
       line.flow, flow.name, line.step, line.task, task.item, line.number, line.state, task.reason,
       coalesce(attempt.site, ''), task.result
FROM flow_journal AS line
JOIN flow ON flow.id = line.flow
LEFT JOIN flow_task AS task ON task.id = line.task AND task.attempt = line.number
  AND task.state = line.state AND task.ended IS NOT NULL
LEFT JOIN flow_attempt AS attempt ON attempt.task = line.task AND attempt.number = line.number
WHERE line.id > :after ORDER BY line.id LIMIT 5000;

-- name: flows_story_last
-- The number of the newest line of all stories, also if it was forgotten.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'flow_journal'), 0);
