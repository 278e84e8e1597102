"""What is measured after a kill, and what is left out of it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat.core.job import Attempt, OutcomeKind
from tests.chaos.journal import Entry
from tests.chaos.recovery import measure_recovery
from tests.chaos.timelines import WallClock, find_lost_runs, trace

WALL = 1_000.0
"""What the store's clock shows when the monotonic one shows 0."""


def entry(at: float, event: str, pid: int = 1, **facts: Any) -> Entry:
    return Entry(ns=round(at * 1e9), node="worker-1.1", pid=pid, parent=0, event=event, facts=facts)


def started(at: float, run: int, *, pid: int = 1) -> Entry:
    token = round((WALL + at - 0.2) * 1e6)
    return entry(at, "started", pid, run=run, job="a", token=token, task="slow", due=0.0, late=0.0)


def killed(at: float, *pids: int) -> Entry:
    return entry(at, "killed", 0, pids=list(pids), leader=False, what="worker", wall=WALL + at)


def attempt(of: Entry, ended_at: float, outcome: OutcomeKind) -> Attempt:
    ended = datetime.fromtimestamp(WALL + ended_at, UTC)
    return Attempt(token=of.facts["token"], instance=None, outcome=outcome, started_at=None, finished_at=ended)


CLOCK = entry(0.0, "clock", wall=WALL)


def test_a_run_that_ended_or_that_nobody_killed_is_not_lost() -> None:
    runs = [started(1.0, 1), started(1.0, 2), started(1.0, 3, pid=2)]
    entries = [*runs, entry(1.5, "ended", run=1, result=None), killed(2.0, 1), killed(3.0, 1)]
    assert [(run.facts["run"], kill.at) for run, kill in find_lost_runs(entries)] == [(2, 2.0)]


def test_a_timeline_says_what_the_time_was_spent_on() -> None:
    first, put_off, again = started(1.0, 1), started(13.2, 2), started(15.0, 3, pid=2)
    attempts = [attempt(first, 12.5, OutcomeKind.CRASHED), attempt(put_off, 13.1, OutcomeKind.SNOOZED)]
    line = trace(first, killed(2.0, 1), again, attempts, WallClock([CLOCK]))
    assert (line.seconds, line.put_off, line.lost_again) == (13.0, 1, 0)
    assert (line.noticed_at, line.claimed_at, line.last_claimed_at) == pytest.approx((12.5, 13.0, 14.8))
    found = measure_recovery([CLOCK], [line])["worker killed"]
    assert found["clean"]["max"] == 13.0
    assert [found["parts"][name]["max"] for name in ("noticed", "claimed", "put off", "begun")] == [10.5, 0.5, 1.8, 0.2]


@pytest.mark.parametrize(("start", "end", "is_clean"), [(3.0, 4.0, False), (0.2, 0.9, True), (15.1, 16.0, True)])
def test_a_fault_of_the_store_in_between_is_no_clean_recovery(start: float, end: float, is_clean: bool) -> None:
    line = trace(started(1.0, 1), killed(2.0, 1), started(15.0, 3, pid=2), [], WallClock([CLOCK]))
    outage = Entry(round(end * 1e9), "harness", 0, 0, "fault", {"kind": "hang", "node": None, "start": start})
    found = measure_recovery([CLOCK, outage], [line])["worker killed"]
    assert (found["all"]["count"], found["clean"]["count"]) == (1, int(is_clean))


def test_a_job_that_was_lost_again_is_no_clean_recovery() -> None:
    first, second = started(1.0, 1), started(12.0, 2, pid=3)
    attempts = [attempt(first, 11.5, OutcomeKind.CRASHED), attempt(second, 22.0, OutcomeKind.CRASHED)]
    line = trace(first, killed(2.0, 1), started(25.0, 3, pid=2), attempts, WallClock([CLOCK]))
    found = measure_recovery([CLOCK], [line])["worker killed"]
    assert (found["all"]["max"], found["clean"]["count"]) == (23.0, 0)


def test_a_stepped_clock_is_read_as_it_was() -> None:
    clock = WallClock([CLOCK, entry(10.0, "stepped", seconds=-5.0), entry(20.0, "stepped", seconds=100.0)])
    assert clock.to_monotonic(WALL + 9.0, 0.0) == 9.0
    assert clock.to_monotonic(WALL + 9.0, 9.5) == 14.0
    assert clock.to_monotonic(WALL + 116.0, 9.5) == 21.0
    assert clock.to_monotonic(WALL + 50.0, 0.0) is None
