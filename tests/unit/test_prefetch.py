from drumbeat.worker.prefetch import Prefetch


def test_nothing_is_held_before_anything_was_measured() -> None:
    assert Prefetch(10, max_jobs=1000).limit == 0


def test_fast_jobs_are_held_for_fifty_milliseconds_of_work() -> None:
    pace = Prefetch(10, max_jobs=1000)
    pace.record_run(10_000)
    assert pace.limit == 50


def test_jobs_slower_than_fifty_milliseconds_are_never_held() -> None:
    pace = Prefetch(10, max_jobs=1000)
    pace.record_run(60_000)
    assert pace.limit == 0


def test_one_slow_run_among_fast_ones_is_noticed_at_once() -> None:
    pace = Prefetch(10, max_jobs=1000)
    for _ in range(1000):
        pace.record_run(20)
    assert pace.limit == 1000
    pace.record_run(1_000_000)
    assert pace.limit == 0


def test_what_is_held_is_bounded() -> None:
    pace = Prefetch(100, max_jobs=1000)
    pace.record_run(1)
    assert pace.limit == 1000


def test_the_jobs_of_a_batch_count_each() -> None:
    pace = Prefetch(1, max_jobs=1000)
    pace.record_run(100_000, jobs=100)
    assert pace.limit == 50
