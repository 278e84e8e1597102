-- What follows the end of a job. Every end deletes the job from the live table after its record was made, whichever statement does
-- it: so none forgets it. Not on insert into history: SQLite would materialise such an INSERT ... SELECT.
-- One trigger for both: each one costs every job that ends a call of its program (measured: 0.4 to 1 us), whatever its WHEN says.
CREATE TRIGGER drumbeat_job_ended
 AFTER DELETE ON drumbeat_job
  WHEN OLD.schedule IS NOT NULL OR OLD.is_parent OR OLD.lane <> ''
BEGIN
    -- The successor of a schedule's job, or none. The next fire of an interval stays NULL here: a trigger does not know the store's
    -- clock (the statement advance_intervals sets it).
    UPDATE drumbeat_schedule
       SET current = (SELECT id
                        FROM drumbeat_job
                       WHERE blocked_on = 'schedule:' || OLD.schedule
                         AND blocked_since IS NOT NULL
                       ORDER BY blocked_since, seq
                       LIMIT 1),
           next_at = CASE WHEN every IS NULL THEN next_at END
     WHERE name = OLD.schedule
       AND current = OLD.id;
    UPDATE drumbeat_job
       SET blocked_on = NULL,
           blocked_since = NULL
     WHERE blocked_on = 'schedule:' || OLD.schedule
       AND id = (SELECT current FROM drumbeat_schedule WHERE name = OLD.schedule);
    -- The release of a parent. How it ended is read where it is on record, by children that bind it (is_parent > 1); what was kept
    -- of an earlier life goes.
    INSERT INTO drumbeat_release (parent, event, life)
    SELECT OLD.id,
           CASE (SELECT state FROM drumbeat_history WHERE id = OLD.id)
                WHEN 'succeeded' THEN 'succeeded'
                ELSE CASE WHEN EXISTS (SELECT 1 FROM drumbeat_dead WHERE id = OLD.id) THEN 'died' ELSE 'cancelled' END
            END,
           OLD.replays
     WHERE OLD.is_parent;
    DELETE FROM drumbeat_parent_result
     WHERE OLD.is_parent > 1
       AND OLD.replays > 0
       AND parent = OLD.id;
    -- The room of a job under limits.
    UPDATE drumbeat_lane
       SET running = running - 1
     WHERE OLD.state = 'running'
       AND queue = OLD.queue
       AND name = OLD.lane;
    UPDATE drumbeat_line
       SET running = running - 1
     WHERE OLD.state = 'running'
       AND OLD.lane <> ''
       AND queue = OLD.queue
       AND name IN ('', substr(OLD.lane, 1, instr(OLD.lane, ' ') - 1))
       AND is_limited;
END;
