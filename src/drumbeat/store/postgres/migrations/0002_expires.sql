-- When a job expires: it ends as `expired` if its first attempt has not started by then. How long after their fire times the jobs
-- of a schedule do.
ALTER TABLE drumbeat.job ADD COLUMN expires_at bigint;
ALTER TABLE drumbeat.history ADD COLUMN expires_at bigint;
ALTER TABLE drumbeat.dead ADD COLUMN expires_at bigint;
ALTER TABLE drumbeat.schedule ADD COLUMN expires bigint;

-- The condition omits the state so that a claim does not change this index.
CREATE INDEX job_expiring
    ON drumbeat.job (expires_at) WHERE expires_at IS NOT NULL AND failures + crashes + replays = 0;
