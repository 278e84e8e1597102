from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from drumbeat.worker.turns import Turns

WEIGHTS = {"critical": 6, "default": 3, "low": 1}


def claim_from_full_queues(turns: Turns, limit: int) -> Counter[str]:
    shares = turns.divide(limit)
    turns.took(shares, dict(shares))
    return Counter(dict(shares))


def test_one_batch_is_divided_by_weight() -> None:
    assert dict(Turns(WEIGHTS).divide(100)) == {"critical": 60, "default": 30, "low": 10}


def test_weights_hold_over_time_when_jobs_are_claimed_one_by_one() -> None:
    turns = Turns(WEIGHTS)
    total: Counter[str] = Counter()
    for _ in range(1000):
        total += claim_from_full_queues(turns, 1)
    assert total == {"critical": 600, "default": 300, "low": 100}


def test_no_queue_waits_longer_than_its_weight_says() -> None:
    turns = Turns(WEIGHTS)
    order = [next(iter(+claim_from_full_queues(turns, 1))) for _ in range(200)]
    gaps = [later - earlier for earlier, later in zip(places(order, "low"), places(order, "low")[1:], strict=False)]
    assert max(gaps) <= 11


def places(order: list[str], queue: str) -> list[int]:
    return [place for place, name in enumerate(order) if name == queue]


def test_a_claim_of_one_asks_the_queue_whose_turn_it_is_first() -> None:
    turns = Turns(WEIGHTS)
    assert turns.divide(1)[0] == ("critical", 1)


def test_an_idle_queue_saves_nothing_up() -> None:
    turns = Turns(WEIGHTS)
    for _ in range(100):
        turns.took(turns.divide(10), {"critical": 10})
    assert dict(turns.divide(10)) == {"critical": 6, "default": 3, "low": 1}


def test_strict_order_offers_everything_to_the_heaviest_first() -> None:
    assert Turns(WEIGHTS, strict=True).divide(7) == (("critical", 7), ("default", 7), ("low", 7))


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 100), min_size=1),
    st.lists(st.tuples(st.integers(1, 500), st.lists(st.integers(0, 500), min_size=6, max_size=6)), max_size=20),
)
def test_shares_always_add_up_to_the_limit(weights: dict[str, int], claims: list[tuple[int, list[int]]]) -> None:
    turns = Turns(weights)
    for limit, available in claims:
        shares = turns.divide(limit)
        if len(weights) > 1:
            assert sum(share for _, share in shares) == limit
        assert all(share >= 0 for _, share in shares)
        turns.took(shares, {queue: min(share, there) for (queue, share), there in zip(shares, available, strict=False)})


def test_a_queue_that_rests_is_left_out_and_its_share_goes_to_the_others() -> None:
    asleep = {"low"}
    turns = Turns({"high": 3, "low": 3}, rests={"low": lambda: "low" in asleep, "high": lambda: "high" in asleep})
    assert turns.divide(10) == (("high", 10),)
    asleep.add("high")
    assert turns.divide(10) == ()
    asleep.clear()
    assert sorted(turns.divide(10)) == [("high", 5), ("low", 5)]
