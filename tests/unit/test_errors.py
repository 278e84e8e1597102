"""The tree of errors: shape, messages, facts, and that each survives a process border."""

import copy
import inspect
import pickle

import pytest

from drumbeat import errors
from drumbeat.errors import (
    AmbiguousKey,
    ClaimLost,
    ConfigError,
    DrumbeatError,
    InvalidArguments,
    JobCancelled,
    JobEnded,
    JobExpired,
    JobFailed,
    JobNotFound,
    JobNotStarted,
    JobTimedOut,
    LockLost,
    LockReentered,
    LockTimeout,
    NotInJob,
    NotTransactional,
    ParentResultMismatch,
    ResultNotKept,
    SchemaOutOfDate,
    SharesNotTaken,
    SignalTimedOut,
    StartFailed,
    StepError,
    StoreError,
    StoreFull,
    StoreLost,
    StoreUnavailable,
    TransactionTooLong,
    UniqueConflict,
    UnknownTask,
    WorkflowCancelled,
    WorkflowConflict,
    WorkflowNotFound,
    WrongContext,
)

SAMPLES: list[DrumbeatError] = [
    ConfigError("lease must be more than twice heartbeat", "lease"),
    InvalidArguments("amount: expected Decimal, got float", "amount"),
    ParentResultMismatch("add: argument 'number' must be int, but fetch returns str", "number"),
    WorkflowNotFound("id-1"),
    WorkflowCancelled("id-1"),
    WorkflowConflict("nightly", "id-1"),
    UnknownTask("chrage", ["charge", "refund"]),
    SharesNotTaken("refresh", 1, 3),
    StartFailed("warm", "ValueError: no such table"),
    UniqueConflict("id-1", "cust:42", "id-2"),
    WrongContext("enqueue()", "enqueue_sync()", loop_runs=False),
    StoreUnavailable("database is locked"),
    StoreFull("disk full"),
    StoreLost("the file is gone"),
    SchemaOutOfDate(found=1, known=2),
    NotTransactional("Redis"),
    ClaimLost("id-1", 7),
    TransactionTooLong(5),
    JobNotFound("id-1"),
    JobExpired("id-1"),
    NotInJob(),
    AmbiguousKey("charge", "k", ["id-1", "id-2"]),
    JobEnded("id-1", "succeeded"),
    SignalTimedOut("id-1", "approved"),
    StepError("j", "charge", "is there twice in one run"),
    JobFailed("id-1", "charge", type="ValueError", message="no money", traceback="Traceback ..."),
    JobCancelled("id-1", "charge"),
    JobNotStarted("id-1", "charge"),
    JobTimedOut("id-1", "charge", message="after 30 s"),
    ResultNotKept("id-1", "charge", message="too large"),
    LockTimeout("sweep", 2.5),
    LockLost("sweep", "not renewed in time"),
    LockReentered("sweep"),
]


def public_errors() -> list[type[DrumbeatError]]:
    return [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, DrumbeatError)]


def test_every_concrete_error_has_a_sample_here() -> None:
    leaves = {kind for kind in public_errors() if not kind.__subclasses__()}
    assert leaves | {StoreUnavailable, InvalidArguments} == {type(sample) for sample in SAMPLES}


def test_the_tree_in_the_docstring_names_every_error() -> None:
    assert [kind.__name__ for kind in public_errors() if kind.__name__ not in (errors.__doc__ or "")] == []


@pytest.mark.parametrize("error", SAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_pickle_and_copy(error: DrumbeatError) -> None:
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_an_error_tells_its_facts_as_attributes() -> None:
    error = JobFailed("id-1", "charge", type="ValueError", message="no money", traceback="Traceback ...")
    assert (error.id, error.task, error.type, error.message) == ("id-1", "charge", "ValueError", "no money")
    assert error.traceback == "Traceback ..."
    assert str(error) == "job id-1 (charge) failed: ValueError: no money"


def test_a_failure_without_a_reason_still_reads_well() -> None:
    assert str(JobFailed("id-1", "charge")) == "job id-1 (charge) failed"
    assert str(JobCancelled("id-1", "charge")) == "job id-1 (charge) was cancelled"
    assert str(JobTimedOut("id-1", "charge")) == "job id-1 (charge) timed out"


def test_an_unknown_task_suggests_the_nearest_name() -> None:
    assert "did you mean 'charge'?" in str(UnknownTask("chrage", ["refund", "charge"]))
    assert str(UnknownTask("zzz", ["refund"])) == "no task 'zzz' is registered"


def test_an_old_schema_says_migrate_and_a_new_one_says_upgrade() -> None:
    assert "drumbeat migrate" in str(SchemaOutOfDate(found=1, known=2))
    newer = str(SchemaOutOfDate(found=3, known=2))
    assert "migrate" not in newer
    assert "pip install --upgrade drumbeat" in newer


def test_wrong_context_says_what_to_call_instead() -> None:
    assert str(WrongContext("enqueue()", "enqueue_sync()", loop_runs=False)) == (
        "enqueue() was called where no event loop runs: use enqueue_sync()"
    )
    assert isinstance(WrongContext("a", "b", loop_runs=True), RuntimeError)


def test_store_errors_can_be_caught_together() -> None:
    assert {type(sample) for sample in SAMPLES if isinstance(sample, StoreError)} == {
        StoreUnavailable,
        StoreFull,
        StoreLost,
        SchemaOutOfDate,
        NotTransactional,
        ClaimLost,
        TransactionTooLong,
    }
