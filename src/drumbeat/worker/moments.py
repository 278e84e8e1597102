"""Moments of the store's clock by the local one. Pure: whoever has an answer of the store says what it was and when it asked.

The store looked at its clock some time after it was asked. Of several answers the quickest knows best; where all were slow,
its clock seems to be further on than it is, so that a look may come a little too early, and is repeated, but never late.
"""

TRUSTED_S = 10.0
"""Clocks drift apart: after so long the next answer counts, however slow it was."""
MARGIN_S = 0.0002
"""The way of a question to the store. Earlier by that, every look would be made twice."""


class Moments:
    def __init__(self) -> None:
        self._ahead_us: float | None = None
        self._since = 0.0

    def saw(self, now_us: int, asked_at: float) -> None:
        """The store's clock was at `now_us` after it was asked at this local monotonic moment."""
        ahead_us = now_us - asked_at * 1e6
        if self._ahead_us is None or ahead_us < self._ahead_us or asked_at - self._since > TRUSTED_S:
            self._ahead_us = ahead_us
            self._since = asked_at

    def of(self, moment_us: int, now: float) -> float | None:
        """The local moment at which the store's clock shows this; 0: now. None: nothing is known of its clock."""
        if not moment_us:
            return now
        return None if self._ahead_us is None else (moment_us - self._ahead_us) / 1e6 + MARGIN_S
