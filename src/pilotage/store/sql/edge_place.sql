-- name: edge_attempt_add
-- An attempt is about to be sent to a site, unless it was before.
INSERT INTO edge_attempt (job, number, site, place, key, created)
VALUES (:job, :number, :site, :place, :key, :now) ON CONFLICT DO NOTHING RETURNING job;

-- name: edge_attempt_get
-- One attempt.
SELECT job, number, site, state, reason, kind, code, seq, cancel, created, sent, heard, asked, began,
    stopped, place, digest, read, stdout, stderr, key, log_attempt, stdout_size, stderr_size
FROM edge_attempt WHERE job = :job AND number = :number;

-- name: edge_attempt_by_key
-- One attempt, by what its site knows it by.
SELECT job, number, site, state, reason, kind, code, seq, cancel, created, sent, heard, asked, began,
    stopped, place, digest, read, stdout, stderr, key, log_attempt, stdout_size, stderr_size
FROM edge_attempt WHERE key = :key;

-- name: edge_attempt_hear
-- What a site says of an attempt.
UPDATE edge_attempt SET state = :state, reason = :reason, kind = :kind, code = :code,
    seq = max(seq, :seq), heard = :now, began = coalesce(began, :began), stopped = :stopped,
    digest = :digest, files = :files, bytes = :bytes, read = max(read, :read)
WHERE job = :job AND number = :number;

-- name: edge_attempt_heard
-- A site is there, though it says nothing new of an attempt.
UPDATE edge_attempt SET heard = :now, seq = max(seq, :seq) WHERE job = :job AND number = :number;

-- name: edge_attempt_cancel
-- Count one more request to cancel an attempt, and note when it is sent.
UPDATE edge_attempt SET cancel = cancel + 1, asked = max(coalesce(asked, 0), :when) WHERE job = :job AND number = :number;

-- name: edge_attempts_sent
-- The broker has the jobs of attempts; :rows is [[job, number], ...].
UPDATE edge_attempt SET sent = coalesce(sent, :now) FROM json_each(:rows) AS row
WHERE job = row.value ->> 0 AND number = row.value ->> 1;

-- name: edge_attempts_asked
-- Sites are asked about attempts; :rows is [[job, number], ...].
UPDATE edge_attempt SET asked = :now FROM json_each(:rows) AS row
WHERE job = row.value ->> 0 AND number = row.value ->> 1;

-- name: edge_attempts_quiet
-- Current attempts at sites of which nothing was heard, and nothing asked, since a time.
SELECT edge_attempt.job, edge_attempt.number, edge_attempt.site, edge_attempt.cancel > 0,
    edge_attempt.key
FROM job INDEXED BY job_live
JOIN edge_attempt ON edge_attempt.job = job.id AND edge_attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND edge_attempt.sent IS NOT NULL
  AND max(coalesce(edge_attempt.heard, 0), edge_attempt.sent, coalesce(edge_attempt.asked, 0)) <= :before
UNION ALL
SELECT job, number, site, cancel > 0, key FROM edge_attempt INDEXED BY edge_pilot_live
WHERE job = 0 AND state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND sent IS NOT NULL
  AND max(coalesce(heard, 0), sent, coalesce(asked, 0)) <= :before
ORDER BY 3, 4 LIMIT :most;

-- name: edge_attempts_silent
-- Current attempts at sites that were asked about them, and said nothing since a time.
SELECT edge_attempt.job, edge_attempt.number, edge_attempt.site, edge_attempt.cancel > 0,
    max(coalesce(edge_attempt.heard, 0), edge_attempt.sent)
FROM job INDEXED BY job_live
JOIN edge_attempt ON edge_attempt.job = job.id AND edge_attempt.number = job.attempt
WHERE job.state IN ('staging_in', 'ready', 'submitted', 'running', 'staging_out')
  AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND edge_attempt.sent IS NOT NULL AND edge_attempt.asked IS NOT NULL
  AND max(coalesce(edge_attempt.heard, 0), edge_attempt.sent) <= :before
UNION ALL
SELECT job, number, site, cancel > 0, max(coalesce(heard, 0), sent)
FROM edge_attempt INDEXED BY edge_pilot_live
WHERE job = 0 AND state NOT IN ('done', 'failed', 'cancelled', 'rejected') AND sent IS NOT NULL
  AND asked IS NOT NULL AND max(coalesce(heard, 0), sent) <= :before
LIMIT :most;

