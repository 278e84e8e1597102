-- Statements about the life of jobs. Batches arrive as the rows of one VALUES, or as one JSON text, and leave as one JSON
-- text: a step of SQLite gives up the interpreter's lock, and a step for each row would wait for it each time.
-- Where VALUES is repeated, the fixed parameters ?1, ?2 stand before it in the text: `?` counts on from the largest so far.
-- In a row of VALUES -1 stands for NULL (see connection.NULL): `nullif(columnN, -1)` wherever a column may be NULL. Batches
-- are filled up with rows of -1; these must fall out of every statement.

-- name: insert
-- Columns of a row: NewJob's fields in their order. An id that is anywhere already is passed over.
INSERT INTO drumbeat_job (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, claimed_at,
                          instance, token, failures, crashes, retries, timeout, crash_limit, "unique", blocked_on, blocked_since,
                          cancel_requested, progress, error, on_dead, replays, tenant, schedule, trace, seq)
SELECT column1, column2, column3, 'pending', column6, nullif(column9, -1), column4, column5, ?1,
       ifnull(nullif(column7, -1), ?1 + column8), ifnull(nullif(column7, -1), ?1 + column8), NULL, NULL, 0, 0, 0,
       nullif(column11, -1), nullif(column12, -1), column13, column10, NULL, NULL, 0, NULL, NULL, nullif(column14, -1), 0,
       column15, NULL, nullif(column16, -1), NULL
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?))
 WHERE column1 <> -1
   AND NOT EXISTS (SELECT 1 FROM drumbeat_history WHERE id = column1)
   AND NOT EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = column1)
    ON CONFLICT (id) DO NOTHING;

-- name: insert_similar
-- The same for jobs that differ in nothing but the columns of a row: id, args, key. Binding a parameter costs as much as
-- storing it: 3.3 us for a job instead of 6.3.
-- ?1 now, ?2 task, ?3 queue, ?4 signature, ?5 priority, ?6 run_at, ?7 delay, ?8 unique, ?9 retries, ?10 timeout,
-- ?11 crash_limit, ?12 on_dead, ?13 tenant, ?14 trace.
INSERT INTO drumbeat_job (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, claimed_at,
                          instance, token, failures, crashes, retries, timeout, crash_limit, "unique", blocked_on, blocked_since,
                          cancel_requested, progress, error, on_dead, replays, tenant, schedule, trace, seq)
SELECT column1, ?2, ?3, 'pending', ?5, nullif(column3, -1), column2, ?4, ?1, ifnull(?6, ?1 + ?7), ifnull(?6, ?1 + ?7), NULL,
       NULL, 0, 0, 0, ?9, ?10, ?11, ?8, NULL, NULL, 0, NULL, NULL, ?12, 0, ?13, NULL, ?14, NULL
  FROM (VALUES (?, ?, ?))
 WHERE column1 <> -1
   AND NOT EXISTS (SELECT 1 FROM drumbeat_history WHERE id = column1)
   AND NOT EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = column1)
    ON CONFLICT (id) DO NOTHING;

-- name: inserted_after
SELECT json_group_array(id)
  FROM drumbeat_job
 WHERE seq > :seq;

-- name: known_ids
-- Which of these ids are anywhere.
SELECT json_group_array(wanted.value)
  FROM json_each(:ids) AS wanted
 WHERE EXISTS (SELECT 1 FROM drumbeat_job WHERE id = wanted.value)
    OR EXISTS (SELECT 1 FROM drumbeat_history WHERE id = wanted.value)
    OR EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = wanted.value);

-- name: unique_holders
-- Live unique jobs of these (task, key).
SELECT json_group_array(json_array(job.task, job.key, job.id, job.state))
  FROM json_each(:keys) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.task = json_extract(wanted.value, '$[0]')
   AND job.key = json_extract(wanted.value, '$[1]')
   AND job.key IS NOT NULL
   AND job."unique" <> '';

