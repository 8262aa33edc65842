-- name: flows_due
-- What the service has to do by now: tasks to send, attempts whose end is to be looked at or that
-- are to be cancelled, news of our own jobs, messages to send, and what is to be told; and whether
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
SELECT id, flow, kind, topic, body, tries FROM flow_outbox
WHERE id > :after AND after <= :now AND kind IN (SELECT value FROM json_each(:kinds))
ORDER BY id LIMIT :most;

-- name: flows_put
-- Have a message sent.
INSERT INTO flow_outbox (flow, kind, topic, body) VALUES (:flow, :kind, :topic, :body);

-- name: flows_sent
-- Forget messages that were sent; :ids is [id, ...].
DELETE FROM flow_outbox WHERE id IN (SELECT value FROM json_each(:ids));

-- name: flows_later
-- Have a message tried again later.
UPDATE flow_outbox SET tries = tries + 1, after = :after WHERE id = :id;

-- name: flows_story
-- What happened to flows after a line, the oldest first.
SELECT id, time, flow, step, task, number, state, words FROM flow_journal
WHERE id > :after ORDER BY id LIMIT :most;

-- name: flows_count_up
-- Number what is said of a flow.
UPDATE flow SET seq = seq + 1 WHERE id = :flow RETURNING seq, key;

-- name: flows_news_taken
-- Forget news.
DELETE FROM flow_news WHERE id <= :last;

-- name: flows_cancel_told
-- A site is told that an attempt is cancelled; each time counts.
UPDATE flow_attempt SET cancel = max(cancel, 1) + 1 WHERE task = :task AND number = :number;

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
-- Stories after a line, and which lines are ends of tasks: not of those that ran at this hub,
-- nor of attempts that were followed by others; and which are ends of whole flows that are neither
-- within others nor jobs of rules.
SELECT line.id, line.time,
       task.id IS NOT NULL AND line.state IN ('done', 'failed', 'cancelled')
           AND coalesce(attempt.way, '') <> 'here',
       line.flow, flow.name, line.step, line.task, task.item, line.number, line.state, task.reason,
       coalesce(attempt.site, ''), task.result,
       line.step = '' AND line.state IN ('done', 'failed', 'cancelled') AND flow.parent IS NULL
           AND flow.key NOT GLOB 'job:*'
FROM flow_journal AS line
JOIN flow ON flow.id = line.flow
LEFT JOIN flow_task AS task ON task.id = line.task AND task.attempt = line.number
  AND task.state = line.state AND task.ended IS NOT NULL
LEFT JOIN flow_attempt AS attempt ON attempt.task = line.task AND attempt.number = line.number
WHERE line.id > :after ORDER BY line.id LIMIT 5000;

-- name: flows_story_last
-- The number of the newest line of all stories, also if it was forgotten.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'flow_journal'), 0);

-- name: flows_left
-- What the site says that an attempt has left; :left is [place, digest, files, bytes, read].
UPDATE flow_attempt SET place = :left ->> 0, digest = :left ->> 1, files = :left ->> 2,
    bytes = :left ->> 3, read = max(read, :left ->> 4)
WHERE key = :key;

-- name: flows_digest
-- What lies in the folder of an attempt, as its site says.
UPDATE flow_attempt SET digest = :digest WHERE key = :key;

-- name: flows_live_at
-- How many attempts are at each site with an agent.
SELECT site, count(*) FROM flow_attempt WHERE way = 'edge' AND ended IS NULL GROUP BY site;

