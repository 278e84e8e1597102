"""Calls that both type checkers must accept."""

from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, assert_type

from drumbeat import (
    AttemptFailed,
    Call,
    Drumbeat,
    HeldLock,
    Job,
    JobError,
    JobHandle,
    JobOutcome,
    Limit,
    Node,
    Part,
    Results,
    ScheduleInfo,
    SyncJobHandle,
    SyncWorkflowHandle,
    Workflow,
    WorkflowHandle,
    chain,
    chord,
    current_job,
    group,
    local_lock,
)
from drumbeat.core.job import Cancelled, NewJob
from drumbeat.sinks import RedisStreamSink
from drumbeat.tasks import AsyncRoom, AsyncTask, BatchTask, SyncRoom, SyncTask

app = Drumbeat()


@app.task
async def plain(customer: int) -> str:
    return str(customer)


@app.task(queue="critical", retries=5, timeout="30s")
async def charge(customer: int, amount: Decimal, *, note: str = "") -> str:
    return f"{customer} {amount} {note}"


@app.task
def resize(path: str) -> int:
    return len(path)


@app.task(pool="process")
def crunch(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(batch=500)
async def publish(calls: list[Call[str]]) -> list[int | Exception] | None:
    return [len(call.value) for call in calls]


@app.task(batch=100, queue="low")
def store(calls: list[Call[int]]) -> None:
    assert_type(calls[0].value, int)


@charge.on_dead
async def refund(job: Job, error: JobError) -> None: ...


@charge.on_success
async def thank(job: Job, result: str) -> None: ...


@app.task(retry_on=(OSError, KeyError), no_retry_on=ValueError, backoff=[1, "5s"], on_success=lambda job, result: None)
async def fetch(url: str) -> bytes:
    return url.encode()


app.queue("mail", limits=[Limit(rate=100, per="1m")], fair=True, weights={"tenant:7": 3}, order="skip")


@app.task(
    limits=[Limit(concurrency=5, per_group=True), Limit(rate=100, per=timedelta(minutes=1))],
    group=lambda url: f"host:{url}",
    order=True,
)
async def crawl(url: str) -> bytes:
    return url.encode()


crawl.using(group="host:example").bind("a")


@charge.upgrade
def renamed(arguments: dict[str, Any], signature: str) -> dict[str, Any]:
    return arguments


@app.on_event(AttemptFailed)
def tell(event: AttemptFailed) -> None:
    assert_type(event.dead, bool)


@app.cron("0 3 * * *", tz="Europe/Berlin", catch_up="all", overlap="queue", args=(3,), retries=2, name="at-night")
@app.every("5m", grid=True, args={"days": 1}, max_late=60, jitter="5s", start=datetime(2030, 1, 1, tzinfo=UTC))
async def clean(days: int) -> str:
    return str(days)


@app.every(3)
def sweep() -> int:
    return 1


@app.on_start
async def warm() -> None: ...


@app.on_start(role="worker", once=True, lock="fill")
def fill() -> int:
    return 1


sink = RedisStreamSink(stream="reminders", url="redis://localhost")
remind = app.forward("order.reminder", to=sink, type=Decimal, queue="reminders", retries=5)
anything = app.forward("anything", to=sink, batch=10)


async def forwarded() -> None:
    assert_type(await remind.using(key="c:1").enqueue(Decimal(1)), JobHandle[None])
    assert_type(await anything.enqueue({"a": [1]}), JobHandle[None])
    assert_type(await app.cancel(task=remind, key="c:1"), Cancelled)


async def calls() -> None:
    assert_type(await plain.enqueue(1), JobHandle[str])
    assert_type(await charge.enqueue(1, Decimal(2)), JobHandle[str])
    assert_type(await charge.using(delay=60, key="c:1", unique=True).enqueue(1, amount=Decimal(2)), JobHandle[str])
    assert_type(
        await charge.using(at=datetime(2030, 1, 1, tzinfo=UTC), unique="pending", key="k").enqueue(
            1, Decimal(2), note="x"
        ),
        JobHandle[str],
    )
    assert_type(await (await charge.enqueue(1, Decimal(2))).result(timeout=10), str)
    assert_type(resize.enqueue_sync("a"), SyncJobHandle[int])
    assert_type(resize.enqueue_sync("a").result(), int)
    assert_type(charge.bind(1, Decimal(2)), NewJob[str])
    any_call: NewJob = charge.bind(1, Decimal(2))
    assert_type(any_call, NewJob[Any])
    assert_type(await app.enqueue_many([charge.bind(1, Decimal(2)), resize.bind("a")]), list[JobHandle[Any]])
    assert_type(await publish.enqueue("x"), JobHandle[int])
    assert_type(await store.enqueue(1), JobHandle[None])
    assert_type(await app.cancel(task=charge, key="c:1"), Cancelled)
    assert_type(await app.jobs.list(state="dead", limit=10), list[Job])
    assert_type(app.sync.jobs.list(queue="low"), list[Job])
    assert_type(await clean.enqueue(7), JobHandle[str])
    assert_type(await clean(7), str)
    assert_type(sweep(), int)
    stays: AsyncTask[[int], str] = app.cron("@daily", name="daily", args=(1,))(plain)
    assert_type(await stays(1), str)


async def direct_calls_are_calls_of_the_function() -> None:
    coroutine: Coroutine[Any, Any, str] = plain(1)
    assert_type(await coroutine, str)
    assert_type(await charge(1, Decimal(2)), str)
    assert_type(resize("a"), int)


async_task: AsyncTask[[int], str] = plain
sync_task: SyncTask[[str], int] = resize
scheduled_task: AsyncTask[[int], str] = clean
started_task: SyncTask[[], int] = fill
batch_task: BatchTask[str, int] = publish


async def locked() -> None:
    async with app.lock("prices", limit=2, per="1s", timeout=5, lease=30) as lock:
        assert_type(lock, HeldLock)
        assert_type(lock.token, int)
        assert_type(lock.lost.is_set(), bool)
        assert_type(await lock.lost, str)
    async with local_lock("prices", limit=2, per=1.0):
        pass


def locked_in_a_thread() -> int:
    with app.sync.lock("prices") as lock:
        return lock.token


@app.room
async def refresh(tickers: list[str], *, force: bool = False) -> None: ...


@app.room(name="news", timeout="5s")
def hear(text: str) -> None: ...


async def rooms() -> None:
    assert_type(await refresh.fan_out(["a"], force=True), int)
    assert_type(await refresh.broadcast(tickers=["a"]), int)
    assert_type(hear.broadcast_sync("a"), int)
    await refresh(["a"])
    hear("a")


async_room: AsyncRoom[..., None] = refresh
sync_room: SyncRoom[[str], None] = hear


class Money:
    cents = 1


@app.codec(Money)
class MoneyCodec:
    def encode(self, value: Money) -> int:
        return value.cents

    def decode(self, stored: int) -> Money:
        return Money()


class Color:
    pass


@app.codec(Color)
class StaticCodec:
    @staticmethod
    def encode(value: Color) -> str:
        return ""

    @staticmethod
    def decode(stored: str) -> Color:
        return Color()


@app.around
def scope() -> Iterator[None]:
    yield


@app.around(handlers="async")
async def session() -> AsyncIterator[int]:
    yield 1


@app.around
@contextmanager
def managed() -> Iterator[str]:
    yield ""


@app.around(handlers="async")
@asynccontextmanager
async def managed_too() -> AsyncIterator[str]:
    yield ""


async def lags() -> None:
    assert_type(await app.queues.lag("low"), float)
    assert_type((await app.queues.list())[0].lag, float)
    assert_type(app.sync.queues.lag(), float)
    assert_type(await app.schedules.create(plain, every=5, args=(1,), replace=True), ScheduleInfo)


@app.task
async def render(page: str, size: int = 3) -> bytes:
    return page.encode() * size


@app.task
def count(rendered: bytes) -> int:
    return len(rendered)


@app.task
async def add_up(parts: Results[int], *, start: int = 0) -> int:
    assert_type(len(parts), int)
    return sum([part async for part in parts], start)


@app.task
def add_list(parts: list[int]) -> str:
    return str(sum(parts))


@app.task
async def report(outcome: JobOutcome[str]) -> str | None:
    assert_type(outcome.has_succeeded, bool)
    return outcome.value


@app.task
def report_all(outcomes: Results[JobOutcome[int]]) -> int:
    return sum(outcome.has_succeeded for outcome in outcomes)


async def workflows() -> None:
    first = await plain.enqueue(1)
    after = plain.using(after=[first, first.id, plain.bind(2), resize.enqueue_sync("a")], if_parent_fails="run")
    assert_type(await after.enqueue(2), JobHandle[str])
    flow = app.workflow("invoice-42", labels={"customer": "ann"}, unique=True)
    page = flow.add(plain.bind(1), after=[first])
    assert_type(page, Node[str])
    assert_type(page.result, str)
    assert_type(page.outcome, JobOutcome[str])
    rendered = flow.add(render.bind(page.result, size=4), after=[page], if_parent_fails="wait")
    assert_type(rendered, Node[bytes])
    assert_type(flow.add(report.bind(page.outcome), if_parent_fails="run"), Node[str | None])
    sizes = group([count.bind(b"a"), resize.bind("b")])
    assert_type(flow.add(sizes), list[Node[int]])
    assert_type(flow.add(add_up.bind(sizes.results, start=1)), Node[int])
    assert_type(flow.add(add_list.bind(sizes.result_list)), Node[str])
    assert_type(chain(plain.bind(1), render, count), Part[int])
    assert_type(chain(plain.bind(1), render.using(queue="low")), Part[bytes])
    assert_type(chord(sizes, add_up), Part[int])
    assert_type(chord(sizes, report_all.using(if_parent_fails="run")), Part[int])
    assert_type(resize.map(["a"], then=report_all.using(if_parent_fails="run")), Part[int])
    assert_type(chord([count.bind(b"a")], add_list), Part[str])
    assert_type(resize.map(["a", "b"], then=add_up), Part[int])
    assert_type(resize.using(priority=2).map(["a", "b"], then=add_up), Part[int])
    assert_type(flow.add(resize.using(priority=2).map(["a", "b"])), list[Node[int]])
    assert_type(resize.map(["a", "b"], then=add_list.using(priority=1)), Part[str])
    assert_type(flow.add(chain(plain.bind(1), render, count)), Node[int])
    handle = await app.workflow("pages", chain(plain.bind(1), render), resize.map(["a"], then=add_up)).enqueue()
    assert_type(handle, WorkflowHandle)
    assert_type(await handle.get(), Workflow)
    assert_type(await handle.cancel(), Cancelled)
    assert_type(app.sync.get_workflow(handle.id), SyncWorkflowHandle)
    assert_type(await current_job().add("pages", [plain.bind(1)]), list[JobHandle[str]])
    assert_type(current_job().add_sync("pages", [plain.bind(1)]), list[SyncJobHandle[str]])
