-- When a job expires: it ends as `expired` if its first attempt has not started by then. How long after their fire times the jobs
-- of a schedule do.
ALTER TABLE drumbeat_job ADD COLUMN expires_at INTEGER;
ALTER TABLE drumbeat_history ADD COLUMN expires_at INTEGER;
ALTER TABLE drumbeat_dead ADD COLUMN expires_at INTEGER;
ALTER TABLE drumbeat_schedule ADD COLUMN expires INTEGER;

-- The condition omits the state so that a claim does not change this index.
CREATE INDEX drumbeat_job_expiring
    ON drumbeat_job (expires_at) WHERE expires_at IS NOT NULL AND failures + crashes + replays = 0;
