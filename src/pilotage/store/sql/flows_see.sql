-- name: see_some_flows
-- Flows by their numbers.
SELECT id, key, digest, name, owner, tag, source, parent, state, reason, open, failed, budget, seq,
    created, ended, cleared
FROM flow WHERE id IN (SELECT value FROM json_each(:flows)) ORDER BY id DESC;

-- name: see_last_flow
-- The newest flow of a name, or of all; 0 if there is none.
SELECT coalesce(max(id), 0) FROM flow WHERE parent IS NULL AND (:name = '' OR name = :name);

-- name: see_flow_counts
-- How many steps of flows are in which state.
SELECT flow, state, count(*) FROM flow_step
WHERE flow IN (SELECT value FROM json_each(:flows)) GROUP BY flow, state;

-- name: see_task_counts
-- How many tasks of each step are in which state.
SELECT step, state, count(*) FROM flow_task WHERE flow = :flow GROUP BY step, state;

-- name: see_work
-- What the attempts of each step did at each site.
SELECT t.step, a.site, a.way, count(*), sum(a.ended IS NULL), sum(a.files), sum(a.bytes),
    sum(a.read), min(a.created)
FROM flow_task AS t JOIN flow_attempt AS a ON a.task = t.id
WHERE t.flow = :flow GROUP BY t.step, a.site, a.way ORDER BY min(a.created);

-- name: see_open_tasks
-- Tasks of a flow that are not over, each with its current attempt; how far that has come at a
-- site with an agent, its job says.
SELECT t.step, t.item, t.state, t.reason, t.not_before, a.way, a.site, a.job,
    coalesce(j.state, a.state), coalesce(nullif(j.reason, ''), a.reason), there.sent, there.heard,
    a.created
FROM flow_task AS t LEFT JOIN flow_attempt AS a ON a.task = t.id AND a.number = t.attempt
LEFT JOIN job AS j ON a.way = 'edge' AND j.id = a.job
LEFT JOIN edge_attempt AS there ON there.job = j.id AND there.number = j.attempt
WHERE t.flow = :flow AND t.state NOT IN ('done', 'failed', 'skipped', 'cancelled')
    AND (:step = '' OR t.step = :step)
LIMIT :most;

-- name: see_tasks
-- Tasks of a step in the order of its list.
SELECT id, flow, step, item, value, state, reason, attempt, retries, not_before, result, created,
    started, ended
FROM flow_task WHERE flow = :flow AND step = :step AND item > :after
    AND (:state = '' OR state = :state)
ORDER BY item LIMIT :most;

-- name: see_attempts
-- All attempts at tasks.
SELECT task, number, flow, way, site, key, job, state, reason, kind, code, seq, fenced, cancel,
    heard, created, started, ended, place, digest, files, bytes, read
FROM flow_attempt WHERE task IN (SELECT value FROM json_each(:tasks)) ORDER BY task, number;

-- name: see_files
-- What attempts at tasks have left.
SELECT task, number, name, size, sha256 FROM flow_file
WHERE task IN (SELECT value FROM json_each(:tasks)) ORDER BY task, number, name;

-- name: see_all_tasks
-- Tasks of a flow, step by step.
SELECT t.id, t.flow, t.step, t.item, t.value, t.state, t.reason, t.attempt, t.retries, t.not_before,
    t.result, t.created, t.started, t.ended
FROM flow_step AS s JOIN flow_task AS t ON t.flow = s.flow AND t.step = s.name
WHERE s.flow = :flow ORDER BY s.place, t.item LIMIT :most;

-- name: see_story
-- What happened to a flow or to one step of it, the newest first.
SELECT id, time, flow, step, task, number, state, words FROM flow_journal
WHERE flow = :flow AND (:step = '' OR step = :step) AND id < :before
ORDER BY id DESC LIMIT :most;

-- name: see_line
-- The newest line of the story of all flows.
SELECT coalesce(max(id), 0) FROM flow_journal;

-- name: see_changed
-- Flows of which something was told after a line.
SELECT DISTINCT flow FROM flow_journal WHERE id > :after LIMIT :most;
