"""Whether the program traces its jobs, for the path of every job."""

from sys import modules

from drumbeat import tracing
from drumbeat.clock import Clock

CHECK_INTERVAL = 0.1


class TraceCheck:
    """Checked ten times a second: with OpenTelemetry imported but unused, a check costs a tenth of a short job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._is_traced, self._check_at = False, float("-inf")

    def is_traced(self) -> bool:
        if tracing.API not in modules:
            return False
        now = self._clock.monotonic()
        if now >= self._check_at:
            self._is_traced, self._check_at = tracing.get_span_factory() is not None, now + CHECK_INTERVAL
        return self._is_traced
