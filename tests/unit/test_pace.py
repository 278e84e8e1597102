from drumbeat.worker.pace import Pace


def test_nothing_is_held_before_anything_was_measured() -> None:
    assert Pace(10, most=1000).ahead == 0


def test_fast_jobs_are_held_for_fifty_milliseconds_of_work() -> None:
    pace = Pace(10, most=1000)
    pace.ran(10_000)
    assert pace.ahead == 50


def test_jobs_slower_than_fifty_milliseconds_are_never_held() -> None:
    pace = Pace(10, most=1000)
    pace.ran(60_000)
    assert pace.ahead == 0


def test_one_slow_run_among_fast_ones_is_noticed_at_once() -> None:
    pace = Pace(10, most=1000)
    for _ in range(1000):
        pace.ran(20)
    assert pace.ahead == 1000
    pace.ran(1_000_000)
    assert pace.ahead == 0


def test_what_is_held_is_bounded() -> None:
    pace = Pace(100, most=1000)
    pace.ran(1)
    assert pace.ahead == 1000


def test_the_jobs_of_a_batch_count_each() -> None:
    pace = Pace(1, most=1000)
    pace.ran(100_000, jobs=100)
    assert pace.ahead == 50