-- name: flows_news
-- What became of jobs that are attempts; of those at sites with an agent, also what the site said;
-- whether only the first end of that attempt is missing, and the size of what it returned.
SELECT flow_news.id, flow_news.state, flow_news.reason, flow_attempt.key, there.kind, there.code,
    CASE WHEN there.job IS NOT NULL
         THEN json_array(there.place, there.digest, there.files, there.bytes, there.read) END,
    flow_attempt.fenced = 0 AND flow_attempt.ended IS NULL AND flow_attempt.seq < flow_news.id
        AND flow_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected', 'lost')
        AND flow_attempt.number = task.attempt
        AND task.state NOT IN ('done', 'failed', 'cancelled', 'skipped')
        AND coalesce(there.place, flow_attempt.place) = '',
    task.id, flow_attempt.number, flow_attempt.flow, task.step,
    CASE WHEN task.result = '' THEN coalesce(length(CAST(result.body AS BLOB)), 0) ELSE 0 END
FROM flow_news
LEFT JOIN flow_attempt ON flow_attempt.job = flow_news.job AND way <> 'flow'
LEFT JOIN job ON way = 'edge' AND job.id = flow_news.job
LEFT JOIN edge_attempt AS there ON there.job = job.id AND there.number = job.attempt
LEFT JOIN flow_task AS task ON task.id = flow_attempt.task
LEFT JOIN result ON result.job = flow_news.job
ORDER BY flow_news.id LIMIT :most;

-- name: flows_waiting_at
-- Jobs that are attempts and wait for a site with an agent, and their applications.
SELECT job.id, spec.body ->> '$.recipe.app' FROM flow_attempt
JOIN job ON job.id = flow_attempt.job AND job.state = 'queued' JOIN spec ON spec.id = job.spec
WHERE flow_attempt.way = 'edge' AND flow_attempt.site = :site AND flow_attempt.ended IS NULL;

-- name: flows_stranded
-- Jobs that are attempts and have waited since a time for a site that is silent.
SELECT job.id FROM flow_attempt
JOIN job ON job.id = flow_attempt.job AND job.state = 'queued'
JOIN edge_site ON edge_site.name = flow_attempt.site AND edge_site.state = 'silent'
WHERE flow_attempt.way = 'edge' AND flow_attempt.ended IS NULL AND flow_attempt.cancel = 0
  AND flow_attempt.created <= :before
LIMIT :most;

-- name: flows_unadopted
-- Attempts at sites from before they were jobs: those not over by what their sites say, and those
-- that were fenced and sent, whose sites were not told to cancel them.
SELECT task, number, flow, site, key, state, place, cancel, created, sent, heard, asked, seq
FROM flow_attempt INDEXED BY flow_attempt_unadopted
WHERE way = 'edge' AND job IS NULL AND ended IS NULL
  AND state NOT IN ('done', 'failed', 'cancelled', 'rejected', 'lost')
UNION ALL
SELECT task, number, flow, site, key, '', place, cancel, created, sent, heard, asked, seq
FROM flow_attempt INDEXED BY flow_attempt_cancel
WHERE cancel = 1 AND way = 'edge' AND job IS NULL AND ended IS NOT NULL AND fenced = 1
  AND (sent IS NOT NULL OR EXISTS (
    SELECT 1 FROM flow_outbox AS message WHERE message.task = flow_attempt.task
      AND message.number = flow_attempt.number AND message.kind = 'job'));

-- name: flows_adopted
-- An attempt has its job; its messages are numbered by what becomes of that from now on.
UPDATE flow_attempt SET job = :job, seq = 0 WHERE task = :task AND number = :number;

-- name: flows_whose
-- The flow of a task and its step: name, owner, step.
SELECT flow.name, flow.owner, flow_task.step FROM flow_task JOIN flow ON flow.id = flow_task.flow
WHERE flow_task.id = :task;

-- name: flows_message_adopt
-- The message of an attempt becomes that of its job.
INSERT INTO edge_message (job, number, kind, topic, body, tries, after)
SELECT :job, 1, kind, topic, body, tries, after FROM flow_outbox
WHERE task = :task AND number = :number AND kind = 'job';

-- name: flows_message_adopted
-- It is nowhere else then.
DELETE FROM flow_outbox WHERE task = :task AND number = :number AND kind = 'job';