-- name: move_to_history
-- Move running jobs to history. ?1 instance, ?2 state, ?3 outcome, ?4 now.
-- Columns of a row: id, token, started_at, finished_at, result, result_error, error.
INSERT INTO drumbeat_history (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at,
                              started_at, finished_at, instance, token, outcome, failures, crashes, retries, timeout,
                              crash_limit, "unique", cancel_requested, progress, result, result_error, error, on_dead,
                              replays, tenant, schedule, trace, seq)
SELECT job.id, job.task, job.queue, ?2, job.priority, job.key, job.args, job.signature, job.created_at, job.due_at, job.run_at,
       nullif(ended.column3, -1), ifnull(nullif(ended.column4, -1), ?4), ?1, job.token, ?3, job.failures, job.crashes,
       job.retries, job.timeout, job.crash_limit, job."unique", job.cancel_requested, job.progress,
       nullif(ended.column5, -1), nullif(ended.column6, -1), nullif(ended.column7, -1), job.on_dead, job.replays, job.tenant,
       job.schedule, job.trace, NULL
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(ended.column1) = 'text'
   AND job.id = ended.column1
   AND job.state = 'running'
   AND job.instance = ?1
   AND job.token = ended.column2
    ON CONFLICT (id) DO NOTHING;

-- name: move_succeeded
-- The same for those that ended well and left nothing to keep: most of them. ?1 instance.
-- Columns of a row: id, token, started_at, finished_at.
INSERT INTO drumbeat_history (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at,
                              started_at, finished_at, instance, token, outcome, failures, crashes, retries, timeout,
                              crash_limit, "unique", cancel_requested, progress, result, result_error, error, on_dead,
                              replays, tenant, schedule, trace, seq)
SELECT job.id, job.task, job.queue, 'succeeded', job.priority, job.key, job.args, job.signature, job.created_at, job.due_at,
       job.run_at, ended.column3, ended.column4, ?1, job.token, 'succeeded', job.failures, job.crashes, job.retries,
       job.timeout, job.crash_limit, job."unique", job.cancel_requested, job.progress, NULL, NULL, NULL, job.on_dead,
       job.replays, job.tenant, job.schedule, job.trace, NULL
  FROM (VALUES (?, ?, ?, ?)) AS ended
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(ended.column1) = 'text'
   AND job.id = ended.column1
   AND job.state = 'running'
   AND job.instance = ?1
   AND job.token = ended.column2
    ON CONFLICT (id) DO NOTHING;

-- name: moved_after
SELECT json_group_array(json_array(id, token))
  FROM drumbeat_history
 WHERE seq > :seq;

-- name: delete_finished
-- Take out of the live table what has just been moved to history.
DELETE FROM drumbeat_job
 WHERE seq IN (SELECT job.seq
                 FROM drumbeat_history AS history
                CROSS JOIN drumbeat_job AS job
                WHERE history.seq > :seq
                  AND job.id = history.id);

-- name: delete_jobs
DELETE FROM drumbeat_job
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: advance_after_finished
-- The next fire of an interval counts from the moment at which the store records the end, as on all engines. The trigger has
-- counted from finished_at, which is the worker's word, and may be long ago when an outcome is told late.
UPDATE drumbeat_schedule
   SET next_at = CASE WHEN :now + every < "end" OR "end" IS NULL THEN :now + every END
 WHERE every IS NOT NULL
   AND current IS NULL
   AND (name, next_at - every) IN (SELECT schedule, finished_at
                                     FROM drumbeat_history
                                    WHERE seq > :seq
                                      AND schedule IS NOT NULL);

-- name: advance_after_dead
-- The same for dead letters.
UPDATE drumbeat_schedule
   SET next_at = CASE WHEN :now + every < "end" OR "end" IS NULL THEN :now + every END
 WHERE every IS NOT NULL
   AND current IS NULL
   AND (name, next_at - every) IN (SELECT schedule, finished_at
                                     FROM drumbeat_dead
                                    WHERE id IN (SELECT value FROM json_each(:ids))
                                      AND schedule IS NOT NULL);

