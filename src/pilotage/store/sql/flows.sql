-- name: flow_by_key
-- A flow that is known already.
SELECT id, digest FROM flow WHERE key = :key;

-- name: flow_add
-- A new flow.
INSERT INTO flow (key, digest, name, owner, tag, source, parent, state, open, budget, created)
VALUES (:key, :digest, :name, :owner, :tag, :source, :parent, 'running', :open, :budget, :now)
RETURNING id;

-- name: flow_text_add
-- What it is.
INSERT INTO flow_text (flow, body, head) VALUES (:flow, :body, :head);

-- name: flow_steps_add
-- The steps of a flow; :rows is [[name, unmet, body, list], ...] in the order of the definition.
INSERT INTO flow_step (flow, name, place, state, unmet)
SELECT :flow, value ->> 0, key, 'waiting', value ->> 1 FROM json_each(:rows);

-- name: flow_specs_add
-- What they are; :rows as before.
INSERT INTO flow_spec (flow, step, body, list)
SELECT :flow, value ->> 0, value ->> 2, value ->> 3 FROM json_each(:rows);

-- name: flow_edges_add
-- Which step waits for which; :rows is [[before, after], ...].
INSERT INTO flow_edge (flow, step, next) SELECT :flow, value ->> 0, value ->> 1
FROM json_each(:rows);

-- name: flow_head
-- What a flow is, without its steps.
SELECT head, state, name, owner, tag, parent FROM flow JOIN flow_text ON flow = id
WHERE id = :flow;

-- name: flow_state
-- Where a flow is.
SELECT state FROM flow WHERE id = :flow;

-- name: flow_reason
-- Why a flow is where it is.
SELECT reason FROM flow WHERE id = :flow;

-- name: flow_count
-- Steps are over; the rest of the facts say whether the flow is.
UPDATE flow SET open = open - :over, failed = failed + :failed WHERE id = :flow
RETURNING state, open, failed;

-- name: flow_end
-- The state of a flow; :ended is nothing unless that is its last.
UPDATE flow SET state = :state, reason = :reason, ended = :ended WHERE id = :flow;

-- name: flow_spend
-- One more try of a task, if the flow has any left.
UPDATE flow SET budget = budget - 1 WHERE id = :flow AND budget > 0 RETURNING budget;

-- name: flow_reopen
-- Steps of a flow go on.
UPDATE flow SET state = 'running', reason = '', ended = NULL, cleared = NULL,
    open = open + :more, failed = failed - :failed, budget = :budget
WHERE id = :flow;

-- name: flow_any_off
-- A step that was cancelled, if any.
SELECT name FROM flow_step WHERE flow = :flow AND state = 'cancelled' ORDER BY place LIMIT 1;

-- name: flow_first_failed
-- The step that failed first, of those in the order of the definition that end alike.
SELECT name, reason FROM flow_step WHERE flow = :flow AND state = 'failed'
ORDER BY ended, place LIMIT 1;

-- name: flow_attempt_returned
-- What a job of this hub returned that is an attempt, if its task has no result yet.
SELECT result.body FROM flow_attempt JOIN flow_task ON flow_task.id = task
JOIN result ON result.job = flow_attempt.job
WHERE task = :task AND number = :number AND way <> 'flow' AND flow_task.result = '';

-- name: flow_whose
-- The task that a flow is the inside of, and its key: that of the attempt, or of a job.
SELECT parent, key FROM flow WHERE id = :flow;

-- name: flow_name
-- What a flow is called.
SELECT name FROM flow WHERE id = :flow;

-- name: flow_how
-- Where a flow is, and why.
SELECT state, reason FROM flow WHERE id = :flow;

-- name: flow_cause
-- The job that a flow, or the one that it is within, is; and how deep in a chain that is.
WITH RECURSIVE up (parent, key) AS (
    SELECT parent, key FROM flow WHERE id = :flow
    UNION ALL SELECT flow.parent, flow.key FROM up JOIN flow_task ON flow_task.id = up.parent
    JOIN flow ON flow.id = flow_task.flow
)
SELECT job.id, job.depth FROM up JOIN job ON job.id = CAST(substr(up.key, 5) AS INTEGER)
WHERE up.parent IS NULL AND up.key GLOB 'job:*';

