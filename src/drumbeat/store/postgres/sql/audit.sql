-- Statements about the audit log.

-- name: expire_key
-- Release the request key of an old entry. $1 who, $2 request_key, $3 within.
UPDATE drumbeat.audit
   SET holds_key = false
 WHERE holds_key
   AND who = $1
   AND request_key = $2
   AND at <= drumbeat.now_us() - $3::bigint;

-- name: begin
-- Of many requests with the same key, the others wait here for the commit of the first.
INSERT INTO drumbeat.audit (at, id, who, role, via, verb, target, reason, request_key, request_hash, holds_key)
VALUES (drumbeat.now_us(), $1, $2, $3, $4, $5, $6, $7, $8, $9, $8::text IS NOT NULL)
    ON CONFLICT DO NOTHING;

-- name: key_holder
-- Columns as in core.audit.AuditEntry, here and below.
SELECT id, who, role, via, verb, target, reason, request_key, request_hash, at, done_at, touched, outcome, answer,
       matched, reported_at, stopped_by
  FROM drumbeat.audit
 WHERE holds_key
   AND who = $1
   AND request_key = $2;

-- name: end
UPDATE drumbeat.audit
   SET done_at = drumbeat.now_us(),
       touched = $2,
       outcome = $3,
       answer = $4
 WHERE id = $1
   AND done_at IS NULL;

-- name: report_progress
-- $1 id, $2 touched, $3 matched.
UPDATE drumbeat.audit
   SET touched = $2,
       matched = $3,
       reported_at = drumbeat.now_us()
 WHERE id = $1
   AND done_at IS NULL
RETURNING stopped_by;

-- name: request_stop
-- $1 id, $2 by.
UPDATE drumbeat.audit
   SET stopped_by = coalesce(stopped_by, $2)
 WHERE id = $1
   AND done_at IS NULL
   AND reported_at IS NOT NULL
RETURNING id;

-- name: get
SELECT id, who, role, via, verb, target, reason, request_key, request_hash, at, done_at, touched, outcome, answer,
       matched, reported_at, stopped_by
  FROM drumbeat.audit
 WHERE id = $1;

-- name: page
-- $1 before, $2 limit, $3 who, $4 the beginning of the verb, $5 target; null: any.
SELECT id, who, role, via, verb, target, reason, request_key, request_hash, at, done_at, touched, outcome, answer,
       matched, reported_at, stopped_by
  FROM drumbeat.audit
 WHERE ($1::text IS NULL OR id < $1)
   AND ($3::text IS NULL OR who = $3)
   AND ($4::text IS NULL OR starts_with(verb, $4))
   AND ($5::text IS NULL OR target = $5)
 ORDER BY id DESC
 LIMIT $2;

-- name: page_of_unended
-- By its index: few of very many entries.
SELECT id, who, role, via, verb, target, reason, request_key, request_hash, at, done_at, touched, outcome, answer,
       matched, reported_at, stopped_by
  FROM drumbeat.audit
 WHERE done_at IS NULL
   AND reported_at IS NOT NULL
   AND ($1::text IS NULL OR id < $1)
   AND ($3::text IS NULL OR who = $3)
   AND ($4::text IS NULL OR starts_with(verb, $4))
   AND ($5::text IS NULL OR target = $5)
 ORDER BY id DESC
 LIMIT $2;

-- name: prune
-- ARRAY: as in rooms.sql.
DELETE FROM drumbeat.audit
 WHERE id = ANY (ARRAY(SELECT id
                         FROM drumbeat.audit
                        WHERE at < $1
                        ORDER BY at
                        LIMIT $2
                          FOR UPDATE SKIP LOCKED))
RETURNING id;
