"""Groups of dead letters. What is stored when a job becomes one: `follow_up.py`."""

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.field_doc import doc
from drumbeat.ids import JobId


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters of one task with the same type of error."""

    task: str
    error: Annotated[str, doc("The type; empty: no error is on record.")]
    count: int
    first_at: Annotated[datetime, doc("When the first and the last of them died.")]
    last_at: datetime
    sample: Annotated[JobId, doc("The one that died last.")]
    message: Annotated[str, doc("Of its error.")]