-- name: flow_jobs_live
-- Jobs under way that are flows: number, attempt, definition, binding, rule, depth and owner.
SELECT job.id, job.attempt, job.spec, job.binding, job.rule, job.depth, job.owner
FROM job INDEXED BY job_live JOIN attempt ON attempt.job = job.id AND attempt.number = job.attempt
WHERE job.state = 'running' AND job.state NOT IN ('done', 'failed', 'cancelled', 'rejected')
  AND attempt.starter GLOB 'flow:*';

-- name: flow_job_due
-- Where a job is, and before when it may not start.
SELECT state, not_before FROM job WHERE id = :id;

-- name: flow_jobs_asked
-- Jobs that are flows and that someone wants ended, with the flow and the wish.
SELECT job.id, flow.id, job.asked FROM job JOIN flow ON flow.key = 'job:' || job.id
WHERE job.asked <> '' AND flow.state IN ('running', 'staging_out');

-- name: flow_step_facts
-- What a step is, how far it has come, and how much the steps before it did.
SELECT body, list, state, unmet, ran, total FROM flow_step JOIN flow_spec USING (flow)
WHERE flow = :flow AND name = :step AND step = :step;

-- name: flow_step_body
-- What a step is.
SELECT body FROM flow_spec WHERE flow = :flow AND step = :step;

-- name: flow_step_start
-- A step begins.
UPDATE flow_step SET state = 'running', reason = '', total = :total, open = :total, failed = 0,
    off = 0, started = :now, ended = NULL
WHERE flow = :flow AND name = :step;

-- name: flow_step_tasks_over
-- Tasks of a step are over.
UPDATE flow_step SET open = open - :count, failed = failed + :failed, off = off + :off,
    reason = CASE WHEN reason = '' OR (:failed > 0 AND failed = 0) THEN :reason ELSE reason END
WHERE flow = :flow AND name = :step AND state = 'running'
RETURNING open, failed, off, total, reason;

-- name: flow_step_end
-- A step is over.
UPDATE flow_step SET state = :state, reason = :reason, ended = :now,
    started = COALESCE(started, :now)
WHERE flow = :flow AND name = :step RETURNING stale;

-- name: flow_step_must_wait
-- A step before this one whose data is made again, if any; there are few such steps, and a step
-- may need very many.
SELECT name FROM flow_step CROSS JOIN flow_edge ON flow_edge.flow = flow_step.flow AND step = name
WHERE flow_step.flow = :flow AND stale = 1 AND next = :step LIMIT 1;

-- name: flow_step_fresh
-- Nothing waits for the data of a step to be there again.
UPDATE flow_step SET stale = 0 WHERE flow = :flow AND name = :step;

-- name: flow_step_met
-- A step is over: those after it wait for one less.
UPDATE flow_step SET unmet = unmet - 1, ran = ran + :ran
WHERE flow = :flow AND state = 'waiting'
    AND name IN (SELECT next FROM flow_edge WHERE flow = :flow AND step = :step)
RETURNING name, unmet, place;

-- name: flow_step_skip
-- Steps after one that failed, as far as they wait.
UPDATE flow_step SET state = 'skipped', reason = :reason, ended = :now
WHERE flow = :flow AND state = 'waiting'
    AND name IN (SELECT next FROM flow_edge WHERE flow = :flow AND step = :step)
RETURNING name;

-- name: flow_steps_call_off
-- Steps that have not begun are cancelled with their flow.
UPDATE flow_step SET state = 'cancelled', reason = :reason, ended = :now
WHERE flow = :flow AND state = 'waiting' RETURNING name;

-- name: flow_steps_free
-- Steps that wait for nothing, in the order of the definition.
SELECT name FROM flow_step WHERE flow = :flow AND state = 'waiting' AND unmet = 0 ORDER BY place;

