"""What the journal explains need not be in the store any more; what it does not explain must be."""

from typing import Any

from tests.chaos.journal import Entry
from tests.proof.history import AttemptRecord, JobRecord
from tests.soak.proof import check_jobs, summarise


def entry(event: str, **facts: Any) -> Entry:
    return Entry(ns=0, node="load.1", pid=1, parent=1, event=event, facts=facts)


def asked(*ids: str) -> list[Entry]:
    return [entry("asks", ids=ids), entry("acknowledged", ids=ids, existing=ids)]


def job(id: str, state: str = "succeeded") -> JobRecord:
    outcome = AttemptRecord(token=1, outcome=state, started=True)
    return JobRecord(id=id, task="quick", state=state, failures=0, crashes=0, attempts=(outcome,))


def check(entries: list[Entry], *jobs: JobRecord) -> list[str]:
    return check_jobs(lambda: entries, summarise(entries), jobs)


def test_a_job_that_ended_was_cancelled_or_discarded_may_be_gone() -> None:
    ends = [entry("ended", job="a"), entry("cancels", job="b"), entry("discards", ids=["c"])]
    assert check([*asked("a", "b", "c"), *ends]) == []


def test_a_job_may_end_before_its_producer_hears_of_it() -> None:
    asks, acknowledged = asked("a")
    assert check([asks, entry("ended", job="a"), acknowledged]) == []


def test_a_job_that_the_store_still_has_is_not_lost() -> None:
    assert check(asked("a"), job("a")) == []


def test_a_job_that_is_nowhere_is_lost() -> None:
    assert check([*asked("a", "b"), entry("ended", job="a")]) == ["J1: b was acknowledged and is gone"]


def test_a_job_that_found_another_with_its_key_is_none() -> None:
    entries = [entry("asks", ids=["a"]), entry("acknowledged", ids=["a"], existing=["b"])]
    assert check(entries) == []


def test_a_job_that_nobody_asked_for_is_a_phantom() -> None:
    assert check(asked("a"), job("a"), job("b")) == ["J2: nobody enqueued b"]


def test_a_job_that_is_still_pending_is_stuck() -> None:
    assert check(asked("a"), job("a", "pending")) == ["J16: a (quick) is still pending at the end"]
