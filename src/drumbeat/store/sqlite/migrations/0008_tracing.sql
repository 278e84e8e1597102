-- oldest_code: 1
-- Which span enqueued a job: a W3C traceparent, or NULL. Last in their tables, as `schedule` before it.

ALTER TABLE drumbeat_job ADD COLUMN trace TEXT;
ALTER TABLE drumbeat_history ADD COLUMN trace TEXT;
ALTER TABLE drumbeat_dead ADD COLUMN trace TEXT;
