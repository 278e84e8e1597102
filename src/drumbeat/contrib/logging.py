"""Which job a log record is about, for programs that configure logging themselves.

`drumbeat run` and `app.run()` need none of this: where nobody has configured logging, their own lines have these fields.
"""

from __future__ import annotations

import logging

from drumbeat.context import log_fields
from drumbeat.tracing import current_trace_ids

__all__ = ["FIELDS", "JobFields"]

FIELDS = ("job", "attempt", "task", "queue", "trace_id", "span_id")
"""What a record has after `JobFields`. One of a batch handler also has `jobs`, their number, instead of `job` and `attempt`."""


class JobFields(logging.Filter):
    """Give each record the fields of the job whose handler has written it; lets every record pass.

    Belongs on handlers: a logger's own filters do not see the records of the loggers below it. It looks at the thread and the
    context that log, so it must come before a queue, on the `QueueHandler`. What a record has already stays as it is.
    """

    def __init__(self, name: str = "", *, outside: object = "-") -> None:
        """`outside`: what a field is where there is none, so that a format may name it; None leaves it out. `name` is as with
        every logging.Filter: only records of this logger, and of those below it, pass."""
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
