-- Calls on a connection of the program's own: one call with one text. $1 is rewritten for its driver.

-- name: enqueue
SELECT drumbeat.enqueue($1);

-- name: complete
SELECT drumbeat.complete($1);

-- name: complete_and_enqueue
-- Both in one statement, so that a connection in autocommit mode stores both or none.
SELECT drumbeat.complete(given.calls ->> 'completed'), drumbeat.enqueue(given.calls ->> 'follow_up')
  FROM (SELECT CAST($1 AS json) AS calls) AS given;

-- name: record_step
SELECT drumbeat.record_step($1);

-- name: send_signal
SELECT drumbeat.send_signal($1);

-- name: terminate_session
SELECT pg_terminate_backend(pid)
  FROM pg_stat_activity
 WHERE pid = $1
   AND state <> 'idle';
