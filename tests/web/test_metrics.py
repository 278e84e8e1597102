"""What Prometheus reads: its own parser understands it, whatever the names are, and the numbers are those of the store."""

import re
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from drumbeat import Drumbeat
from drumbeat.core.instance import Instance, InstanceState, LeaderInfo, Role
from drumbeat.core.job_query import JobCounts, JobFilter, QueueStats, WaitCounts
from drumbeat.core.limits import Bounds, GroupInfo
from drumbeat.core.stats import BOUNDS_US, BUCKETS, Resolution, Rollup
from drumbeat.durations import from_us
from drumbeat.ids import InstanceId
from drumbeat.store.protocol import Store
from drumbeat.web.metrics import FAMILIES, MetricsSample, render
from tests.contract import making
from tests.contract.lanes import add_jobs, declare
from tests.meta.project import ROOT

SECOND = 1_000_000
NOW = 1_767_225_600 * SECOND
HOSTILE = 'a"} 1\n# TYPE x counter\\x{y="<script>\udc80\r\t☃'


def sample(**facts: Any) -> MetricsSample:
    nothing: dict[str, Any] = {
        "now": NOW,
        "totals": [],
        "queues": [],
        "instances": [],
        "counts": JobCounts(),
        "waits": WaitCounts(),
        "dead": 0,
    }
    return MetricsSample(**(nothing | facts))