-- name: flow_tasks_add
-- The tasks of a step; :items is [JSON, ...]. Those that are there from before begin anew.
INSERT INTO flow_task (flow, step, item, value, state, retries, not_before, created)
SELECT :flow, :step, key, value, 'queued', :retries, :now, :now FROM json_each(:items)
WHERE true
ON CONFLICT (flow, step, item) DO UPDATE SET value = excluded.value, state = 'queued', reason = '',
    retries = excluded.retries, not_before = excluded.not_before, since = flow_task.attempt,
    result = '', started = NULL, ended = NULL;

-- name: flow_tasks_spare
-- Tasks of an earlier run that the list no longer has.
UPDATE flow_task SET state = 'skipped', reason = 'the list is shorter now', ended = :now
WHERE flow = :flow AND step = :step AND item >= :total;

-- name: flow_task_facts
-- What a decision about a task needs.
SELECT flow, step, item, state, attempt, retries FROM flow_task WHERE id = :task;

-- name: flow_tasks_facts
-- What orders of queued tasks need; :tasks is [id, ...].
SELECT id, flow, step, item, value, attempt, since FROM flow_task
WHERE id IN (SELECT value FROM json_each(:tasks)) AND state = 'queued';

-- name: flow_tasks_current
-- Those of some tasks that are queued for a certain attempt; :rows is [[task, number], ...].
SELECT flow_task.id FROM json_each(:rows) AS one
CROSS JOIN flow_task ON flow_task.id = one.value->>0
WHERE state = 'queued' AND attempt + 1 = one.value->>1;

-- name: flow_tasks_sent
-- Tasks that were queued have an attempt; :tasks is [id, ...].
UPDATE flow_task SET state = 'ready', reason = :reason, attempt = attempt + 1, result = '',
    started = COALESCE(started, :now)
WHERE id IN (SELECT value FROM json_each(:tasks)) AND state = 'queued' RETURNING id, attempt;

-- name: flow_tasks_done
-- Tasks have ended well; :tasks is [id, ...].
UPDATE flow_task SET state = 'done', reason = '', ended = :now
WHERE id IN (SELECT value FROM json_each(:tasks));

-- name: flow_task_hear
-- Where a task is, as the site says.
UPDATE flow_task SET state = :state, reason = :reason WHERE id = :task;

-- name: flow_task_queue
-- A task goes back to where it can be sent from, or waits.
UPDATE flow_task SET state = :state, reason = :reason, not_before = :after, retries = retries - :cost,
    ended = NULL
WHERE id = :task;

-- name: flow_task_end
-- A task is over.
UPDATE flow_task SET state = :state, reason = :reason, ended = :now WHERE id = :task;

-- name: flow_task_result
-- What a task has found out, if that is the word of its current attempt.
UPDATE flow_task SET result = :result WHERE id = :task AND attempt = :number AND EXISTS (
    SELECT 1 FROM flow_attempt WHERE task = :task AND number = :number AND fenced = 0)
RETURNING id;

-- name: flow_task_forget
-- What a task has found out does not hold any more.
UPDATE flow_task SET result = '' WHERE id = :task;

-- name: flow_task_say
-- Why a task that is queued is still there, and when it is looked at again.
UPDATE flow_task SET reason = :reason, not_before = :after
WHERE id = :task AND state = 'queued' RETURNING flow;

-- name: flow_tasks_call_off
-- Tasks that were not sent are cancelled with their flow.
UPDATE flow_task SET state = 'cancelled', reason = :reason, ended = :now
WHERE flow = :flow AND state IN ('queued', 'waiting') RETURNING step;

-- name: flow_tasks_queued
-- Tasks whose time has come, the oldest first.
SELECT id, flow, step, attempt FROM flow_task
WHERE state = 'queued' AND not_before <= :now ORDER BY not_before, id LIMIT :most;

