"""How much a worker may hold in its hands: what its slots start within 50 ms, by the run times just measured. Pure.

Slow jobs are never held back beside idle workers elsewhere; fast ones never wait for a round trip.
"""

WITHIN_US = 50_000
WEIGHT = 0.1  # of each new measurement in the moving average


class Pace:
    def __init__(self, concurrency: int, most: int) -> None:
        self._concurrency = concurrency
        self._most = most
        self._run_us: float | None = None

    def ran(self, took_us: int, jobs: int = 1) -> None:
        """A handler ended; `jobs` were done by one call."""
        each = max(1.0, took_us / jobs)
        if self._run_us is None:
            self._run_us = each
        else:
            # A slow run counts at once, because what is held behind it waits; fast ones must prove themselves.
            weight = WEIGHT if each < self._run_us or each < WITHIN_US else 0.5
            self._run_us += weight * (each - self._run_us)

    @property
    def ahead(self) -> int:
        """How many jobs to hold beyond those that run."""
        if self._run_us is None or self._run_us > WITHIN_US:
            return 0
        return min(self._most, int(WITHIN_US / self._run_us * self._concurrency))