-- name: insert_dead_letters
-- Make dead letters of live jobs. ?1 now. Columns of a row: id, outcome, started_at, finished_at, failures, crashes, error.
INSERT INTO drumbeat_dead (finished_at, id, task, queue, priority, key, args, signature, created_at, due_at, run_at,
                           started_at, instance, token, outcome, failures, crashes, retries, timeout, crash_limit, "unique",
                           cancel_requested, progress, error, on_dead, replays, tenant, schedule, trace)
SELECT ifnull(nullif(ended.column4, -1), ?1), job.id, job.task, job.queue, job.priority, job.key, job.args, job.signature,
       job.created_at, job.due_at, job.run_at, nullif(ended.column3, -1), job.instance, job.token,
       nullif(ended.column2, -1), ended.column5, ended.column6, job.retries, job.timeout, job.crash_limit, job."unique",
       job.cancel_requested, job.progress, nullif(ended.column7, -1), job.on_dead, job.replays, job.tenant, job.schedule, job.trace
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?)) AS ended
 CROSS JOIN drumbeat_job AS job
 WHERE typeof(ended.column1) = 'text'
   AND job.id = ended.column1;

-- name: requeue
-- Make running jobs pending again.
-- Columns of a row: seq, run_at, failures, crashes, unique, blocked_on, blocked_since, error.
UPDATE drumbeat_job
   SET state = 'pending',
       instance = NULL,
       claimed_at = NULL,
       progress = NULL,
       run_at = back.column2,
       failures = back.column3,
       crashes = back.column4,
       "unique" = back.column5,
       blocked_on = nullif(back.column6, -1),
       blocked_since = nullif(back.column7, -1),
       error = ifnull(nullif(back.column8, -1), error)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?, ?)) AS back
 WHERE drumbeat_job.seq = back.column1;

-- name: insert_attempts
-- Columns of a row: id, token, instance, outcome, started_at, finished_at, error.
INSERT INTO drumbeat_attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT column1, column2, column3, column4, nullif(column5, -1), column6, nullif(column7, -1)
  FROM (VALUES (?, ?, ?, ?, ?, ?, ?))
 WHERE column1 <> -1
    ON CONFLICT DO NOTHING;

-- name: held
-- Those of these jobs that run under this instance. Columns as in rows.SqliteHeldJob.
SELECT json_group_array(json_array(job.seq, job.id, job.token, job.task, job.key, job."unique", job.run_at, job.claimed_at,
                                   job.failures, job.crashes, job.crash_limit, job.blocked_since, job.cancel_requested,
                                   job.on_dead))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.state = 'running'
   AND job.instance = :instance;

-- name: held_by
-- All jobs that run under this instance. Columns as in rows.SqliteHeldJob.
SELECT json_group_array(json_array(job.seq, job.id, job.token, job.task, job.key, job."unique", job.run_at, job.claimed_at,
                                   job.failures, job.crashes, job.crash_limit, job.blocked_since, job.cancel_requested,
                                   job.on_dead))
  FROM drumbeat_job AS job
 WHERE job.state = 'running'
   AND job.instance = :instance;

-- name: recorded_outcomes
-- What is on record about these (id, token) of this instance: the outcome, or null.
SELECT json_group_array(coalesce(
           (SELECT outcome FROM drumbeat_history
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance),
           (SELECT outcome FROM drumbeat_dead
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance),
           (SELECT outcome FROM drumbeat_attempt
             WHERE id = json_extract(wanted.value, '$[0]') AND token = json_extract(wanted.value, '$[1]') AND instance = :instance)))
  FROM json_each(:holds) AS wanted;

-- name: count_refused
UPDATE drumbeat_instance
   SET refused = refused + :refused
 WHERE id = :instance;

-- name: pick
-- The next jobs of a queue. Level by level, each a range of the claim index: future jobs are never stepped over.
SELECT json_group_array(seq)
  FROM (SELECT job.seq
          FROM drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE job.queue = :queue
           AND job.priority = level.priority
           AND job.run_at <= :now
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = :queue)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         ORDER BY level.priority, job.run_at, job.id
         LIMIT :limit);