def read(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """name -> values of its labels, in the order of their names -> number."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for each in family.samples:
            found.setdefault(each.name, {})[tuple(each.labels[name] for name in sorted(each.labels))] = each.value
    return found


def total(queue: str = "mail", task: str = "send", **counts: Any) -> Rollup:
    return Rollup(resolution=Resolution.TOTAL, at=0, queue=queue, task=task, **counts)


def queue(name: str = "mail", **facts: Any) -> QueueStats:
    nothing: dict[str, Any] = dict.fromkeys(("ready", "scheduled", "running", "waiting"), 0) | {"oldest_due": None}
    return QueueStats(name=name, **(nothing | facts))


def instance(**facts: Any) -> Instance:
    described: dict[str, Any] = {
        "id": InstanceId("1" * 16),
        "state": InstanceState.ALIVE,
        "app": "shop",
        "version": "1",
        "host": "here",
        "pid": 1,
        "roles": (Role.WORKER,),
        "queues": (),
        "tasks": {},
        "concurrency": 10,
        "running": 3,
        "refused": 0,
        "beat": 1,
        "started_at": from_us(NOW),
        "beat_at": from_us(NOW - SECOND // 2),
    }
    return Instance(**(described | facts))


def test_outcomes_are_counters_by_queue_task_and_outcome() -> None:
    found = read(render(sample(totals=[total(succeeded=5, failed=3, dead=1, cancelled=2, crashed=4), total("b", "x")])))
    assert {labels: number for labels, number in found["drumbeat_jobs_total"].items() if number} == {
        ("succeeded", "mail", "send"): 5,
        ("failed", "mail", "send"): 3,
        ("dead", "mail", "send"): 1,
        ("cancelled", "mail", "send"): 2,
        ("crashed", "mail", "send"): 4,
    }
    assert len(found["drumbeat_jobs_total"]) == 10


def test_histograms_are_cumulative_and_in_seconds() -> None:
    wait = (4, 3, *[0] * (BUCKETS - 3), 2)
    found = read(render(sample(totals=[total(wait=wait, wait_us=2_500_000)])))
    buckets = {le: number for (le, _, _), number in found["drumbeat_job_wait_seconds_bucket"].items()}
    assert [float(le) for le in buckets] == [bound / 1e6 for bound in BOUNDS_US] + [float("inf")]
    assert list(buckets.values()) == [4] + [7] * (BUCKETS - 2) + [9]
    assert list(buckets)[:2] == ["0.001", "0.002"]
    assert found["drumbeat_job_wait_seconds_sum"] == {("mail", "send"): 2.5}
    assert found["drumbeat_job_wait_seconds_count"] == {("mail", "send"): 9}
    assert found["drumbeat_job_run_seconds_count"] == {("mail", "send"): 0}


def test_gauges_are_of_this_moment() -> None:
    paused = queue("slow", paused=True, ready=2, waiting=1, oldest_due=from_us(NOW - 90 * SECOND))
    text = render(
        sample(
            queues=[queue(running=7), paused],
            instances=[instance(), instance(concurrency=5, running=1, beat_at=from_us(NOW - 2 * SECOND))],
            counts=JobCounts(ready=2, retrying=6, succeeded=1_000_000),
            dead=12,
            leader=LeaderInfo(instance=InstanceId("1" * 16), term=8, since=from_us(NOW), until=from_us(NOW)),
        )
    )
    found = read(text)
    assert found["drumbeat_queue_lag_seconds"] == {("mail",): 0, ("slow",): 90}
    assert found["drumbeat_queue_paused"] == {("mail",): 0, ("slow",): 1}
    assert found["drumbeat_queue_jobs"][("mail", "running")] == 7
    assert found["drumbeat_queue_jobs"][("slow", "ready")] == 2
    assert found["drumbeat_jobs"][("retrying",)] == 6
    assert found["drumbeat_jobs"][("succeeded",)] == 1_000_000
    single = {name: found[name][()] for name in found if () in found[name]}
    assert single == {
        "drumbeat_dead_letters": 12,
        "drumbeat_instances": 2,
        "drumbeat_instance_oldest_heartbeat_seconds": 2,
        "drumbeat_slots": 15,
        "drumbeat_slots_busy": 4,
        "drumbeat_leader": 1,
        "drumbeat_leader_term": 8,
    }


def test_what_jobs_wait_for_is_a_label_of_three_values() -> None:
    found = read(render(sample(waits=WaitCounts(parents=3, signal=2, sleep=1))))
    assert found["drumbeat_jobs_waiting"] == {("parents",): 3, ("signal",): 2, ("sleep",): 1}


def test_the_busiest_groups_have_what_waits_what_runs_and_what_may_run() -> None:
    free = GroupInfo(queue="mail", line="", group=HOSTILE, waiting=3, running=1, bounds=Bounds())
    full = GroupInfo(queue="mail", line="send", group="tenant:7", waiting=9, running=5, bounds=Bounds(5))
    found = read(render(sample(groups=[full, free])))
    hostile = (HOSTILE.replace("\udc80", "?"), "mail", "")
    assert found["drumbeat_group_waiting"] == {("tenant:7", "mail", "send"): 9, hostile: 3}
    assert found["drumbeat_group_running"] == {("tenant:7", "mail", "send"): 5, hostile: 1}
    assert found["drumbeat_group_limit"] == {("tenant:7", "mail", "send"): 5}


async def test_a_scrape_has_the_groups_of_the_store(app: Drumbeat, api: httpx.AsyncClient) -> None:
    store = await app._internals.store()
    await declare(store, each=Bounds(2))
    await add_jobs(store, "a", 3)
    found = read((await api.get("/metrics")).text)
    assert found["drumbeat_group_waiting"] == {("a", "default", "greet"): 3}


def test_an_empty_store_has_its_gauges_and_says_that_nobody_leads() -> None:
    found = read(render(sample()))
    assert [found[f"drumbeat_{name}"][()] for name in ("dead_letters", "instances", "leader")] == [0, 0, 0]


def test_a_job_that_is_due_later_by_another_clock_makes_no_negative_lag() -> None:
    found = read(render(sample(queues=[queue(oldest_due=from_us(NOW + SECOND))])))
    assert found["drumbeat_queue_lag_seconds"] == {("mail",): 0}


def test_a_hostile_name_stays_a_label() -> None:
    usual = sample(totals=[total(dead=1)], queues=[queue()])
    hostile = sample(totals=[total(HOSTILE, HOSTILE, dead=1)], queues=[queue(HOSTILE)])
    text = render(hostile)
    assert text.encode().count(b"\n") == render(usual).encode().count(b"\n")
    found = read(text)
    shown = HOSTILE.replace("\udc80", "?")
    assert found["drumbeat_jobs_total"][("dead", shown, shown)] == 1
    assert found["drumbeat_queue_lag_seconds"] == {(shown,): 0}
    assert found.keys() == read(render(usual)).keys()


def test_every_name_has_help_and_a_type_and_a_row_in_the_docs() -> None:
    text = render(sample(totals=[total()], queues=[queue()]))
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", text, re.MULTILINE))
    assert types == {family.name: family.kind for family in FAMILIES}
    assert set(re.findall(r"^# HELP (\w+) \S", text, re.MULTILINE)) == types.keys()
    page = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(drumbeat_\w+)` \| (\w+) \|", page, re.MULTILINE))
    assert rows == types


async def test_the_lag_is_true_to_a_second(store: Store) -> None:
    before = await store.inspect.now()
    await making.add(store, making.new_job(queue="late", run_at=before - 90 * SECOND), making.new_job(queue="late"))
    seen = sample(
        now=await store.inspect.now(),
        queues=await store.inspect.list_queues(),
        counts=await store.inspect.count_jobs(JobFilter()),
    )
    after = await store.inspect.now()
    found = read(render(seen))
    lag = found["drumbeat_queue_lag_seconds"][("late",)]
    assert 90 <= lag <= 90 + (after - before) / 1e6
    assert found["drumbeat_jobs"][("ready",)] == 2
