import msgspec
import pytest

from drumbeat.context import Aborted, AbortReason
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.follow_up import SUCCESS_SIGNATURE, SuccessPayload
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, new_job_id
from drumbeat.retry import RETRY_ALL, Backoff, RetryFilter, RetryLater, SkipRetry, Snooze
from drumbeat.worker.result import (
    MAX_CHAIN,
    HandlerResult,
    ResultKind,
    describe_failure,
    from_exception,
    from_timeout,
    to_outcome,
)
from tests.apps import rude

ME = InstanceId("me")


class TwoRetries:
    retries = 2
    backoff = Backoff(base=1, cap=30)
    retry_filter = RETRY_ALL
    on_success: str | None = None


class OnlyConnections(TwoRetries):
    retry_filter = RetryFilter(retry_on=(ConnectionError,))


def claimed(**changes: object) -> ClaimedJob:
    fields: dict[str, object] = {
        "id": new_job_id(), "token": 5, "task": "t", "queue": "q", "priority": 5, "key": None, "args": "{}",
        "signature": "s", "created_at": 1, "due_at": 2, "run_at": 3, "failures": 0, "crashes": 0, "retries": None,
        "timeout": None, "crash_limit": 3, "on_dead": None, "replays": 0, "blocked_since": None,
    }  # fmt: skip
    return ClaimedJob(**(fields | changes))  # type: ignore[arg-type]


def judged(job: ClaimedJob, ending: HandlerResult) -> Outcome:
    outcome = to_outcome(job, TwoRetries(), ending, instance=ME, started_at=10, finished_at=20)
    assert outcome is not None
    return outcome


def test_two_retries_mean_three_charged_runs() -> None:
    ending = from_exception(ValueError("no"))
    kinds = [judged(claimed(failures=failures), ending).kind for failures in range(3)]
    assert kinds == [OutcomeKind.RETRY, OutcomeKind.RETRY, OutcomeKind.DEAD]


def test_causes_are_described_unless_there_are_very_many() -> None:
    error = ValueError("the last")
    for number in range(MAX_CHAIN + 1):
        if number == MAX_CHAIN:
            assert "ValueError: cause 0" in describe_failure(error).traceback
        cause, error = error, ValueError(f"cause {number}")
        error.__cause__ = cause
    assert "ValueError: cause 49" not in describe_failure(error).traceback


def test_the_retries_of_the_job_go_before_those_of_the_task() -> None:
    assert judged(claimed(retries=0), from_exception(ValueError())).kind is OutcomeKind.DEAD


def test_the_delay_grows_with_each_failure_and_stays_below_the_cap() -> None:
    for failures in range(2):
        delays = [judged(claimed(failures=failures), from_exception(ValueError())).delay for _ in range(200)]
        assert min(delays) >= 0 and max(delays) <= 2 ** (failures + 1) * 1_000_000
        assert max(delays) > 2**failures * 1_000_000


def test_retry_later_chooses_the_delay_and_is_charged() -> None:
    outcome = judged(claimed(), from_exception(RetryLater(7)))
    assert (outcome.kind, outcome.delay) == (OutcomeKind.RETRY, 7_000_000)
    assert judged(claimed(failures=2), from_exception(RetryLater(7))).kind is OutcomeKind.DEAD


def test_snooze_is_not_charged_however_many_failures_there_were() -> None:
    outcome = judged(claimed(failures=99), from_exception(Snooze(7)))
    assert (outcome.kind, outcome.delay) == (OutcomeKind.SNOOZED, 7_000_000)


def test_skip_retry_is_dead_at_once_and_keeps_its_message() -> None:
    outcome = judged(claimed(), from_exception(SkipRetry("no such customer")))
    assert outcome.kind is OutcomeKind.DEAD
    assert outcome.error is not None and outcome.error.message == "no such customer"


def test_an_exception_that_is_not_retried_is_dead_at_once_and_keeps_its_error() -> None:
    ending = from_exception(ValueError("no such customer"), None, OnlyConnections.retry_filter)
    outcome = judged(claimed(on_dead="t.on_dead"), ending)
    assert outcome.kind is OutcomeKind.DEAD and outcome.follow_up is not None
    assert outcome.error is not None and (outcome.error.type, outcome.error.message) == (
        "ValueError",
        "no such customer",
    )
    assert from_exception(ConnectionError(), None, OnlyConnections.retry_filter).kind is ResultKind.RAISED
    # Signals decide for themselves.
    assert from_exception(RetryLater(1), None, OnlyConnections.retry_filter).kind is ResultKind.RETRY_LATER
    assert from_exception(Snooze(1), None, OnlyConnections.retry_filter).kind is ResultKind.SNOOZED


