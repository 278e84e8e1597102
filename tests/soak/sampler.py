"""What a process takes of the machine, and what is noise in each kind of series."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.soak.flatness import MIN_SAMPLES, Sample, SeriesVerdict, Tolerance, judge

MIB = float(1 << 20)
TOLERANCES = {
    "rss": Tolerance(floor=2 * MIB, share=0.03),
    # A child process has three pipes, and a pool of connections is filled on demand: two or three more are no leak.
    "descriptors": Tolerance(floor=8, share=0.05, is_reset_by_restarts=True),
    "threads": Tolerance(floor=10, share=0.05, is_reset_by_restarts=True),  # a pool of `concurrency`, filled on demand
    "children": Tolerance(floor=2, share=0.0),
    "connections": Tolerance(floor=8, share=0.05, is_reset_by_restarts=True),
    # A log is as long as it may be before a checkpoint or a rewrite; PostgreSQL's grows by segments of 16 MiB.
    "wal bytes": Tolerance(floor=16 * MIB, share=0.15),
    "aof bytes": Tolerance(floor=4 * MIB, share=0.15),
    "bytes": Tolerance(floor=1 * MIB, share=0.15),
    "dead tuples": Tolerance(floor=1_000, share=0.3),
    "rows": Tolerance(floor=100, share=0.2),
    "members": Tolerance(floor=100, share=0.2),
    "keys": Tolerance(floor=20, share=0.1),
}


def measure_process(pid: int, descendants: Iterable[int] = ()) -> dict[str, float]:
    """Raises OSError if it is gone."""
    children = list(descendants)
    status = read_status(pid)
    found = {
        "rss": read_rss(status),
        "descriptors": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
        "threads": float(status["Threads"]),
        "children": float(len(children)),
    }
    sizes = []
    for child in children:
        with suppress(OSError):
            sizes.append(read_rss(read_status(child)))
    return found | ({"largest child's rss": max(sizes)} if sizes else {})


def read_status(pid: int) -> dict[str, str]:
    return dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())


def read_rss(status: Mapping[str, str]) -> float:
    if "VmRSS" not in status:
        raise ProcessLookupError("No such process: it has ended and nobody has waited for it")
    return int(status["VmRSS"].split()[0]) * 1_024.0


def find_tolerance(series: str) -> Tolerance:
    """By the word in a series' name: `worker-1 rss`, `rows of history`, `wal bytes`."""
    return next(tolerance for word, tolerance in TOLERANCES.items() if word in series)


class SeriesSet:
    """Series that are sampled together. With `absent_is_zero` a value that a sample lacks is zero: keys that come later."""

    def __init__(self, *, absent_is_zero: bool = False) -> None:
        self._samples: list[tuple[float, Mapping[str, float]]] = []
        self._absent_is_zero = absent_is_zero

    def add(self, at: float, values: Mapping[str, float]) -> None:
        self._samples.append((at, values))

    def list_samples(self, name: str) -> list[Sample]:
        return [(at, values.get(name, 0.0)) for at, values in self._samples if self._absent_is_zero or name in values]

    def judge_all(self, restarts: Sequence[float] = ()) -> dict[str, SeriesVerdict]:
        names = sorted({name for _, values in self._samples for name in values})
        listed = {name: self.list_samples(name) for name in names}
        # A child that comes and goes has few samples.
        return {
            name: judge(samples, find_tolerance(name), restarts)
            for name, samples in listed.items()
            if len(samples) >= MIN_SAMPLES
        }
