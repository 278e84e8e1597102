-- Statements about the audit log.

-- name: release_key
-- Release the request key of an old entry.
UPDATE drumbeat_audit
   SET holds_key = 0
 WHERE holds_key
   AND who = :who
   AND request_key = :request_key
   AND at <= :until;

-- name: begin
INSERT INTO drumbeat_audit (id, at, who, role, via, verb, target, reason, request_key, request_hash, holds_key)
VALUES (:id, :now, :who, :role, :via, :verb, :target, :reason, :request_key, :request_hash, :request_key IS NOT NULL)
    ON CONFLICT DO NOTHING;

-- name: _entries
-- Columns as in records.AuditEntryRow.
SELECT json_group_array(json_array(id, who, role, via, verb, target, reason, request_key, request_hash, at, done_at, touched,
                                   outcome, answer, matched, reported_at, stopped_by))
  FROM (SELECT * FROM {{here}}

-- name: holder_of_key
-- include: _entries with drumbeat_audit WHERE holds_key AND who = :who AND request_key = :request_key
);

-- name: end
UPDATE drumbeat_audit
   SET done_at = :now,
       touched = :touched,
       outcome = :outcome,
       answer = :answer
 WHERE id = :id
   AND done_at IS NULL;

-- name: report_progress
UPDATE drumbeat_audit
   SET touched = :touched,
       matched = :matched,
       reported_at = :now
 WHERE id = :id
   AND done_at IS NULL
RETURNING stopped_by;

-- name: request_stop
UPDATE drumbeat_audit
   SET stopped_by = ifnull(stopped_by, :by)
 WHERE id = :id
   AND done_at IS NULL
   AND reported_at IS NOT NULL;

-- name: get
-- include: _entries with drumbeat_audit WHERE id = :id
);

-- name: _newest
           AND id < ifnull(:before, '~')
           AND (:who IS NULL OR who = :who)
           AND (:target IS NULL OR target = :target)
           AND (:verb IS NULL OR substr(verb, 1, length(:verb)) = :verb)
         ORDER BY id DESC
         LIMIT :limit);

-- name: page
-- include: _entries with drumbeat_audit WHERE true
-- include: _newest
;

-- name: page_of_unended
-- include: _entries with drumbeat_audit INDEXED BY drumbeat_audit_unended WHERE done_at IS NULL AND reported_at IS NOT NULL
-- include: _newest
;

-- name: page_of_who
-- include: _entries with drumbeat_audit INDEXED BY drumbeat_audit_by_who WHERE who = :who
-- include: _newest
;

-- name: page_of_target
-- include: _entries with drumbeat_audit INDEXED BY drumbeat_audit_by_target WHERE target = :target
-- include: _newest
;

-- name: prune
DELETE FROM drumbeat_audit
 WHERE id IN (SELECT id
                FROM drumbeat_audit
               WHERE at < :before
               ORDER BY at
               LIMIT :limit);