def test_a_timeout_is_retried_if_timeout_errors_are() -> None:
    late = from_timeout(1)
    outcomes = [
        to_outcome(claimed(), policy, late, instance=ME, started_at=10, finished_at=20)
        for policy in (TwoRetries(), OnlyConnections())
    ]
    assert [outcome and outcome.kind for outcome in outcomes] == [OutcomeKind.RETRY, OutcomeKind.DEAD]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        (AbortReason.CANCELLED, OutcomeKind.CANCELLED),
        (AbortReason.DRAINING, OutcomeKind.RELEASED),
        (AbortReason.TIMED_OUT, OutcomeKind.RETRY),
    ],
)
def test_an_aborted_run_ends_as_its_reason_asks(reason: AbortReason, kind: OutcomeKind) -> None:
    assert judged(claimed(), from_exception(Aborted(reason), reason)).kind is kind


def test_a_lost_lease_leaves_nothing_to_say() -> None:
    ending = from_exception(Aborted(AbortReason.LEASE_LOST), AbortReason.LEASE_LOST)
    assert to_outcome(claimed(), TwoRetries(), ending, instance=ME, started_at=1, finished_at=2) is None


def test_a_death_brings_its_follow_up() -> None:
    outcome = judged(claimed(on_dead="t.on_dead", failures=2), from_exception(ValueError("no")))
    assert outcome.follow_up is not None and outcome.follow_up.task == "t.on_dead"
    assert judged(claimed(on_dead="t.on_dead"), from_exception(ValueError("no"))).follow_up is None


def test_a_success_brings_its_follow_up_with_the_record_and_the_result() -> None:
    class Followed(TwoRetries):
        on_success: str | None = "t.on_success"

    ending = HandlerResult(kind=ResultKind.RETURNED, result="[1]")
    outcome = to_outcome(claimed(key="k"), Followed(), ending, instance=ME, started_at=10, finished_at=20)
    assert outcome is not None and outcome.follow_up is not None
    follow_up = outcome.follow_up
    assert (follow_up.task, follow_up.queue, follow_up.signature) == ("t.on_success", "q", SUCCESS_SIGNATURE)
    job = msgspec.json.decode(follow_up.args, type=SuccessPayload).job
    assert (job.id, job.state, job.key, job.result, job.instance) == (outcome.id, "succeeded", "k", "[1]", ME)
    failed = to_outcome(claimed(), Followed(), from_exception(OSError()), instance=ME, started_at=10, finished_at=20)
    assert failed is not None and failed.follow_up is None


def test_the_last_crash_brings_the_follow_up() -> None:
    crash = HandlerResult(kind=ResultKind.CRASHED)
    assert judged(claimed(on_dead="t.on_dead", crashes=1), crash).follow_up is None
    assert judged(claimed(on_dead="t.on_dead", crashes=2), crash).follow_up is not None


def test_a_failure_is_storable_text_whatever_the_exception_does() -> None:
    class Nasty(Exception):
        def __str__(self) -> str:
            raise RuntimeError("not even this")

    assert "raised RuntimeError" in describe_failure(Nasty()).message
    told = describe_failure(ValueError("a\0b\ud800" * 10_000))
    for part in (told.type, told.message, told.traceback):
        assert "\0" not in part and part.encode("utf-8")
    assert len(told.message) < 10_000


def test_a_traceback_shows_lines_but_no_locals() -> None:
    def handler() -> None:
        password = "hunter2"
        raise ValueError(len(password))

    try:
        handler()
    except ValueError as error:
        told = describe_failure(error)
    assert "in handler" in told.traceback
    assert "hunter2" not in told.message


@pytest.mark.parametrize("kind", rude.RAISES)
def test_every_exception_becomes_a_failure_that_can_be_read_and_stored(kind: str) -> None:
    try:
        rude.RAISES[kind]()
    except BaseException as error:
        ending = from_exception(error)
        told = describe_failure(error)
    for part in (told.type, told.message, told.traceback):
        assert type(part) is str and "\0" not in part and part.encode("utf-8") is not None
    assert told.type and told.traceback
    outcome = judged(claimed(retries=0), ending)
    assert outcome.kind is OutcomeKind.DEAD


def test_a_signal_in_a_group_of_one_is_still_meant() -> None:
    ending = from_exception(ExceptionGroup("a task group", [ExceptionGroup("another", [Snooze(5)])]))
    assert (ending.kind, ending.delay) == (ResultKind.SNOOZED, 5_000_000)
    assert from_exception(ExceptionGroup("two", [Snooze(5), ValueError()])).kind is ResultKind.RAISED


def test_an_abort_that_was_not_requested_is_a_failure() -> None:
    assert from_exception(Aborted(AbortReason.LEASE_LOST)).kind is ResultKind.RAISED
    ending = from_exception(Aborted(AbortReason.LEASE_LOST), AbortReason.DRAINING)
    assert ending.reason is AbortReason.DRAINING