-- name: flow_task_results
-- What the tasks of a step have found out, in the order of the list.
SELECT item, state, result FROM flow_task
WHERE flow = :flow AND step = :step AND item < :total ORDER BY item;

-- name: flow_tasks_go_on
-- Tasks that waited until the data of a step is there again, unless they wait for another's.
UPDATE flow_task SET state = 'queued', reason = '', not_before = :now
WHERE flow = :flow AND state = 'waiting' AND step IN (
    SELECT one.next FROM flow_edge AS one
    JOIN flow_step AS after ON after.flow = one.flow AND after.name = one.next
    WHERE one.flow = :flow AND one.step = :step AND after.state = 'running' AND NOT EXISTS (
        SELECT 1 FROM flow_edge AS other
        JOIN flow_step AS before ON before.flow = other.flow AND before.name = other.step
        WHERE other.flow = :flow AND other.next = one.next AND before.stale = 1));

-- name: flow_tasks_in_vain
-- Tasks that waited for data that will not be there again.
UPDATE flow_task SET state = 'failed', reason = :reason, ended = :now
WHERE flow = :flow AND state = 'waiting' AND step IN (
    SELECT one.next FROM flow_edge AS one
    JOIN flow_step AS after ON after.flow = one.flow AND after.name = one.next
    WHERE one.flow = :flow AND one.step = :step AND after.state = 'running')
RETURNING step;

-- name: flow_attempts_new
-- Tasks are sent somewhere, as their current attempts; :rows is [[task, job, place], ...].
INSERT INTO flow_attempt (task, number, flow, way, site, key, job, state, place, created)
SELECT flow_task.id, attempt, flow, :way, :site,
    printf('flow.%d.%d.%d', flow, flow_task.id, attempt),
    one.value->>1, 'queued', one.value->>2, :now
FROM json_each(:rows) AS one CROSS JOIN flow_task ON flow_task.id = one.value->>0;

-- name: flow_attempt_spoken
-- The attempt that a site speaks of, and the task it belongs to.
SELECT flow_attempt.task, number, seq, flow_attempt.state, fenced, flow_attempt.ended,
    flow_task.attempt, flow_task.state, flow_attempt.flow, flow_task.step, flow_attempt.started
FROM flow_attempt JOIN flow_task ON flow_task.id = flow_attempt.task
WHERE flow_attempt.key = :key;

-- name: flow_attempt_facts
-- What a decision about an attempt needs.
SELECT key, way, site, state, fenced, ended, cancel, job FROM flow_attempt
WHERE task = :task AND number = :number;

-- name: flow_attempt_hear
-- What a site says of an attempt.
UPDATE flow_attempt SET seq = MAX(seq, :seq), state = :state, reason = :reason, kind = :kind,
    code = :code, heard = :now, started = :started
WHERE key = :key;

-- name: flow_attempt_heard
-- A site is there, though it says nothing new.
UPDATE flow_attempt SET heard = :now WHERE key = :key;

-- name: flow_attempt_end
-- An attempt is over.
UPDATE flow_attempt SET state = :state, reason = :reason, kind = :kind, code = :code, ended = :now,
    fenced = MAX(fenced, :fenced), cancel = MAX(cancel, :cancel)
WHERE task = :task AND number = :number;

-- name: flow_attempts_done
-- Attempts have ended well; :rows is [[task, number, seq, reason, kind, code, left], ...], where
-- `left` is [place, digest, files, bytes, read] or nothing.
UPDATE flow_attempt SET seq = max(seq, one.value->>2), state = 'done', reason = one.value->>3,
    kind = one.value->>4, code = one.value->>5, heard = :now, started = coalesce(started, :now),
    ended = :now, place = coalesce(one.value->>'$[6][0]', place),
    digest = coalesce(one.value->>'$[6][1]', digest), files = coalesce(one.value->>'$[6][2]', files),
    bytes = coalesce(one.value->>'$[6][3]', bytes),
    read = max(read, coalesce(one.value->>'$[6][4]', 0))
