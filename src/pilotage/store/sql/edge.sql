-- name: edge_begin
-- An agent takes over.
INSERT INTO edge_agent (id, epoch, since) VALUES (1, 1, :now)
ON CONFLICT (id) DO UPDATE SET epoch = epoch + 1, since = excluded.since RETURNING epoch;

-- name: edge_epoch
-- How often an agent has taken over.
SELECT epoch FROM edge_agent;

-- name: edge_known
-- What is known of jobs by their keys; 0 if one was forgotten. :keys is [key, ...].
SELECT job.key, edge_job.job, edge_job.body_sha256 FROM json_each(:keys) AS one
CROSS JOIN job ON job.key = one.value JOIN edge_job ON edge_job.job = job.id
UNION ALL SELECT key, 0, '' FROM spent WHERE key IN (SELECT value FROM json_each(:keys));

-- name: edge_job_add
-- Beside a job: where it came from.
INSERT INTO edge_job (job, user, application, queue, token, body_sha256, message, back, notes, dialled)
VALUES (:job, :user, :application, :queue, :token, :digest, :message, :back, :notes, :dialled);

-- name: edge_message
-- What was asked for.
SELECT message FROM edge_job WHERE job = :job;

-- name: edge_facts
-- What is known of a job that came as a message.
SELECT user, application, queue, token, body_sha256, notes, state, step, seq FROM edge_job
WHERE job = :job;

-- name: edge_has
-- Whether a job came as a message.
SELECT 1 FROM edge_job WHERE job = :job;

-- name: edge_owner
-- Whose job it is.
SELECT user FROM edge_job WHERE job = :job;

-- name: edge_by_token
-- The newest job by its sender's own key, and whose it is; :user may be '' for anybody's.
SELECT job, user FROM edge_job WHERE token = :token AND token <> '' AND (:user = '' OR user = :user)
ORDER BY job DESC LIMIT 1;

-- name: edge_step
-- Say what is done with a job now; the state is returned if that is new.
UPDATE edge_job SET step = :step WHERE job = :job AND step <> :step RETURNING state;

-- name: edge_blame
-- Say who or what is to blame for what happens next.
UPDATE edge_job SET kind = :kind, code = :code WHERE job = :job;

-- name: edge_seq
-- Number one more message on a job.
UPDATE edge_job SET seq = seq + 1 WHERE job = :job;

-- name: edge_tell
-- Tell again where a job is.
INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time, user)
SELECT job.id, edge_job.seq, job.attempt, job.state, step, '', '', job.reason, :now, edge_job.user
FROM job JOIN edge_job ON edge_job.job = job.id WHERE job.id = :job;

-- name: edge_send
-- Have a message sent that is written already.
INSERT INTO edge_outbox (job, seq, attempt, state, step, kind, code, reason, time, topic, body, user)
VALUES (0, 0, 0, '', '', '', '', '', :now, :topic, :body, :user);

-- name: edge_outbox_next
-- Messages that the bus does not have, in their order: for :users, or for all others.
SELECT id, job, seq, attempt, state, step, kind, code, reason, time, topic, body
FROM edge_outbox WHERE id > :after AND (user IN (SELECT value FROM json_each(:users))) = :among
ORDER BY id LIMIT :most;

-- name: edge_outbox_count
-- How many messages the bus does not have: for :users, or for all others.
SELECT count(*) FROM edge_outbox WHERE (user IN (SELECT value FROM json_each(:users))) = :among;

-- name: edge_outbox_newest
-- The newest message that the bus does not have: for :users, or for all others.
SELECT coalesce(max(id), 0) FROM edge_outbox
WHERE (user IN (SELECT value FROM json_each(:users))) = :among;

-- name: edge_outbox_undeliverable
-- Drop old messages for others than :users, where no broker hears them.
DELETE FROM edge_outbox WHERE time < :before AND user NOT IN (SELECT value FROM json_each(:users));

-- name: edge_outbox_sent
-- The bus has these messages; :ids is [id, ...].
DELETE FROM edge_outbox WHERE id IN (SELECT value FROM json_each(:ids));

-- name: edge_outbox_thin
-- Drop what a later message on the same job says better; ends stay.
DELETE FROM edge_outbox WHERE job > 0 AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND EXISTS (SELECT 1 FROM edge_outbox AS later WHERE later.job = edge_outbox.job AND later.id > edge_outbox.id);

-- name: edge_tale
-- What a status message needs of a job and of one of its attempts.
SELECT edge_job.back, job.created, attempt.state, attempt.exit, attempt.signal, attempt.cause,
    (SELECT submission.number || CASE WHEN submission.body->>'count' > 1 THEN '_' || submitted.place ELSE '' END
     FROM submitted JOIN submission ON submission.id = submitted.submission
     WHERE submitted.job = :job AND submitted.attempt = :attempt AND submission.number <> ''
     ORDER BY submission.id DESC LIMIT 1), edge_job.notes, edge_left.left, edge_left.read, attempt.dir, result.body,
    edge_job.followed
