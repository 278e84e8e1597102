-- oldest_code: 1
-- Those that have failed or crashed before: few, and people look for them. The state is left out so that a claim does not touch
-- this index.

CREATE INDEX job_tried
    ON drumbeat.job (run_at, id) WHERE failures + crashes > 0;