FROM json_each(:rows) AS one
WHERE flow_attempt.task = one.value->>0 AND flow_attempt.number = one.value->>1;

-- name: flow_attempt_stale
-- What an attempt has left is gone.
UPDATE flow_attempt SET fenced = 1, state = 'lost', kind = 'staging', reason = :reason
WHERE task = :task AND number = :number;

-- name: flow_attempts_fence
-- Attempts under way of steps that run again; :steps is [name, ...].
UPDATE flow_attempt SET fenced = 1, cancel = CASE way WHEN 'flow' THEN 2 ELSE MAX(cancel, 1) END,
    state = 'cancelled', reason = 'run again', ended = :now
WHERE flow = :flow AND ended IS NULL AND task IN (
    SELECT id FROM flow_task
    WHERE flow_task.flow = :flow AND step IN (SELECT value FROM json_each(:steps)))
RETURNING way, key;

-- name: flow_attempt_job
-- What an attempt is known by where it is.
UPDATE flow_attempt SET job = :job WHERE task = :task AND number = :number;

-- name: flow_steps_reset
-- Steps are as before they began; :steps is [name, ...].
UPDATE flow_step SET state = 'waiting', reason = '', total = 0, open = 0, failed = 0, off = 0,
    stale = 0, started = NULL, ended = NULL
WHERE flow = :flow AND name IN (SELECT value FROM json_each(:steps));

-- name: flow_tasks_reset
-- The tasks of such steps.
UPDATE flow_task SET state = 'waiting', reason = '', result = '', started = NULL, ended = NULL
WHERE flow = :flow AND step IN (SELECT value FROM json_each(:steps));

-- name: flow_tasks_retry
-- The tasks of a step that are not done.
UPDATE flow_task SET state = :state, reason = '', retries = :retries, not_before = :now,
    since = attempt, ended = NULL
WHERE flow = :flow AND step = :step AND item < :total AND state <> 'done' RETURNING id;

-- name: flow_step_go_on
-- A step that was over goes on with some of its tasks.
UPDATE flow_step SET state = 'running', reason = '', open = :open, failed = 0, off = 0,
    ended = NULL
WHERE flow = :flow AND name = :step;

-- name: flow_steps_recount
-- How many steps others wait for, and how many of those before them ran; :steps is [name, ...].
UPDATE flow_step SET unmet = found.unmet, ran = found.ran
FROM (
    SELECT edge.next AS next, SUM(before.state IN ('waiting', 'running')) AS unmet,
        SUM(before.state IN ('done', 'failed')) AS ran
    FROM flow_edge AS edge
    JOIN flow_step AS before ON before.flow = edge.flow AND before.name = edge.step
    WHERE edge.flow = :flow AND edge.next IN (SELECT value FROM json_each(:steps))
    GROUP BY edge.next
) AS found
WHERE flow_step.flow = :flow AND flow_step.name = found.next;

-- name: flow_steps_skip
-- Steps that need not wait; :rows is [[name, reason], ...].
UPDATE flow_step SET state = 'skipped', reason = one.value ->> 1, ended = :now
FROM json_each(:rows) AS one
WHERE flow = :flow AND name = one.value ->> 0 AND state = 'waiting' RETURNING name, reason;

-- name: flow_step_reopen
-- A step that was done goes on with one task.
UPDATE flow_step SET state = 'running', open = 1, stale = 1, ended = NULL
WHERE flow = :flow AND name = :step AND state IN ('done', 'failed') RETURNING 1;

-- name: flow_step_more
-- One more task of a step is open.
UPDATE flow_step SET open = open + 1 WHERE flow = :flow AND name = :step;

-- name: flow_step_unmet
-- A step goes on: those after it wait for one more.
UPDATE flow_step SET unmet = unmet + 1, ran = ran - 1
WHERE flow = :flow AND state = 'waiting'
    AND name IN (SELECT next FROM flow_edge WHERE flow = :flow AND step = :step);

