-- Actions on many jobs report their progress, and can be asked to stop, from any process.

ALTER TABLE drumbeat.audit
    ADD COLUMN matched bigint;
ALTER TABLE drumbeat.audit
    ADD COLUMN reported_at bigint;
ALTER TABLE drumbeat.audit
    ADD COLUMN stopped_by text;
CREATE INDEX audit_unended
    ON drumbeat.audit (id) WHERE done_at IS NULL AND reported_at IS NOT NULL;