-- name: pick_unblocked
-- The next jobs that wait for something this worker has. The recursion jumps from one value to the next, so that a million
-- jobs that wait for somebody else cost one seek. Those that wait for a schedule are jumped over all together.
  WITH RECURSIVE waiting (value) AS (
       SELECT min(blocked_on)
         FROM drumbeat_job
        WHERE blocked_on IS NOT NULL
        UNION ALL
       SELECT (SELECT min(blocked_on)
                 FROM drumbeat_job
                WHERE blocked_on IS NOT NULL
                  AND blocked_on > CASE WHEN waiting.value GLOB 'schedule:*' THEN 'schedule;' ELSE waiting.value END)
         FROM waiting
        WHERE waiting.value IS NOT NULL
        LIMIT 1000)
SELECT json_group_array(seq)
  FROM (SELECT job.seq
          FROM waiting
         CROSS JOIN json_each(:queues) AS queue
         CROSS JOIN drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE waiting.value IN (SELECT value FROM json_each(:unblocks))
           AND job.blocked_on = waiting.value
           AND job.queue = queue.value
           AND job.priority = level.priority
           AND job.run_at <= :now
           AND job.blocked_on IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         LIMIT :limit);

-- name: claim
UPDATE drumbeat_job
   SET state = 'running',
       instance = :instance,
       token = CASE WHEN typeof(token) = 'integer' AND token < 1e18 THEN max(token + 1, :now) ELSE :now END,
       claimed_at = :now
 WHERE seq IN (SELECT value FROM json_each(:picked));

-- name: set_id
UPDATE drumbeat_job
   SET id = :id
 WHERE seq = :seq;

-- name: unblock
UPDATE drumbeat_job
   SET blocked_on = NULL
 WHERE seq IN (SELECT value FROM json_each(:picked));

-- name: claimed_jobs
-- Columns as in core.claim.ClaimedJob.
SELECT json_group_array(json_array(job.id, job.token, job.task, job.queue, job.priority, job.key, job.args, job.signature,
                                   job.created_at, job.due_at, job.run_at, job.failures, job.crashes, job.retries,
                                   job.timeout, job.crash_limit, job.on_dead, job.replays, job.blocked_since, job.trace))
  FROM json_each(:picked) AS picked
 CROSS JOIN drumbeat_job AS job
 WHERE job.seq = picked.value;

-- name: next_due
-- The earliest moment after `after` of these queues: one seek for each queue and level.
SELECT min((SELECT job.run_at
              FROM drumbeat_job AS job
             WHERE job.queue = queue.value
               AND job.priority = level.priority
               AND job.run_at > :after
               AND job.run_at < 9e18
               AND job.state = 'pending'
               AND job.blocked_on IS NULL
             ORDER BY job.run_at
             LIMIT 1))
  FROM json_each(:queues) AS queue
 CROSS JOIN drumbeat_level AS level
 WHERE NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value);

-- name: pick_malformed
-- Jobs of these queues whose due moment is a text or a blob: that is greater than every number, so one seek finds them.
SELECT json_group_array(seq)
  FROM (SELECT job.seq
          FROM json_each(:queues) AS queue
         CROSS JOIN drumbeat_level AS level
         CROSS JOIN drumbeat_job AS job
         WHERE job.queue = queue.value
           AND job.priority = level.priority
           AND job.run_at > 9e18
           AND job.state = 'pending'
           AND job.blocked_on IS NULL
           AND typeof(job.run_at) IN ('text', 'blob')
           AND NOT EXISTS (SELECT 1 FROM drumbeat_queue WHERE name = queue.value)
           AND EXISTS (SELECT 1 FROM drumbeat_instance WHERE id = :instance AND state = 'alive')
         LIMIT :limit);

