from collections import Counter
from collections.abc import Sequence
from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumbeat.worker.queue_weights import QueueWeights

WEIGHTS = {"critical": 6, "default": 3, "low": 1}
PLENTY = 10**6


def claim_from_full_queues(turns: QueueWeights, limit: int) -> Counter[str]:
    shares = turns.divide(limit)
    counts = take(Counter(dict.fromkeys(turns.queues, PLENTY)), shares, limit)
    turns.record_claim(shares, counts, limit)
    return counts


def test_one_batch_is_divided_by_weight() -> None:
    assert dict(QueueWeights(WEIGHTS).divide(100)) == {"critical": 60, "default": 30, "low": 10}


def test_weights_hold_over_time_when_jobs_are_claimed_one_by_one() -> None:
    turns = QueueWeights(WEIGHTS)
    total: Counter[str] = Counter()
    for _ in range(1000):
        total += claim_from_full_queues(turns, 1)
    assert total == {"critical": 600, "default": 300, "low": 100}


def test_no_queue_waits_longer_than_its_weight_says() -> None:
    turns = QueueWeights(WEIGHTS)
    order = [next(iter(+claim_from_full_queues(turns, 1))) for _ in range(200)]
    gaps = [later - earlier for earlier, later in zip(places(order, "low"), places(order, "low")[1:], strict=False)]
    assert max(gaps) <= 11


def places(order: list[str], queue: str) -> list[int]:
    return [place for place, name in enumerate(order) if name == queue]


def test_a_claim_of_one_asks_the_queue_whose_turn_it_is_first() -> None:
    turns = QueueWeights(WEIGHTS)
    assert turns.divide(1)[0] == ("critical", 1)


def test_an_idle_queue_saves_nothing_up() -> None:
    turns = QueueWeights(WEIGHTS)
    for _ in range(100):
        turns.record_claim(turns.divide(10), {"critical": 10}, 10)
    order = [next(iter(+claim_from_full_queues(turns, 1))) for _ in range(10)]
    assert Counter(order) == {"critical": 6, "default": 3, "low": 1}


def test_strict_order_offers_everything_to_the_heaviest_first() -> None:
    assert QueueWeights(WEIGHTS, strict=True).divide(7) == (("critical", 7), ("default", 7), ("low", 7))


def take(jobs: Counter[str], shares: Sequence[tuple[str, int]], limit: int) -> Counter[str]:
    """As every store does it: shares first, then what is left of the limit, both in the order of turns."""
    taken: Counter[str] = Counter()
    for bound in (dict(shares), {queue: limit for queue, _ in shares}):
        for queue, _ in shares:
            count = min(bound[queue], jobs[queue] - taken[queue], limit - taken.total())
            taken[queue] += max(0, count)
    jobs.subtract(taken)
    return taken


@pytest.mark.parametrize(("weights", "limit"), [({"a": 3, "b": 1}, 10), ({"a": 1, "b": 1}, 10), ({"a": 3, "b": 1}, 1)])
def test_shares_hold_while_a_heavier_queue_is_empty(weights: dict[str, int], limit: int) -> None:
    turns = QueueWeights(weights | {"empty": 6})
    taken: Counter[str] = Counter()
    jobs = Counter({"a": 10_000, "b": 10_000, "empty": 0})
    for _ in range(400):
        shares = turns.divide(limit)
        counts = take(jobs, shares, limit)
        turns.record_claim(shares, counts, limit)
        taken += counts
    assert abs(taken["a"] / weights["a"] - taken["b"] / weights["b"]) <= 1


def test_queues_that_have_been_empty_are_served_within_a_turn_of_their_first_job() -> None:
    turns = QueueWeights(WEIGHTS | {"lower": 1})
    jobs = Counter({"critical": 1000, "default": 0, "low": 0, "lower": 0})
    served = []
    for round in range(40):
        if round == 20:
            jobs["low"] = jobs["lower"] = 1
        shares = turns.divide(1)
        counts = take(jobs, shares, 1)
        turns.record_claim(shares, counts, 1)
        served += [queue for queue, count in counts.items() if count]
    assert {"low", "lower"} <= set(served[20:23])


QUEUES = "abcd"


@given(
    st.lists(st.sampled_from([1, 1, 2, 3, 6, 100]), min_size=2, max_size=4),
    st.sampled_from([1, 3, 10, 50]),
    st.lists(
        st.tuples(st.integers(1, 40), st.lists(st.sampled_from([0, 0, 1, 7, PLENTY, PLENTY]), min_size=4, max_size=4)),
        min_size=1,
        max_size=5,
    ),
    st.randoms(use_true_random=False),
)
def test_while_two_queues_have_jobs_their_shares_follow_their_weights(
    weights: list[int], most: int, regimes: list[tuple[int, list[int]]], random: Random
) -> None:
    """Over any period, within one claim: it may begin with one of them a claim behind, and end with it a claim ahead."""
    named = dict(zip(QUEUES, weights, strict=False))
    turns = QueueWeights(named)
    jobs = Counter(dict.fromkeys(named, 0))
    history: list[tuple[Counter[str], set[str]]] = []
    for come in [come for length, come in regimes for _ in range(length)]:
        limit = random.randint(1, most)
        jobs |= Counter(
            {queue: count for queue, count in zip(named, come, strict=False) if count != 7 or random.random() < 0.5}
        )
        shares = turns.divide(limit)
        if random.random() < 0.05:  # the claim is not answered
            turns.record_claim(shares, {}, 0)
            continue
        counts = take(jobs, shares, limit)
        assert counts.total() <= limit
        turns.record_claim(shares, counts, limit)
        history.append((counts, {queue for queue, left in jobs.items() if left > 0}))
    for one, other in combinations(named, 2):
        light = min(named[one], named[other])
        ahead, lead = [0.0], 0.0
        for counts, backlogged in history:
            lead += counts[one] / named[one] - counts[other] / named[other]
            ahead = [*ahead, lead] if {one, other} <= backlogged else [lead]
            assert max(ahead) - min(ahead) <= 2 * (most + 1) / light


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 1000), min_size=2),
    st.lists(st.tuples(st.integers(1, 500), st.lists(st.integers(0, 500), min_size=6, max_size=6)), max_size=20),
)
def test_no_claim_is_left_unfilled_while_a_queue_has_jobs(
    weights: dict[str, int], claims: list[tuple[int, list[int]]]
) -> None:
    turns = QueueWeights(weights)
    for limit, available in claims:
        shares = turns.divide(limit)
        jobs = Counter(dict(zip(weights, available, strict=False)))
        assert sorted(queue for queue, _ in shares) == sorted(weights)
        assert sum(share for _, share in shares) >= limit and all(0 <= share <= limit for _, share in shares)
        there = jobs.total()
        counts = take(jobs, shares, limit)
        assert counts.total() == min(limit, there)
        turns.record_claim(shares, counts, limit)


def test_a_queue_that_rests_is_left_out_and_its_share_goes_to_the_others() -> None:
    asleep = {"low"}
    turns = QueueWeights(
        {"high": 3, "low": 3}, rests={"low": lambda: "low" in asleep, "high": lambda: "high" in asleep}
    )
    assert turns.divide(10) == (("high", 10),)
    asleep.add("high")
    assert turns.divide(10) == ()
    asleep.clear()
    assert sorted(turns.divide(10)) == [("high", 5), ("low", 5)]
