"""How many jobs a worker may prefetch: as many as its slots start within 50 ms, by recent run times. Pure.

So slow jobs are never held back from idle workers, and fast ones never wait for a round trip.
"""

PREFETCH_WINDOW_US = 50_000
EWMA_WEIGHT = 0.1  # of each new measurement in the moving average


class Prefetch:
    def __init__(self, concurrency: int, max_jobs: int) -> None:
        self.concurrency = concurrency
        self._max_jobs = max_jobs
        self._run_us: float | None = None
        self._new_us = 0
        self._new_jobs = 0

    def record_run(self, took_us: int, jobs: int = 1) -> None:
        """A handler call for `jobs` jobs has ended."""
        self._new_us += took_us
        self._new_jobs += jobs
        # A slow run counts at once and fully: prefetched jobs wait behind it. Fast runs are averaged.
        if took_us > PREFETCH_WINDOW_US * jobs:
            self._new_us, self._new_jobs = 0, 0
            self._run_us = max(self._run_us or 0.0, took_us / jobs)

    @property
    def limit(self) -> int:
        """How many jobs to hold beyond those that run."""
        if self._new_jobs:
            each = max(1.0, self._new_us / self._new_jobs)
            weight = 1.0 if self._run_us is None else min(1.0, EWMA_WEIGHT * self._new_jobs)
            self._run_us = each if self._run_us is None else self._run_us + weight * (each - self._run_us)
            self._new_us = self._new_jobs = 0
        if self._run_us is None or self._run_us > PREFETCH_WINDOW_US:
            return 0
        return min(self._max_jobs, int(PREFETCH_WINDOW_US / self._run_us * self.concurrency))