-- name: running
SELECT json_group_array(json_array(id, token))
  FROM drumbeat_job
 WHERE state = 'running'
   AND instance = :instance;

-- name: note
-- ?1 instance. Columns of a row: id, token, progress.
UPDATE drumbeat_job
   SET progress = note.column3
  FROM (SELECT ?1 AS instance, column1, column2, column3 FROM (VALUES (?, ?, ?))) AS note
 WHERE typeof(note.column1) = 'text'
   AND drumbeat_job.id = note.column1
   AND drumbeat_job.token = note.column2
   AND drumbeat_job.instance = note.instance
   AND drumbeat_job.state = 'running';

-- name: states
-- Where these jobs are: [id, state], live ones first looked for.
SELECT json_group_array(json_array(wanted.value, coalesce(
           (SELECT state FROM drumbeat_job WHERE id = wanted.value),
           (SELECT state FROM drumbeat_history WHERE id = wanted.value),
           (SELECT state FROM drumbeat_dead WHERE id = wanted.value))))
  FROM json_each(:ids) AS wanted;

-- name: live_ids_of_keys
SELECT json_group_array(job.id)
  FROM (SELECT DISTINCT value FROM json_each(:keys)) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.task = :task
   AND job.key = wanted.value
   AND job.key IS NOT NULL;

-- name: cancel_pending
INSERT INTO drumbeat_history (state, id, task, queue, priority, key, args, signature, created_at, due_at, run_at,
                              finished_at, token, failures, crashes, retries, timeout, crash_limit, "unique",
                              cancel_requested, progress, error, on_dead, replays, tenant, schedule, trace)
SELECT 'cancelled', job.id, job.task, job.queue, job.priority, job.key, job.args, job.signature, job.created_at, job.due_at,
       job.run_at, :now, job.token, job.failures, job.crashes, job.retries, job.timeout, job.crash_limit, job."unique", 1,
       job.progress, job.error, job.on_dead, job.replays, job.tenant, job.schedule, job.trace
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_job AS job
 WHERE job.id = wanted.value
   AND job.state <> 'running';

-- name: request_cancel
UPDATE drumbeat_job
   SET cancel_requested = 1
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state = 'running';

-- name: run_now
UPDATE drumbeat_job
   SET run_at = min(run_at, :now)
 WHERE id IN (SELECT value FROM json_each(:ids))
   AND state = 'pending';

-- name: dead_letters
-- What a replay must know: [id, task, key, unique].
SELECT json_group_array(json_array(dead.id, dead.task, dead.key, dead."unique"))
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value;

-- name: replay
-- A new life under the same id. The token goes on growing from where it was.
INSERT INTO drumbeat_job (id, task, queue, priority, key, args, signature, created_at, due_at, run_at, token, retries,
                          timeout, crash_limit, "unique", on_dead, replays, tenant, schedule, trace)
SELECT dead.id, dead.task, dead.queue,
       CASE WHEN typeof(dead.priority) = 'integer' AND dead.priority BETWEEN 0 AND 9 THEN dead.priority ELSE 5 END,
       dead.key, dead.args, dead.signature, dead.created_at, dead.due_at, :now,
       dead.token, dead.retries, dead.timeout, dead.crash_limit, dead."unique", dead.on_dead, dead.replays + 1, dead.tenant,
       dead.schedule, dead.trace
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value;

-- name: insert_last_attempts
-- Before a dead letter lives again: its last run becomes one of its earlier runs.
INSERT INTO drumbeat_attempt (id, token, instance, outcome, started_at, finished_at, error)
SELECT dead.id, dead.token, dead.instance, dead.outcome, dead.started_at, dead.finished_at, dead.error
  FROM json_each(:ids) AS wanted
 CROSS JOIN drumbeat_dead AS dead
 WHERE dead.id = wanted.value
   AND dead.outcome IS NOT NULL
    ON CONFLICT DO NOTHING;

