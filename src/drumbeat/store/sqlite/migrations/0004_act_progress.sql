-- Actions on many jobs report their progress, and can be asked to stop, from any process.

ALTER TABLE drumbeat_audit ADD COLUMN matched INTEGER;
ALTER TABLE drumbeat_audit ADD COLUMN reported_at INTEGER;
ALTER TABLE drumbeat_audit ADD COLUMN stopped_by TEXT;
CREATE INDEX drumbeat_audit_unended
    ON drumbeat_audit (id) WHERE done_at IS NULL AND reported_at IS NOT NULL;
