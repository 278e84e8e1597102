"""Percentiles of histograms: near the truth by one bucket, and honest about nothing."""

from hypothesis import given
from hypothesis import strategies as st

from drumbeat.core.stats import BOUNDS_US, BUCKETS, bucket_index
from drumbeat.web.pages.percentiles import merge_histograms, percentiles


def histogram(values: list[int]) -> list[int]:
    buckets = [0] * BUCKETS
    for value in values:
        buckets[bucket_index(value)] += 1
    return buckets


def test_no_histogram_and_an_empty_one_have_no_percentiles() -> None:
    for found in (percentiles([[0] * BUCKETS]), percentiles([])):
        assert (found.count, found.p50, found.p95, found.p99) == (0, None, None, None)


def test_ninety_quick_and_ten_slow_ones_are_told_apart() -> None:
    found = percentiles([histogram([3_000] * 90), histogram([900_000] * 10)])
    assert found.count == 100
    assert found.p50 is not None and 0.002 < found.p50 <= 0.004
    assert found.p95 is not None and 0.512 < found.p95 <= 1.024
    assert found.p99 is not None and found.p95 < found.p99 <= 1.024


def test_what_lies_beyond_the_last_bound_counts_as_the_last_bound() -> None:
    assert percentiles([histogram([BOUNDS_US[-1] * 5] * 3)]).p50 == BOUNDS_US[-1] / 1e6


@given(st.lists(st.integers(1, BOUNDS_US[-1]), min_size=1, max_size=200))
def test_the_median_is_in_the_bucket_of_the_true_one(values: list[int]) -> None:
    true = bucket_index(sorted(values)[-(-len(values) // 2) - 1])
    found = percentiles([histogram(values)]).p50
    assert found is not None
    assert (BOUNDS_US[true - 1] if true else 0) <= found * 1e6 * 1.000001 <= BOUNDS_US[true] * 1.00001


@given(st.lists(st.integers(1, BOUNDS_US[-1] * 2), min_size=1, max_size=100))
def test_higher_percentiles_are_not_lower(values: list[int]) -> None:
    found = percentiles([histogram(values)])
    assert found.p50 is not None and found.p95 is not None and found.p99 is not None
    assert found.p50 <= found.p95 <= found.p99


def test_histograms_are_merged_place_by_place() -> None:
    assert merge_histograms([(1, 2, 0), (1, 2, 3)]) == (2, 4, 3)
