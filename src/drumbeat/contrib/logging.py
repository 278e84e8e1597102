"""Log fields of the running job, for programs that configure logging themselves.

`drumbeat run` and `app.run()` do not need it: unless the program configures logging, their own lines have these fields.
"""

from __future__ import annotations

import logging

from drumbeat.context import log_fields
from drumbeat.tracing import current_trace_ids

__all__ = ["FIELDS", "JobFields"]

FIELDS = ("job", "attempt", "task", "queue", "trace_id", "span_id")
"""What `JobFields` adds to a record. In a batch handler it is `jobs`, their number, instead of `job` and `attempt`."""


class JobFields(logging.Filter):
    """Adds to each record the fields of the job whose handler wrote it; lets every record pass.

    Attach it to handlers: a logger's own filters do not see the records of its child loggers. It reads the thread and context
    that log, so it must come before a queue, on the `QueueHandler`. Fields that a record already has stay.
    """

    def __init__(self, name: str = "", *, outside: object = "-") -> None:
        """`outside`: the value of fields outside a job, so that a format can name them; None omits them. `name` is that of
        logging.Filter: only records of this logger and its children pass."""
        super().__init__(name)
        self._outside = outside

    def filter(self, record: logging.LogRecord) -> bool:
        known = vars(record)
        for name, value in (log_fields() | current_trace_ids()).items():
            known.setdefault(name, value)
        if self._outside is not None:
            for name in FIELDS:
                known.setdefault(name, self._outside)
        return bool(super().filter(record))
