"""The lag of a queue, as Prometheus and programs read it: true to a second on every engine."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from drumbeat import Drumbeat
from drumbeat.clock import SYSTEM
from drumbeat.durations import from_us
from tests.waiting import until
from tests.worker.worker_harness import run_worker

Told = dict[str, float]


async def by_metrics(api: httpx.AsyncClient) -> Told:
    answer = await api.get("/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    return {sample.labels["queue"]: sample.value for sample in families["drumbeat_queue_lag_seconds"].samples}


async def by_api(api: httpx.AsyncClient) -> Told:
    return {queue["name"]: queue["lag"] for queue in (await api.get("/api/v1/queues")).json()["items"]}


@pytest.fixture(params=[by_metrics, by_api])
def lags(request: pytest.FixtureRequest) -> Any:
    return request.param


async def test_the_lag_is_the_age_of_the_oldest_due_job_within_a_second(
    app: Drumbeat, api: httpx.AsyncClient, lags: Any
) -> None:
    @app.task(queue="reports")
    async def report(number: int) -> None: ...

    mail: Any = app._internals.registry.find("send_mail")
    now = SYSTEM.now_us()
    ages = {"mail": 90, "reports": 7200}
    for queue, task in (("mail", mail), ("reports", report)):
        for age in (ages[queue], ages[queue] // 2, 0, -3600):
            await task.using(at=from_us(now) - timedelta(seconds=age)).enqueue(1 if task is report else "ada")  # type: ignore[arg-type]
    told = await lags(api)
    passed = (SYSTEM.now_us() - now) / 1e6
    for queue, age in ages.items():
        assert age - 1 <= told[queue] <= age + passed + 1


async def test_what_is_not_due_yet_makes_no_lag(app: Drumbeat, api: httpx.AsyncClient, lags: Any) -> None:
    mail: Any = app._internals.registry.find("send_mail")
    await mail.using(delay=3600).enqueue("ada")
    assert (await lags(api))["mail"] == 0


async def test_the_lag_goes_to_the_next_when_the_oldest_is_cancelled(
    app: Drumbeat, api: httpx.AsyncClient, lags: Any
) -> None:
    mail: Any = app._internals.registry.find("send_mail")
    now = SYSTEM.now_us()
    oldest = await mail.using(at=from_us(now - 500_000_000)).enqueue("ada")
    await mail.using(at=from_us(now - 20_000_000)).enqueue("ben")
    await oldest.cancel()
    told = (await lags(api))["mail"]
    assert 19 <= told <= 21 + (SYSTEM.now_us() - now) / 1e6


async def test_the_lag_grows_with_time_while_a_queue_is_paused_and_ends_when_it_is_worked_off(
    app: Drumbeat, api: httpx.AsyncClient, lags: Any
) -> None:
    """A worker is there all the while: what it has looked at and may not take is as late as it is."""
    mail: Any = app._internals.registry.find("send_mail")
    await app.queues.pause("mail")
    due = SYSTEM.now_us()
    job = await mail.using(at=from_us(due)).enqueue("ada")
    async with run_worker(app):
        for wanted in (0.3, 1.5):
            await until(lambda wanted=wanted: _is_over(api, lags, wanted), what=f"a lag of {wanted} s")
            asked = SYSTEM.now_us()
            told = (await lags(api))["mail"]
            assert (asked - due) / 1e6 - 1 <= told <= (SYSTEM.now_us() - due) / 1e6 + 1
        await app.queues.resume("mail")
        await job.result(timeout=10)
        assert (await lags(api)).get("mail", 0) == 0


async def _is_over(api: httpx.AsyncClient, lags: Any, wanted: float) -> bool:
    return (await lags(api))["mail"] >= wanted  # type: ignore[no-any-return]