-- name: move_dead_to_history
INSERT INTO drumbeat_history (id, task, queue, state, priority, key, args, signature, created_at, due_at, run_at, started_at,
                              finished_at, instance, token, outcome, failures, crashes, retries, timeout, crash_limit,
                              "unique", cancel_requested, progress, result, result_error, error, on_dead, replays, tenant,
                              schedule, trace)
SELECT dead.id, dead.task, dead.queue, dead.state, dead.priority, dead.key, dead.args, dead.signature, dead.created_at,
       dead.due_at, dead.run_at, dead.started_at, dead.finished_at, dead.instance, dead.token, dead.outcome, dead.failures,
       dead.crashes, dead.retries, dead.timeout, dead.crash_limit, dead."unique", dead.cancel_requested, dead.progress,
       dead.result, dead.result_error, dead.error, dead.on_dead, dead.replays, dead.tenant, dead.schedule, dead.trace
  FROM drumbeat_dead AS dead
 WHERE dead.id IN (SELECT value FROM json_each(:ids));

-- name: delete_dead
DELETE FROM drumbeat_dead
 WHERE id IN (SELECT value FROM json_each(:ids));

-- name: ended
-- How jobs ended: [id, task, state, result, result_error, error], or [id, task, null ...] for a live one.
SELECT json_group_array(json(coalesce(
           (SELECT json_array(id, task, state, result, result_error, error) FROM drumbeat_history WHERE id = wanted.value),
           (SELECT json_array(id, task, NULL, NULL, NULL, NULL) FROM drumbeat_job WHERE id = wanted.value),
           (SELECT json_array(id, task, state, result, result_error, error) FROM drumbeat_dead WHERE id = wanted.value),
           'null')))
  FROM json_each(:ids) AS wanted;

-- name: pruned_before
SELECT value
  FROM drumbeat_meta
 WHERE name = 'pruned_before';

-- name: expired_waits
-- Ids of jobs that have waited since before `before` for something beginning with `prefix`.
  WITH RECURSIVE waiting (value) AS (
       SELECT min(blocked_on)
         FROM drumbeat_job
        WHERE blocked_on IS NOT NULL AND blocked_on >= :prefix
        UNION ALL
       SELECT (SELECT min(blocked_on)
                 FROM drumbeat_job
                WHERE blocked_on IS NOT NULL AND blocked_on > waiting.value)
         FROM waiting
        WHERE waiting.value IS NOT NULL AND substr(waiting.value, 1, length(:prefix)) = :prefix)
SELECT json_group_array(id)
  FROM (SELECT job.id
          FROM waiting
         CROSS JOIN drumbeat_job AS job
         WHERE substr(waiting.value, 1, length(:prefix)) = :prefix
           AND job.blocked_on = waiting.value
           AND job.blocked_since < :before
           AND job.blocked_on IS NOT NULL
         LIMIT :limit);

-- name: prunable_history
-- The oldest of history; rows are in the order of their end, give or take what reporters held back, so the head is enough.
SELECT json_group_array(seq)
  FROM (SELECT seq
          FROM (SELECT seq, finished_at
                  FROM drumbeat_history
                 ORDER BY seq
                 LIMIT :limit + 1000)
         WHERE finished_at < :before
         ORDER BY finished_at, seq
         LIMIT :limit);

-- name: delete_attempts
DELETE FROM drumbeat_attempt
 WHERE id IN (SELECT history.id
                FROM json_each(:seqs) AS pruned
               CROSS JOIN drumbeat_history AS history
               WHERE history.seq = pruned.value);

-- name: delete_history
DELETE FROM drumbeat_history
 WHERE seq IN (SELECT value FROM json_each(:seqs));

-- name: set_pruned_before
INSERT INTO drumbeat_meta (name, value)
VALUES ('pruned_before', :before)
    ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);

-- name: pause
INSERT INTO drumbeat_queue (name, paused_at, paused_by, paused_reason)
VALUES (:queue, :now, :by, :reason)
    ON CONFLICT (name) DO NOTHING;

-- name: resume
DELETE FROM drumbeat_queue
 WHERE name = :queue;