-- name: flow_tasks_wait
-- Tasks of steps after one that goes on, as far as they were not sent.
UPDATE flow_task SET state = 'waiting', reason = :reason
WHERE flow = :flow AND state = 'queued'
    AND step IN (SELECT next FROM flow_edge WHERE flow = :flow AND step = :step);

-- name: flow_attempts_call_off
-- Attempts of a flow that are to be cancelled.
UPDATE flow_attempt SET cancel = CASE way WHEN 'flow' THEN 2 ELSE 1 END
WHERE flow = :flow AND ended IS NULL AND cancel = 0 RETURNING way, key;

-- name: flow_attempts_sites
-- The sites at which a task was tried, and how that ended.
SELECT site, flow_attempt.state FROM flow_task JOIN flow_attempt ON task = id AND number > since
WHERE id = :task ORDER BY number;

-- name: flow_journal_add
-- A line in the story of a flow.
INSERT INTO flow_journal (time, flow, step, task, number, state, words)
VALUES (:now, :flow, :step, :task, :number, :state, :words);

-- name: flow_journal_sent
-- Such a line for the current attempts of tasks that are sent; :tasks is [id, ...].
INSERT INTO flow_journal (time, flow, step, task, number, state, words)
SELECT :now, flow, step, flow_task.id, attempt, 'ready', :words
FROM json_each(:tasks) AS one CROSS JOIN flow_task ON flow_task.id = one.value;

-- name: flow_journal_done
-- Two such lines for each attempt that ended well: on it, and on its task; :rows is
-- [[flow, step, task, number, reason], ...].
INSERT INTO flow_journal (time, flow, step, task, number, state, words)
SELECT :now, one.value->>0, one.value->>1, one.value->>2, one.value->>3, 'done',
    CASE line.value WHEN 0 THEN one.value->>4 ELSE '' END
FROM json_each(:rows) AS one CROSS JOIN json_each('[0, 1]') AS line
ORDER BY one.key, line.value;

-- name: flow_get
-- One flow.
SELECT id, key, digest, name, owner, tag, source, parent, state, reason, open, failed, budget, seq,
    created, ended, cleared
FROM flow WHERE id = :flow;

-- name: flow_list
-- Flows, the newest first; :states is [state, ...], none means any.
SELECT id, key, digest, name, owner, tag, source, parent, state, reason, open, failed, budget, seq,
    created, ended, cleared
