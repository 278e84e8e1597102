"""Metrics in the text format of Prometheus (0.0.4). Pure: the caller provides the sample.

Counters and histograms are totals of all workers, including former ones, so they only grow; gauges are current. Names are
documented in docs/metrics.md (a test compares them).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from drumbeat.core.instance import Instance, LeaderInfo
from drumbeat.core.job_query import JobCounts, QueueStats, WaitCounts
from drumbeat.core.limits import GroupInfo
from drumbeat.core.stats import BOUNDS_US, Rollup
from drumbeat.durations import to_us

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

OUTCOMES = ("succeeded", "failed", "dead", "cancelled", "crashed")
QUEUED = ("ready", "scheduled", "running", "waiting")
STATES = ("ready", "scheduled", "retrying", "waiting", "running", "succeeded", "dead", "cancelled", "expired")
WAITS = ("parents", "signal", "sleep")

_LE = [*(repr(bound / 1e6) for bound in BOUNDS_US), "+Inf"]
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class MetricsSample(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the store."""

    now: int
    """The store's clock (µs)."""
    totals: Sequence[Rollup]
    queues: Sequence[QueueStats]
    instances: Sequence[Instance]
    """Those that live."""
    counts: JobCounts
    waits: WaitCounts
    dead: int
    """Dead letters."""
    leader: LeaderInfo | None = None
    groups: Sequence[GroupInfo] = ()
    """The busiest ones only: names of groups are data, and there may be millions."""


Lines = Iterator[str]
Labels = dict[str, str]


class Family(msgspec.Struct, frozen=True):
    """All lines of one name."""

    name: str
    kind: str
    help: str
    lines: Callable[[str, MetricsSample], Lines]


def render(sample: MetricsSample) -> str:
    """The whole text."""
    return "\n".join(line for family in FAMILIES for line in _family(family, sample)) + "\n"


def queue_lag(queue: QueueStats, now: int) -> float:
    """Seconds for which the oldest ready job of a queue has been due."""
    return 0.0 if queue.oldest_due is None else max(0.0, (now - to_us(queue.oldest_due)) / 1e6)


def _family(family: Family, sample: MetricsSample) -> Lines:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    yield from family.lines(family.name, sample)