-- name: edge_pilots_wanted
-- Pilots of some sites that were asked for and not ordered, and those that were cancelled before
-- that at a site of which nothing is known any more; :sites is [name, ...].
SELECT id, pool, site, wish, asked, reason FROM pilot INDEXED BY pilot_live
WHERE state = 'requested' AND state NOT IN ('down', 'failed', 'lost') AND id > 0
  AND (site IN (SELECT value FROM json_each(:sites))
    OR (asked <> '' AND site NOT IN (SELECT name FROM site WHERE way = 'batch')))
  AND NOT EXISTS (SELECT 1 FROM edge_attempt WHERE job = 0 AND number = pilot.id)
  AND NOT EXISTS (SELECT 1 FROM submitted WHERE pilot = pilot.id AND submitted.state = 'out')
ORDER BY id LIMIT :most;

-- name: edge_pilots_unwanted
-- Pilots that were ordered and cancelled before they came, or that are over since a time while
-- their batch jobs are not.
SELECT edge_attempt.number FROM edge_attempt INDEXED BY edge_pilot_live
JOIN pilot ON pilot.id = edge_attempt.number
WHERE edge_attempt.job = 0 AND edge_attempt.cancel = 0
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND ((pilot.asked <> '' AND pilot.state IN ('requested', 'submitted'))
    OR (pilot.state IN ('down', 'failed') AND pilot.ended < :before))
LIMIT :most;

-- name: edge_pilots_ended
-- Pilots that had come, whose sites said since that their batch jobs are over.
SELECT pilot_end.pilot, words FROM pilot_end
CROSS JOIN edge_attempt ON edge_attempt.job = 0 AND edge_attempt.number = pilot_end.pilot;

-- name: edge_attempt_logged
-- The streams of an attempt are in its folder.
UPDATE edge_attempt SET stdout = '', stderr = '' WHERE job = :job AND number = :number;

-- name: edge_follow_due
-- Whether a job is at a site with an agent, and is not followed until a time.
SELECT 1 FROM job JOIN edge_attempt ON edge_attempt.job = job.id AND edge_attempt.number = job.attempt
WHERE job.id = :job AND edge_attempt.followed < :until
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: edge_follow
-- Somebody follows the log of a job until a time.
UPDATE edge_attempt SET followed = max(followed, :until)
WHERE job = :job AND number = (SELECT attempt FROM job WHERE id = :job);

-- name: edge_followed_now
-- Current attempts at sites whose logs somebody follows, those that were asked for last first.
SELECT edge_attempt.job, edge_attempt.number, site, edge_attempt.key, log_attempt, stdout_size, stderr_size
FROM edge_attempt INDEXED BY edge_attempt_followed
CROSS JOIN job ON job.id = edge_attempt.job AND job.attempt = edge_attempt.number
WHERE followed > 0 AND followed > :now AND sent IS NOT NULL
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
ORDER BY followed DESC LIMIT :most;

-- name: edge_log_has
-- What there is of the log of an attempt that somebody follows, by its key.
SELECT edge_attempt.job, edge_attempt.number, site, log_attempt, stdout_size, stderr_size
FROM edge_attempt JOIN job ON job.id = edge_attempt.job AND job.attempt = edge_attempt.number
WHERE edge_attempt.key = :key AND followed > :now
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: edge_attempt_current
-- The number of the current attempt of a job.
SELECT attempt FROM job WHERE id = :job;

-- name: edge_log_grew
-- There is more of the log of an attempt.
UPDATE edge_attempt SET log_attempt = :attempt, stdout_size = :stdout, stderr_size = :stderr
WHERE job = :job AND number = :number;

-- name: edge_follow_drop
-- Drop an unsent request for logs before a newer one.
DELETE FROM edge_message WHERE job = 0 AND number = 0 AND kind = 'follow' AND topic = :topic;

-- name: edge_message_put
-- Have a message sent.
INSERT INTO edge_message (job, number, kind, topic, body, after)
VALUES (:job, :number, :kind, :topic, :body, :after);

-- name: edge_messages_due
-- Messages that are to be sent by the broker now, in their order.
SELECT id, job, number, kind, topic, body, tries FROM edge_message
WHERE id > :after_id AND after <= :now AND substr(topic, instr(topic, '.') + 1) NOT IN (
    SELECT site FROM token WHERE scope = 'agent' AND uses IS NULL AND revoked IS NULL
) ORDER BY id LIMIT :most;

-- name: edge_messages_due_at
-- Messages that are to be sent to the agent of a site at this hub's port now, in their order.
SELECT id, job, number, kind, topic, body, tries FROM edge_message
WHERE id > :after_id AND after <= :now AND topic IN ('job.' || :site, 'control.' || :site)
ORDER BY id LIMIT :most;

