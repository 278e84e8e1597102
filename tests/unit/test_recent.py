"""Answers that are dear are told again for a while; for longer while nothing moves."""

from drumbeat.clock import FakeClock
from drumbeat.store.cached_count import CachedCount


class Store:
    """Counts on request: so much, in so many seconds."""

    def __init__(self, clock: FakeClock, number: int, takes: float) -> None:
        self._clock = clock
        self.number = number
        self.takes = takes
        self.asked = 0

    async def count(self) -> int:
        self.asked += 1
        await self._clock.advance(self.takes)
        return self.number


async def waits(recent: CachedCount[int], clock: FakeClock, store: Store) -> float:
    """Seconds until the store is asked again."""
    before, began = store.asked, clock.monotonic()
    while True:
        asked_at = clock.monotonic()
        await recent.get(store.count)
        if store.asked > before:
            return asked_at - began
        await clock.advance(0.25)


def counting(number: int, takes: float) -> tuple[CachedCount[int], FakeClock, Store]:
    clock = FakeClock()
    return CachedCount(clock, lambda counted: counted), clock, Store(clock, number, takes)


async def test_what_is_cheap_is_asked_for_each_time() -> None:
    for number, takes in ((CachedCount.MIN_CACHED_SIZE, 0.01), (CachedCount.MIN_CACHED_SIZE - 1, 3.0)):
        recent, clock, store = counting(number, takes)
        assert [await waits(recent, clock, store) for _ in range(3)] == [0.0] * 3


async def test_what_is_dear_and_moves_is_told_again_for_forty_times_as_long_and_ten_seconds_at_most() -> None:
    for takes, longest in ((0.125, 5.0), (3.0, 10.0)):
        recent, clock, store = counting(CachedCount.MIN_CACHED_SIZE, takes)
        for _ in range(4):
            await waits(recent, clock, store)
            store.number += 1
        assert await waits(recent, clock, store) == longest


async def test_the_same_answer_again_is_trusted_for_longer_until_something_moves() -> None:
    recent, clock, store = counting(CachedCount.MIN_CACHED_SIZE, 0.125)
    seen = [await waits(recent, clock, store) for _ in range(7)]
    assert seen == [0.0, 5.0, 60.0, 60.0, 60.0, 60.0, 60.0]
    store.number += 1
    assert await waits(recent, clock, store) == 60.0
    assert await waits(recent, clock, store) == 5.0