def _line(name: str, labels: Labels, value: float) -> str:
    inner = ",".join(f'{label}="{_escape(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _escape(text: str) -> str:
    # Untrusted names: they must not end the line or break the encoding.
    return text.encode("utf-8", "replace").decode().translate(_ESCAPES)


def _gauge(name: str, help: str, value: Callable[[MetricsSample], float]) -> Family:
    """A family of a single line."""
    return Family(name, "gauge", help, lambda name, sample: iter([_line(name, {}, value(sample))]))


def _outcomes(name: str, sample: MetricsSample) -> Lines:
    for each in sample.totals:
        for outcome in OUTCOMES:
            yield _line(name, _labels_of(each) | {"outcome": outcome}, getattr(each, outcome))


def _waits(name: str, sample: MetricsSample) -> Lines:
    return _histograms(name, ((_labels_of(each), each.wait, each.wait_us) for each in sample.totals))


def _runs(name: str, sample: MetricsSample) -> Lines:
    return _histograms(name, ((_labels_of(each), each.run, each.run_us) for each in sample.totals))


def _histograms(name: str, found: Iterable[tuple[Labels, Sequence[int], int]]) -> Lines:
    for labels, numbers, sum_us in found:
        sums = list(accumulate(numbers))
        for le, number in zip(_LE, sums, strict=True):
            yield _line(f"{name}_bucket", labels | {"le": le}, number)
        yield _line(f"{name}_sum", labels, sum_us / 1e6)
        yield _line(f"{name}_count", labels, sums[-1])


def _labels_of(rollup: Rollup) -> Labels:
    return {"queue": rollup.queue, "task": rollup.task}


def _lags(name: str, sample: MetricsSample) -> Lines:
    for queue in sample.queues:
        yield _line(name, {"queue": queue.name}, queue_lag(queue, sample.now))


def _queued(name: str, sample: MetricsSample) -> Lines:
    for queue in sample.queues:
        for state in QUEUED:
            yield _line(name, {"queue": queue.name, "state": state}, getattr(queue, state))


def _paused(name: str, sample: MetricsSample) -> Lines:
    for queue in sample.queues:
        yield _line(name, {"queue": queue.name}, int(queue.paused))


def _states(name: str, sample: MetricsSample) -> Lines:
    for state in STATES:
        yield _line(name, {"state": state}, getattr(sample.counts, state))


def _waiting(name: str, sample: MetricsSample) -> Lines:
    for blocker in WAITS:
        yield _line(name, {"on": blocker}, getattr(sample.waits, blocker))


def _groups(value: Callable[[GroupInfo], int | None]) -> Callable[[str, MetricsSample], Lines]:
    def lines(name: str, sample: MetricsSample) -> Lines:
        for group in sample.groups:
            if (number := value(group)) is not None:
                yield _line(name, {"queue": group.queue, "task": group.line, "group": group.group}, number)

    return lines


def _oldest_beat(sample: MetricsSample) -> float:
    ages = [(sample.now - to_us(each.beat_at)) / 1e6 for each in sample.instances]
    return max(0.0, *ages) if ages else 0.0


FAMILIES = (
    Family(
        "drumbeat_jobs_total",
        "counter",
        "Ended runs by outcome; a run that failed without retries left counts as failed and dead.",
        _outcomes,
    ),
    Family("drumbeat_job_wait_seconds", "histogram", "From a job's due time to the start of its run.", _waits),
    Family("drumbeat_job_run_seconds", "histogram", "From the start of a run to its end.", _runs),
    Family("drumbeat_queue_lag_seconds", "gauge", "How long the oldest ready job of a queue has been due.", _lags),
    Family("drumbeat_queue_jobs", "gauge", "Live jobs of a queue.", _queued),
    Family("drumbeat_queue_paused", "gauge", "1 if a queue is paused.", _paused),
    Family("drumbeat_jobs", "gauge", "Jobs on record.", _states),
    Family("drumbeat_jobs_waiting", "gauge", "Jobs that wait for parents, for a signal, or asleep.", _waiting),
    Family(
        "drumbeat_group_waiting",
        "gauge",
        "Pending jobs of a group under limits or turns, up to 10,000; of the busiest groups.",
        _groups(lambda group: group.waiting),
    ),
    Family(
        "drumbeat_group_running",
        "gauge",
        "Running jobs of a group; of the busiest groups.",
        _groups(lambda group: group.running),
    ),
    Family(
        "drumbeat_group_limit",
        "gauge",
        "How many jobs of a group may run at once, where that is limited; of the busiest groups.",
        _groups(lambda group: group.bounds.concurrency),
    ),
    _gauge("drumbeat_dead_letters", "Dead letters.", lambda sample: sample.dead),
    _gauge("drumbeat_instances", "Living instances.", lambda sample: len(sample.instances)),
    _gauge(
        "drumbeat_instance_oldest_heartbeat_seconds",
        "Age of the oldest heartbeat among living instances.",
        _oldest_beat,
    ),
    _gauge(
        "drumbeat_slots",
        "Jobs that all living instances can run at once.",
        lambda sample: sum(each.concurrency for each in sample.instances),
    ),
    _gauge(
        "drumbeat_slots_busy",
        "Jobs that they ran at their last heartbeat.",
        lambda sample: sum(each.running for each in sample.instances),
    ),
    _gauge("drumbeat_leader", "1 if an instance leads.", lambda sample: int(sample.leader is not None)),
    _gauge(
        "drumbeat_leader_term",
        "Grows whenever the leader changes; 0 without a leader.",
        lambda sample: 0 if sample.leader is None else sample.leader.term,
    ),
)
