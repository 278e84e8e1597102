-- oldest_code: 1
-- Those that have failed or crashed and wait for their next moment: few, and people look for them.

CREATE INDEX drumbeat_job_tried
    ON drumbeat_job (run_at, id) WHERE state = 'pending' AND failures + crashes > 0;
