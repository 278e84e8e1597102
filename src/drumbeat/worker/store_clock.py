"""Estimate the store's clock from its answers. Pure.

The store reads its clock some time after the call was sent, and some time before its answer arrives. The two classes round to
different sides on purpose: `StoreClock` never shows a time before an answer that has arrived; `StoreClockOffset` makes a poll
come a little too early rather than late. In both, the quickest answer is the most precise.
"""

from collections.abc import Callable

MAX_AGE_SECONDS = 10.0
"""Clocks drift apart: after this time the next answer counts, however slow it was."""
MARGIN_SECONDS = 0.0002
"""The time of a call to reach the store. Without it, every poll would be made twice."""


class StoreClock:
    """A lower bound of the store's clock. Never before an answer that has arrived: no job starts before it was claimed."""

    def __init__(self, local_us: Callable[[], int]) -> None:
        self._local_us = local_us
        self._behind_us = 0
        self._since_us = 0
        self._last_us = 0

    def record_answer(self, now_us: int) -> None:
        """An answer from `now_us` of the store's clock has just arrived."""
        local_us = self._local_us()
        behind_us = local_us - now_us
        if not self._last_us or behind_us < self._behind_us or local_us - self._since_us > MAX_AGE_SECONDS * 1e6:
            self._behind_us = behind_us
            self._since_us = local_us
        self._last_us = max(self._last_us, now_us)

    def now_us(self) -> int:
        now_us = self._local_us() - self._behind_us
        return now_us if now_us > self._last_us else self._last_us  # twice for each job: without a call


class StoreClockOffset:
    """Converts times of the store's clock to local monotonic times."""

    def __init__(self) -> None:
        self._ahead_us: float | None = None
        self._since = 0.0

    def record_answer(self, now_us: int, asked_at: float) -> None:
        """The store answered with `now_us` a call that was sent at this local monotonic time."""
        ahead_us = now_us - asked_at * 1e6
        if self._ahead_us is None or ahead_us < self._ahead_us or asked_at - self._since > MAX_AGE_SECONDS:
            self._ahead_us = ahead_us
            self._since = asked_at

    def to_local(self, store_us: int, now: float) -> float | None:
        """The local time at which the store's clock shows this; 0: now. None: there was no answer yet."""
        if not store_us:
            return now
        return None if self._ahead_us is None else (store_us - self._ahead_us) / 1e6 + MARGIN_SECONDS
