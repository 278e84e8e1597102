-- Parts of statements of several files.

-- name: _waiting
-- The values of blocked_on. The recursion seeks from one value to the next, so that a million jobs blocked on another cost one
-- seek. Jobs that wait for a schedule are unblocked by the end of a job only: one seek skips all of them.
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

-- name: _is_parent
-- As drumbeat_job.is_parent; `here` is the id.
       EXISTS (SELECT 1 FROM drumbeat_edge WHERE parent = {{here}})
       + EXISTS (SELECT 1 FROM drumbeat_edge INDEXED BY drumbeat_edge_bound WHERE parent = {{here}} AND binding <> ''),
