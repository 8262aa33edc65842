-- name: flow_hand_list
-- The list that a step goes through, as JSON; '' if it has one task.
SELECT list FROM flow_spec WHERE flow = :flow AND step = :step;

-- name: flow_hand_after
-- Steps that wait for a step.
SELECT next FROM flow_edge WHERE flow = :flow AND step = :step;

-- name: flow_hand_leaves
-- Steps that no other waits for.
SELECT name FROM flow_step WHERE flow = :flow AND NOT EXISTS (
    SELECT 1 FROM flow_edge WHERE flow_edge.flow = flow_step.flow AND flow_edge.step = flow_step.name
) ORDER BY place;

-- name: flow_hand_attempt_item
-- Which task of which step an attempt belongs to.
SELECT flow, step, item, value FROM flow_task WHERE id = :task;

-- name: flow_hand_forget
-- Forget the files of an attempt, before they are written down anew.
DELETE FROM flow_file WHERE task = :task AND number = :number;

-- name: flow_hand_files
-- The files of an attempt; :rows is [[name, size, sha256], ...].
INSERT INTO flow_file (task, number, name, size, sha256)
SELECT :task, :number, value->>0, value->>1, value->>2 FROM json_each(:rows);

-- name: flow_hand_left
-- What an attempt has left, as it was found there.
UPDATE flow_attempt SET digest = :digest, files = :files, bytes = :bytes,
    read = coalesce(:read, read) WHERE task = :task AND number = :number;

-- name: flow_hand_say
-- Why a task is not done although its attempt is.
UPDATE flow_task SET reason = :reason WHERE id = :task AND state = 'staging_out';

-- name: flow_hand_asked
-- Whether the data of an attempt was asked for again: when, and when something came of it.
SELECT time, told FROM flow_resend WHERE task = :task AND number = :number;

-- name: flow_hand_ask
-- The data of an attempt is asked for again.
INSERT INTO flow_resend (task, number, reason, time) VALUES (:task, :number, :reason, :now)
ON CONFLICT DO NOTHING;

-- name: flow_hand_told
-- A site has said what came of it.
UPDATE flow_resend SET told = :now WHERE task = :task AND number = :number AND told IS NULL;

-- name: flow_hand_going
-- Flows whose results are to be sent away.
SELECT id FROM flow WHERE state = 'staging_out' AND ended IS NULL ORDER BY id LIMIT :most;

-- name: flow_hand_runs
-- How often what comes out of a flow was to be sent.
SELECT count(*) FROM flow_journal WHERE flow = :flow AND step = '' AND state = 'staging_out';

-- name: flow_hand_old
-- Flows whose data has been kept for long enough; those within others go with them.
SELECT id FROM flow INDEXED BY flow_uncleared
WHERE cleared IS NULL AND ended < :before AND parent IS NULL ORDER BY ended LIMIT :most;

-- name: flow_hand_clear
-- A flow's data is about to be removed, unless it goes on meanwhile.
UPDATE flow SET cleared = :now
WHERE id = :flow AND cleared IS NULL AND ended IS NOT NULL AND ended < :before RETURNING id;

-- name: flow_hand_clearing
-- Flows whose data is being removed.
SELECT flow FROM flow_clearing;

-- name: flow_hand_begin_clear
-- The data of a flow is about to be removed.
INSERT INTO flow_clearing (flow) VALUES (:flow) ON CONFLICT DO NOTHING;

-- name: flow_hand_cleared
-- It is removed.
DELETE FROM flow_clearing WHERE flow = :flow;

-- name: flow_hand_within
-- All flows that are within a flow, and it itself: number, key, and when it was made.
WITH RECURSIVE some (id) AS (
    SELECT :flow
    UNION SELECT flow.id FROM some JOIN flow_task ON flow_task.flow = some.id
    JOIN flow ON flow.parent = flow_task.id
)
SELECT flow.id, flow.key, flow.created FROM some JOIN flow ON flow.id = some.id;

-- name: flow_hand_places
-- Where attempts of a flow have left anything.
SELECT DISTINCT place FROM flow_attempt JOIN flow_task ON flow_task.id = flow_attempt.task
WHERE flow_task.flow = :flow AND place <> '';
