"""Moments of the store's clock by the local one. Pure: whoever has an answer of the store says what it was and when it asked.

The store looked at its clock some time after it was asked. Of several answers the quickest knows best; where all were slow,
its clock seems to be further on than it is, so that a look may come a little too early, and is repeated, but never late.
"""

MAX_AGE_SECONDS = 10.0
"""Clocks drift apart: after so long the next answer counts, however slow it was."""
MARGIN_SECONDS = 0.0002
"""The way of a question to the store. Earlier by that, every look would be made twice."""


class StoreClock:
    """The store's clock, as it must be at least: it has moved on since each answer. The quickest answer knows it best.

    What it shows is never before an answer that was heard: no job is seen to start before it was claimed.
    """

    def __init__(self) -> None:
        self._behind_us = 0
        self._since_us = 0
        self._last_us = 0

    def record_answer(self, now_us: int, local_us: int) -> None:
        """An answer that was given at `now_us` by the store's clock has arrived at this local moment."""
        behind_us = local_us - now_us
        if not self._last_us or behind_us < self._behind_us or local_us - self._since_us > MAX_AGE_SECONDS * 1e6:
            self._behind_us = behind_us
            self._since_us = local_us
        self._last_us = max(self._last_us, now_us)

    def now_us(self, local_us: int) -> int:
        return max(local_us - self._behind_us, self._last_us)


class StoreClockOffset:
    def __init__(self) -> None:
        self._ahead_us: float | None = None
        self._since = 0.0

    def record_answer(self, now_us: int, asked_at: float) -> None:
        """The store's clock was at `now_us` after it was asked at this local monotonic moment."""
        ahead_us = now_us - asked_at * 1e6
        if self._ahead_us is None or ahead_us < self._ahead_us or asked_at - self._since > MAX_AGE_SECONDS:
            self._ahead_us = ahead_us
            self._since = asked_at

    def to_local(self, moment_us: int, now: float) -> float | None:
        """The local moment at which the store's clock shows this; 0: now. None: nothing is known of its clock."""
        if not moment_us:
            return now
        return None if self._ahead_us is None else (moment_us - self._ahead_us) / 1e6 + MARGIN_SECONDS
