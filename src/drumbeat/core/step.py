"""What a job has on record of its own run: steps, sleeps and waits for signals.

A record belongs to a job, a kind and a name; the kinds have name spaces of their own. It is written under the claim of the run
that made it, and read by later runs of the same job. Times are integer microseconds UTC by the store's clock;
`StepRecord`, which people see, has datetimes.
"""

from datetime import datetime
from typing import Annotated

import msgspec

from drumbeat.core.claim import ClaimRef
from drumbeat.core.field_doc import doc
from drumbeat.core.suspension import StepKind as StepKind
from drumbeat.ids import JobId

MAX_STEPS = 1_000
"""Records of one job, of all kinds together."""
MAX_RESULT_BYTES = 256 * 1024
MAX_TOTAL_BYTES = 4 * 1024 * 1024
"""Results of one job together."""
MAX_STEP_NAME = 200


class NewStep(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a step, to be recorded by the run that made it."""

    claim: ClaimRef
    name: str
    started_at: int
    finished_at: int
    result: str
    """JSON text."""


class StepRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a job's run."""

    job: JobId
    kind: StepKind
    name: str
    token: Annotated[int, doc("The claim under which it was recorded: of the attempt with this token.")]
    started_at: datetime
    until: Annotated[datetime | None, doc("The end of a sleep, or the time-out of a wait; None: it has none.")] = None
    finished_at: Annotated[datetime | None, doc("None: a sleep, or a wait that has not ended.")] = None
    signal: Annotated[str | None, doc("The name of the signal that is waited for.")] = None
    result: Annotated[
        str | None,
        doc("JSON text of a step's result, or of a signal's payload. None in a wait that has ended: it timed out."),
    ] = None