FROM flow
WHERE (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND (:owner = '' OR owner = :owner) AND (:tag = '' OR tag = :tag)
    AND (:within OR parent IS NULL) AND name GLOB :name AND id < :before
ORDER BY id DESC LIMIT :most;

-- name: flow_body
-- The definition of a flow.
SELECT body FROM flow_text WHERE flow = :flow;

-- name: flow_steps
-- The steps of a flow, in the order of the definition.
SELECT name, place, state, reason, unmet, total, open, failed, off, started, ended
FROM flow_step WHERE flow = :flow ORDER BY place;

-- name: flow_tasks
-- Tasks of a flow; :step '' means all steps, :states [] means any.
SELECT id, flow, step, item, value, state, reason, attempt, retries, not_before, result, created,
    started, ended
FROM flow_task
WHERE flow = :flow AND (:step = '' OR step = :step)
    AND (:states = '[]' OR state IN (SELECT value FROM json_each(:states)))
    AND id > :after
ORDER BY id LIMIT :most;

-- name: flow_task_get
-- One task.
SELECT id, flow, step, item, value, state, reason, attempt, retries, not_before, result, created,
    started, ended
FROM flow_task WHERE id = :task;

-- name: flow_attempts
-- All attempts of a task.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE task = :task ORDER BY number;

-- name: flow_attempt_get
-- One attempt.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE task = :task AND number = :number;

-- name: flow_attempt_by_key
-- One attempt, by what the site knows it by.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE key = :key;

-- name: flow_jobs_among
-- Those of some jobs that are attempts of steps.
SELECT job FROM flow_attempt
WHERE way = 'here' AND job IN (SELECT value FROM json_each(:jobs));

-- name: flow_attempt_by_site_key
-- The job that a site with an agent knows by a key.
SELECT job FROM edge_attempt WHERE key = :key;

-- name: flow_attempt_by_job
-- The attempt that a job is.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE job = :job AND way <> 'flow';

-- name: flow_attempts_over
-- Attempts that are over by what their sites say, and have not been taken in.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt
WHERE ended IS NULL AND state IN ('done', 'failed', 'cancelled', 'rejected', 'lost')
ORDER BY heard LIMIT :most;

-- name: flow_attempts_off
-- Attempts that are to be cancelled, and whose sites were not told.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE cancel = 1 ORDER BY task LIMIT :most;

-- name: flow_edges
-- Which step waits for which.
SELECT step, next FROM flow_edge WHERE flow = :flow;

-- name: flow_files
-- Files that an attempt has left.
SELECT name, size, sha256 FROM flow_file WHERE task = :task AND number = :number ORDER BY name;

-- name: flow_sources
-- The tasks of a step that are done, with their current attempts.
SELECT flow_task.id, flow_task.item, flow_attempt.number, way, site, place, digest
FROM flow_task JOIN flow_attempt ON task = flow_task.id AND number = flow_task.attempt
WHERE flow_task.flow = :flow AND step = :step AND flow_task.state = 'done' ORDER BY flow_task.item;

-- name: flow_forgettable
-- Flows that ended before a time and have no data any more, the oldest first.
SELECT id FROM flow INDEXED BY flow_cleared
WHERE cleared IS NOT NULL AND parent IS NULL AND ended < :before
  AND id NOT IN (SELECT flow FROM flow_clearing) ORDER BY ended LIMIT :most;

-- name: flow_inside
-- Flows with all that are within them; :ids is [id, ...], as in all that follows.
WITH RECURSIVE inside (id) AS (
    SELECT value FROM json_each(:ids)
    UNION
    SELECT flow.id FROM inside JOIN flow_task ON flow_task.flow = inside.id
    JOIN flow ON flow.parent = flow_task.id
)
SELECT id FROM inside;

-- name: flow_keys_keep
-- Keep the keys of flows that will be forgotten, so that none of them runs again.
INSERT OR IGNORE INTO spent (key)
SELECT 'flow:' || key FROM flow WHERE id IN (SELECT value FROM json_each(:ids));

-- name: flow_forgotten
-- Whether a flow with a key was here and is forgotten.
SELECT 1 FROM spent WHERE key = 'flow:' || :key;

-- name: flow_files_drop
-- Forget files that attempts of flows have left.
DELETE FROM flow_file WHERE task IN (
    SELECT id FROM flow_task WHERE flow IN (SELECT value FROM json_each(:ids))
);

-- name: flow_resends_drop
-- Forget what was asked for again.
DELETE FROM flow_resend WHERE task IN (
    SELECT id FROM flow_task WHERE flow IN (SELECT value FROM json_each(:ids))
);

-- name: flow_attempts_drop
-- Forget attempts of flows.
DELETE FROM flow_attempt WHERE task IN (
    SELECT id FROM flow_task WHERE flow IN (SELECT value FROM json_each(:ids))
);

-- name: flow_tasks_drop
-- Forget tasks of flows.
DELETE FROM flow_task WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_edges_drop
-- Forget what waited for what of flows.
DELETE FROM flow_edge WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_specs_drop
-- Forget what steps were of flows.
DELETE FROM flow_spec WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_steps_drop
-- Forget steps of flows.
DELETE FROM flow_step WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_texts_drop
-- Forget definitions of flows.
DELETE FROM flow_text WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_journal_drop
-- Forget stories of flows.
DELETE FROM flow_journal WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_outbox_drop
-- Forget messages that nobody takes of flows.
DELETE FROM flow_outbox WHERE flow IN (SELECT value FROM json_each(:ids));

-- name: flow_drop
-- Forget flows.
DELETE FROM flow WHERE id IN (SELECT value FROM json_each(:ids));