FROM edge_job JOIN job ON job.id = edge_job.job
LEFT JOIN edge_left ON edge_left.job = job.id
LEFT JOIN attempt ON attempt.job = job.id AND attempt.number = :attempt
LEFT JOIN result ON result.job = job.id
WHERE edge_job.job = :job;

-- name: edge_followed
-- A hub follows the log of a job.
UPDATE edge_job SET followed = 1 WHERE job = :job AND followed = 0;

-- name: edge_writes
-- Where a job that is not over writes: its attempt, and the folder of that if there is one.
SELECT job.attempt, attempt.dir, edge_job.back, edge_job.token FROM edge_job JOIN job ON job.id = edge_job.job
LEFT JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE edge_job.job = :job AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: edge_counts
-- How many jobs are in each state.
SELECT state, sum(count) FROM edge_count WHERE count > 0 GROUP BY state;

-- name: edge_counts_of
-- How many jobs of a user are in each state.
SELECT state, sum(count) FROM edge_count WHERE user = :user AND count > 0 GROUP BY state;

-- name: edge_live
-- How many jobs of a user and an application are not over.
SELECT coalesce(sum(count), 0) FROM edge_count WHERE user = :user AND application = :application
  AND state NOT IN ('done', 'failed', 'cancelled', 'rejected');

-- name: edge_going
-- How many jobs go on, by user and queue: those that neither wait nor are held nor are over.
SELECT user, queue, sum(count) FROM edge_count WHERE count > 0
  AND state NOT IN ('done', 'failed', 'cancelled', 'rejected', 'waiting', 'held')
GROUP BY user, queue;

-- name: edge_waiting_groups
-- Whose jobs wait for room, and in which queues.
SELECT user, queue, sum(count) FROM edge_count WHERE state = 'waiting' AND count > 0
  AND application <> 'pilot' GROUP BY user, queue;

-- name: edge_waiting_count
-- How many jobs wait for room.
SELECT coalesce(sum(count), 0) FROM edge_count WHERE state = 'waiting';

-- name: edge_waiting_of
-- The oldest jobs of a user that wait for room in a queue, with their attempts.
SELECT edge_job.job, job.attempt FROM edge_job INDEXED BY edge_waiting JOIN job ON job.id = edge_job.job
WHERE edge_job.state = 'waiting' AND user = :user AND queue = :queue AND application <> 'pilot'
ORDER BY edge_job.job LIMIT :most;

-- name: edge_pilots
-- Jobs of pilots that are not over, in their order.
SELECT job.id, edge_job.user, edge_job.queue, job.state,
    coalesce(message -> 'resources' ->> 'cpus', 1), job.attempt, job.reason, job.asked
FROM edge_job INDEXED BY edge_pilot JOIN job ON job.id = edge_job.job
WHERE application = 'pilot' AND edge_job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
ORDER BY job.id;

-- name: edge_pilot_users
-- Users that have pilots in the batch system, or about to be there.
SELECT DISTINCT user FROM edge_job INDEXED BY edge_pilot
WHERE application = 'pilot' AND state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND state NOT IN ('waiting', 'held');

-- name: edge_pilots_unserved
-- Pilots that do not run, of hubs that were dialled and are none of :users any more.
SELECT job.id FROM edge_job INDEXED BY edge_pilot JOIN job ON job.id = edge_job.job
WHERE application = 'pilot' AND edge_job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND job.state NOT IN ('running', 'staging_out') AND job.asked = '' AND dialled = 1
  AND user NOT IN (SELECT value FROM json_each(:users));

-- name: edge_pilot_say
-- Say why a pilot waits for its turn.
UPDATE job SET reason = :reason WHERE id = :job AND state = 'waiting';

-- name: edge_bury
-- Keep a message that was refused; how often it came is returned.
INSERT INTO edge_dead (digest, time, user, topic, code, reason, size, body)
VALUES (:digest, :now, :user, :topic, :code, :reason, :size, :body)
ON CONFLICT (digest) DO UPDATE SET count = count + 1, code = excluded.code, reason = excluded.reason
RETURNING count;

-- name: edge_buried
-- The newest messages that were refused.
SELECT digest, time, user, topic, code, reason, size, body, count FROM edge_dead
ORDER BY time DESC LIMIT :most;

-- name: edge_buried_some
-- Why messages were refused before; :digests is [digest, ...].
SELECT digest, code, reason FROM edge_dead WHERE digest IN (SELECT value FROM json_each(:digests));

-- name: edge_dead_purge
-- Forget messages that were refused long ago, and of very many the oldest.
DELETE FROM edge_dead WHERE time < :before OR time <= (
    SELECT time FROM edge_dead ORDER BY time DESC LIMIT 1 OFFSET :most
);

-- name: edge_control_get
-- What was answered to a control.
SELECT answer FROM edge_control WHERE digest = :digest;

-- name: edge_control_put
-- Keep what was answered to a control.
INSERT INTO edge_control (digest, time, answer) VALUES (:digest, :now, :answer)
ON CONFLICT (digest) DO UPDATE SET time = excluded.time, answer = excluded.answer;

-- name: edge_control_purge
-- Forget what was answered long ago.
DELETE FROM edge_control WHERE time < :before;
