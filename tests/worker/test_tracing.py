"""Spans from enqueue to run, seen by OpenTelemetry's own SDK."""

import asyncio
import io
import json
import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from drumbeat import logs, tracing
from drumbeat.app import Drumbeat
from drumbeat.context import current_job
from drumbeat.errors import DrumbeatError, JobFailed
from drumbeat.retry import Backoff, SkipRetry, Snooze
from drumbeat.tasks import Call
from tests.waiting import until
from tests.worker.worker_harness import run_worker

QUICK = Backoff(base=0.001, cap=0.001)


class Traced:
    """What was exported."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    def of(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    async def process(self, count: int) -> list[ReadableSpan]:
        """The first so many runs, once they have ended."""
        return await until(  # type: ignore[no-any-return]
            lambda: found if len(found := self.of("process default")) >= count else None, what=f"{count} process spans"
        )


def put_in_place(provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    # `set_tracer_provider` can be called once in a process, and the other tests here want none.
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traced]:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    put_in_place(provider, monkeypatch)
    yield Traced(exporter)
    provider.shutdown()


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def said(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_run_is_a_child_of_the_enqueue_which_is_in_the_callers_trace(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async with app, run_worker(app):
        with trace.get_tracer("the program").start_as_current_span("request") as request:
            job = await greet.enqueue("Ada")
        assert await job.result(timeout=5) == "Hello Ada"
        [process] = await traced.process(1)
    [send] = traced.of("send default")
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert parent_of(send) == request.get_span_context().span_id
    assert parent_of(process) == send.context.span_id
    assert {each.context.trace_id for each in (send, process)} == {request.get_span_context().trace_id}
    assert said(send) == {
        "messaging.system": "drumbeat",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "drumbeat.task": "greet",
    }
    assert said(process) == {
        "messaging.system": "drumbeat",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": job.id,
        "drumbeat.task": "greet",
        "drumbeat.attempt": 1,
        "drumbeat.outcome": "succeeded",
    }
    assert process.status.status_code is StatusCode.UNSET


async def test_each_attempt_has_a_span_with_its_exception(app: Drumbeat, traced: Traced) -> None:
    @app.task(retries=1, backoff=QUICK)
    async def broken() -> None:
        raise ValueError("no such customer")

    async with app, run_worker(app):
        job = await broken.enqueue()
        with pytest.raises(JobFailed):
            await job.result(timeout=5)
        first, second = await traced.process(2)
    [send] = traced.of("send default")
    assert [parent_of(each) for each in (first, second)] == [send.context.span_id] * 2
    assert [said(each)["drumbeat.attempt"] for each in (first, second)] == [1, 2]
    assert [said(each)["drumbeat.outcome"] for each in (first, second)] == ["retry", "dead"]
    for span in (first, second):
        assert (span.status.status_code, span.status.description) == (StatusCode.ERROR, "no such customer")
        assert said(span)["error.type"] == "ValueError"
        [event] = span.events
        facts = dict(event.attributes or {})
        assert (event.name, facts["exception.type"], facts["exception.message"]) == (
            *("exception", "ValueError", "no such customer"),
        )
        assert "raise ValueError" in str(facts["exception.stacktrace"])


async def test_waiting_without_a_charge_is_no_error(app: Drumbeat, traced: Traced) -> None:
    seen: list[int] = []

    @app.task
    async def patient() -> None:
        seen.append(1)
        if len(seen) == 1:
            raise Snooze(0.001)

    async with app, run_worker(app):
        await (await patient.enqueue()).result(timeout=5)
        spans = await traced.process(2)
    assert [said(span)["drumbeat.outcome"] for span in spans] == ["snoozed", "succeeded"]
    assert [span.status.status_code for span in spans] == [StatusCode.UNSET] * 2


async def test_a_timed_out_run_has_its_span(app: Drumbeat, traced: Traced) -> None:
    @app.task(timeout=0.05, retries=0)
    async def stuck() -> None:
        await asyncio.Event().wait()

    async with app, run_worker(app):
        job = await stuck.enqueue()
        with pytest.raises(Exception, match="timed out"):
            await job.result(timeout=5)
        [span] = await traced.process(1)
    assert (said(span)["drumbeat.outcome"], span.status.status_code) == ("dead", StatusCode.ERROR)


async def test_spans_of_handlers_are_below_their_run_on_the_loop_and_in_threads(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def on_loop() -> None:
        with trace.get_tracer("the program").start_as_current_span("inner"):
            await asyncio.to_thread(lambda: None)

    @app.task
    def in_thread() -> None:
        with trace.get_tracer("the program").start_as_current_span("inner"):
            pass

    async with app, run_worker(app):
        for task in (on_loop, in_thread):
            await (await task.enqueue()).result(timeout=5)
        processes = await traced.process(2)
    inner = traced.of("inner")
    assert [parent_of(span) for span in inner] == [span.context.span_id for span in processes]


async def test_what_a_handler_enqueues_is_in_its_trace_and_nothing_stays_behind(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def second() -> None: ...

    @app.task
    async def first() -> None:
        await second.enqueue()

    async with app, run_worker(app, concurrency=1):
        await (await first.enqueue()).result(timeout=5)
        one, two = await traced.process(2)
        await (await second.enqueue()).result(timeout=5)
        [*_, three] = await traced.process(3)
    sends = {span.context.span_id: span for span in traced.of("send default")}
    assert parent_of(sends[parent_of(two) or 0]) == one.context.span_id
    assert one.context.trace_id == two.context.trace_id != three.context.trace_id


async def test_a_batch_has_one_span_with_links_to_each_enqueue(app: Drumbeat, traced: Traced) -> None:
    @app.task(batch=10, retries=0)
    async def store(calls: list[Call[int]]) -> list[Exception | None]:
        return [ValueError("two") if call.value == 2 else None for call in calls]

    async with app:
        jobs = [await store.enqueue(number) for number in range(3)]
        async with run_worker(app, concurrency=1):
            await jobs[0].result(timeout=5)
            spans = await traced.process(1)
            await until(lambda: sum(len(span.links) for span in traced.of("process default")) == 3, what="three links")
            spans = traced.of("process default")
    sends = [span.context.span_id for span in traced.of("send default")]
    assert sorted(link.context.span_id for span in spans for link in span.links) == sorted(sends)
    assert [parent_of(span) for span in spans] == [None] * len(spans)
    assert sum(int(str(said(span)["messaging.batch.message_count"])) for span in spans) == 3
    last = spans[-1]
    assert "dead" in str(said(last)["drumbeat.outcome"])
    assert (last.status.status_code, said(last)["error.type"]) == (StatusCode.ERROR, "ValueError")


async def test_many_jobs_are_sent_by_one_span(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def one(n: int) -> None: ...

    @app.task(queue="other")
    async def two(n: int) -> None: ...

    async with app:
        jobs = await app.enqueue_many([one.bind(1), one.bind(2)])
        await app.enqueue_many([one.bind(1), two.bind(2)])
        assert await app.enqueue_many([]) == []
        [same], [mixed] = traced.of("send default"), traced.of("send")
        assert said(same)["messaging.batch.message_count"] == said(mixed)["messaging.batch.message_count"] == 2
        assert "messaging.destination.name" not in said(mixed)
        traces = {(await app.jobs.show(job.id)).trace for job in jobs}
    assert traces == {tracing.format_traceparent(same.context)}


async def test_an_enqueue_that_is_refused_says_why(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def greet(name: str) -> None: ...

    with pytest.raises(DrumbeatError):
        await greet.using(conn=object()).enqueue("Ada")
    [send] = traced.of("send default")
    assert (send.status.status_code, send.events[0].name) == (StatusCode.ERROR, "exception")


async def test_a_follow_up_of_a_death_is_in_the_trace_of_the_dead(app: Drumbeat, traced: Traced) -> None:
    buried = asyncio.Event()

    @app.task(retries=0)
    async def mortal() -> None:
        raise SkipRetry("enough")

    @mortal.on_dead
    async def bury(job: object, error: object) -> None:
        buried.set()

    async with app, run_worker(app):
        await mortal.enqueue()
        await asyncio.wait_for(buried.wait(), 5)
        died, mourned = await traced.process(2)
    assert said(mourned)["drumbeat.task"] == "mortal.on_dead"
    assert died.context.trace_id == mourned.context.trace_id


async def test_what_is_not_sampled_is_not_sampled_further_on(app: Drumbeat, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task
    async def greet() -> None: ...

    exporter, usual = InMemorySpanExporter(), TracerProvider()
    usual.add_span_processor(SimpleSpanProcessor(exporter))
    async with app:
        put_in_place(TracerProvider(sampler=ALWAYS_OFF), monkeypatch)
        unseen = await greet.enqueue()
        put_in_place(usual, monkeypatch)
        seen = await greet.enqueue()
        async with run_worker(app, concurrency=1):
            await unseen.result(timeout=5)
            await seen.result(timeout=5)
    processed = [said(span)["messaging.message.id"] for span in Traced(exporter).of("process default")]
    assert processed == [seen.id]


async def test_a_trace_that_is_none_is_not_believed(app: Drumbeat, traced: Traced) -> None:
    @app.task
    async def greet() -> None: ...

    async with app:
        store = await app._internals.store()
        forged = greet.bind()
        for text in ("00-" + "0" * 32 + "-" + "0" * 16 + "-01", "hello", "00-xyz"):
            assert tracing.parse_traceparent(text) is None
        await store.jobs.add([msgspec.structs.replace(forged, trace="' OR 1=1 --")])
        async with run_worker(app):
            [process] = await traced.process(1)
    assert (process.parent, said(process)["drumbeat.outcome"]) == (None, "succeeded")


async def test_a_provider_that_fails_costs_spans_and_no_job(
    app: Drumbeat, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(SimpleSpanProcessor):
        def on_start(self, span: object, parent_context: object = None) -> None:
            raise RuntimeError("no tracing today")

    @app.task
    async def greet() -> str:
        return "hello"

    async with app, run_worker(app):
        provider = TracerProvider()
        provider.add_span_processor(Broken(InMemorySpanExporter()))
        job = greet.bind()
        put_in_place(provider, monkeypatch)
        store = await app._internals.store()
        await store.jobs.add([job])
        assert await app.jobs.handle(job.id).result(timeout=5) == "hello"
    assert "a job runs without its span: tracing failed" in caplog.text


async def test_without_a_provider_there_is_no_trace(app: Drumbeat) -> None:
    @app.task
    async def greet() -> None: ...

    async with app:
        with trace.get_tracer("the program").start_as_current_span("goes nowhere"):
            job = await greet.enqueue()
        assert tracing.get_span_factory() is None
        assert (await app.jobs.show(job.id)).trace is None


async def test_a_trace_goes_through_an_outbox(app_url: str, traced: Traced, tmp_path: Path) -> None:
    file = tmp_path / "orders.db"
    app = Drumbeat(app_url, outbox=f"sqlite:///{file}")

    @app.task
    async def ship(order: int) -> int:
        return order

    async with app, run_worker(app):
        with closing(sqlite3.connect(file)) as db, db:
            job = await ship.using(conn=db).enqueue(7)
        [process] = await traced.process(1)
    [send] = traced.of("send default")
    assert (parent_of(process), said(process)["messaging.message.id"]) == (send.context.span_id, job.id)


async def test_a_job_that_its_handler_completed_has_succeeded(traced: Traced, tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def pay() -> None:
        async with current_job().transaction():
            pass

    async with app, run_worker(app):
        await (await pay.enqueue()).result(timeout=5)
        [process] = await traced.process(1)
    assert (said(process)["drumbeat.outcome"], process.status.status_code) == ("succeeded", StatusCode.UNSET)


@pytest.mark.usefixtures("traced")
async def test_json_logs_of_a_handler_say_which_span_and_which_job(app: Drumbeat) -> None:
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("drumbeat")
    before = root.handlers[:], root.level, ours.level
    logs.configure("info", "json", stream)
    try:

        @app.task
        async def greet() -> str:
            logging.getLogger("shop").warning("greeting")
            return f"{trace.get_current_span().get_span_context().span_id:016x}"

        async with app, run_worker(app):
            job = await greet.enqueue()
            span_id = await job.result(timeout=5)
        logging.getLogger("shop").warning("outside")
    finally:
        root.handlers[:], root.level, ours.level = before
    lines = {line["message"]: line for line in map(json.loads, stream.getvalue().splitlines())}
    inside, outside = lines["greeting"], lines["outside"]
    assert (inside["span_id"], len(inside["trace_id"])) == (span_id, 32)
    assert (inside["job"], inside["attempt"], inside["task"], inside["queue"]) == (job.id, 1, "greet", "default")
    assert not {"span_id", "trace_id", "job", "attempt", "task", "queue"} & outside.keys()
