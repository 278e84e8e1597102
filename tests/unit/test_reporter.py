"""The outbox of a worker keeps what the store has not accepted."""

from drumbeat.clock import FakeClock
from drumbeat.core.claim import Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.events import Events
from drumbeat.ids import new_job_id
from drumbeat.worker.reporter import OutcomeReporter
from drumbeat.worker.stats_recorder import StatsRecorder


def test_what_was_not_accepted_is_reported_again_first_or_last() -> None:
    clock = FakeClock()
    reporter = OutcomeReporter(clock, Events(), StatsRecorder(clock.now_us), lambda: None)
    first, second, too_large, again = (Outcome(id=new_job_id(), token=1, kind=OutcomeKind.SUCCEEDED) for _ in range(4))
    reporter.restore([first, second])
    reporter.restore([too_large], at_end=True)
    reporter.restore([again])
    assert reporter.take(10) == [again, first, second, too_large]
    assert len(reporter) == 0