-- name: edge_topics_due
-- Topics that messages are to be sent to now.
SELECT DISTINCT topic FROM edge_message WHERE after <= :now;

-- name: edge_messages_soon
-- Somebody listens to a topic: what waits for that need not wait any more.
UPDATE edge_message SET after = 0 WHERE topic = :topic AND after < 1e17 AND after > 0;

-- name: edge_message_next
-- When the next message is due.
SELECT min(after) FROM edge_message WHERE after > :now AND after < 1e17;

-- name: edge_messages_drop
-- Forget messages that were sent; :ids is [id, ...].
DELETE FROM edge_message WHERE id IN (SELECT value FROM json_each(:ids));

-- name: edge_messages_keep
-- Keep jobs that were sent until their sites were heard; :ids is [id, ...].
UPDATE edge_message SET after = 1e18, tries = 0
WHERE id IN (SELECT value FROM json_each(:ids)) RETURNING job, number;

-- name: edge_message_later
-- Have a message tried again later.
UPDATE edge_message SET tries = tries + 1, after = :after WHERE id = :id;

-- name: edge_message_doubt
-- A message that was returned as undeliverable before may have arrived.
UPDATE edge_message SET tries = 0 WHERE id = :id;

-- name: edge_job_drop
-- Forget the job message of an attempt: its site has it, or is not to have it.
DELETE FROM edge_message WHERE job = :job AND number = :number AND kind = 'job';

-- name: edge_job_again
-- Send the job message of an attempt once more.
UPDATE edge_message SET after = 0 WHERE job = :job AND number = :number AND kind = 'job'
RETURNING id;

-- name: edge_job_refused
-- Whether the broker has refused the message of an attempt.
SELECT id FROM edge_message WHERE job = :job AND number = :number AND kind = 'job' AND tries > 0
  AND after < 1e17;

-- name: edge_job_handoff
-- What a job has beside it if it is a step of a workflow.
SELECT binding -> 'handoff' FROM job WHERE id = :job;

-- name: edge_attempt_last
-- The key and the number of the last attempt of a job at a site.
SELECT key, number FROM edge_attempt WHERE job = :job ORDER BY number DESC LIMIT 1;

-- name: edge_attempt_adopt
-- An attempt that its site has already, under another key.
INSERT INTO edge_attempt (job, number, site, state, seq, cancel, created, sent, heard, asked, place, key)
VALUES (:job, :number, :site, :state, :seq, :cancel, :created, :sent, :heard, :asked, :place, :key);

-- name: edge_access_add
-- What an attempt reads and writes at this hub's port; :rows is [[path, write], ...].
INSERT INTO edge_access (job, number, path, write)
SELECT :job, :number, value->>0, value->>1 FROM json_each(:rows) WHERE true
ON CONFLICT (job, number, path) DO UPDATE SET write = max(write, excluded.write);

-- name: edge_access_find
-- The one of :paths that an attempt at a site reads or writes now, if any. An attempt that is over
-- does so only while its site was asked to send its outputs again.
SELECT edge_access.path FROM json_each(:paths) AS wanted
CROSS JOIN edge_access ON edge_access.path = wanted.value
JOIN edge_attempt ON edge_attempt.job = edge_access.job AND edge_attempt.number = edge_access.number
WHERE edge_attempt.site = :site AND edge_access.write >= :write
  AND (
    edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
    OR EXISTS (
        SELECT 1 FROM flow_attempt
        JOIN flow_resend ON flow_resend.task = flow_attempt.task
            AND flow_resend.number = flow_attempt.number
        WHERE flow_attempt.job = edge_attempt.job AND flow_attempt.way <> 'flow'
          AND flow_resend.told IS NULL
    )
  )
LIMIT 1;

-- name: edge_access_reads
-- What an attempt reads.
SELECT path FROM edge_access WHERE job = :job AND number = :number AND write = 0;

-- name: edge_access_used
-- Whether an attempt that is not over reads anything below a folder; its name ends with a slash.
SELECT 1 FROM edge_access
JOIN edge_attempt ON edge_attempt.job = edge_access.job AND edge_attempt.number = edge_access.number
WHERE edge_access.path >= :folder AND edge_access.path < :beyond
  AND edge_attempt.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
LIMIT 1;

-- name: edge_access_leaves
-- Whether what an attempt has left is still to come home.
SELECT 1 FROM job WHERE id = :job AND attempt = :number
  AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');
