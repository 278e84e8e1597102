-- Which job enqueued which. Only jobs with a parent are in the indexes, so that others cost nothing more.

ALTER TABLE drumbeat_job ADD COLUMN parent TEXT;
ALTER TABLE drumbeat_history ADD COLUMN parent TEXT;
ALTER TABLE drumbeat_dead ADD COLUMN parent TEXT;
CREATE INDEX drumbeat_job_by_parent
    ON drumbeat_job (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX drumbeat_history_by_parent
    ON drumbeat_history (parent, id) WHERE parent IS NOT NULL;
CREATE INDEX drumbeat_dead_by_parent
    ON drumbeat_dead (parent, id) WHERE parent IS NOT NULL;
