"""Log records of handlers say which job they are about, however the program logs."""

import io
import logging
import logging.config
import logging.handlers
import queue
from collections.abc import Iterator

import pytest

from drumbeat import logs
from drumbeat.app import Drumbeat
from drumbeat.contrib.logging import FIELDS, JobFields
from drumbeat.retry import Backoff
from drumbeat.tasks import Call
from tests.worker.worker_harness import run_worker

shop = logging.getLogger("tests.shop")


class Kept(logging.Handler):
    """Keeps records as they come."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def facts(self) -> list[tuple[object, ...]]:
        return [tuple(vars(record).get(name) for name in FIELDS[:4]) for record in self.records]


@pytest.fixture
def kept() -> Iterator[Kept]:
    """A program's own handler with our filter."""
    handler = Kept()
    handler.addFilter(JobFields())
    shop.addHandler(handler)
    yield handler
    shop.removeHandler(handler)


async def test_each_attempt_is_named_on_the_loop_and_in_a_thread(app: Drumbeat, kept: Kept) -> None:
    @app.task(retries=1, backoff=Backoff(base=0.001, cap=0.001), queue="critical")
    async def on_loop() -> None:
        shop.warning("trying")
        if len(kept.records) == 1:
            raise ConnectionError

    @app.task
    def in_thread() -> None:
        logging.getLogger("tests.shop.deeper").warning("in a thread")

    async with app, run_worker(app):
        first = await on_loop.enqueue()
        await first.result(timeout=5)
        second = await in_thread.enqueue()
        await second.result(timeout=5)
    assert kept.facts() == [
        (first.id, 1, "on_loop", "critical"),
        (first.id, 2, "on_loop", "critical"),
        (second.id, 1, "in_thread", "default"),
    ]


async def test_a_batch_handler_is_named_by_its_task_and_its_size(app: Drumbeat, kept: Kept) -> None:
    @app.task(batch=10)
    async def store(calls: list[Call[int]]) -> None:
        shop.warning("storing")

    async with app, run_worker(app):
        await (await store.enqueue(1)).result(timeout=5)
    [record] = kept.records
    assert kept.facts() == [("-", "-", "store", "default")]
    assert vars(record)["jobs"] == 1


def test_outside_of_handlers_a_format_may_still_name_the_fields(kept: Kept) -> None:
    shop.warning("no job here")
    assert kept.facts() == [("-", "-", "-", "-")]
    assert logging.Formatter("%(job)s %(trace_id)s %(message)s").format(kept.records[0]) == "- - no job here"


def test_fields_may_be_left_out_outside_of_handlers() -> None:
    record = logging.makeLogRecord({"msg": "no job here"})
    before = dict(vars(record))
    assert JobFields(outside=None).filter(record)
    assert vars(record) == before


def test_what_a_record_says_of_itself_stays(kept: Kept) -> None:
    shop.warning("about another", extra={"job": "mine", "task": "theirs"})
    assert kept.facts() == [("mine", "-", "theirs", "-")]


def test_a_filter_with_a_name_lets_only_that_logger_pass() -> None:
    named = JobFields("tests.shop")
    ours, theirs = (logging.makeLogRecord({"name": name}) for name in ("tests.shop.deeper", "asyncio"))
    assert (named.filter(ours), named.filter(theirs)) == (True, False)


async def test_a_program_may_declare_it_and_log_through_a_queue(app: Drumbeat) -> None:
    stream, waiting = io.StringIO(), queue.SimpleQueue[logging.LogRecord]()
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "filters": {"job": {"()": "drumbeat.contrib.logging.JobFields"}},
            "handlers": {
                "queue": {"()": "logging.handlers.QueueHandler", "queue": waiting, "filters": ["job"]},
            },
            "loggers": {"tests.shop": {"handlers": ["queue"]}},
        }
    )
    shown = logging.StreamHandler(stream)
    shown.setFormatter(logging.Formatter("%(task)s/%(attempt)s %(message)s"))
    listener = logging.handlers.QueueListener(waiting, shown)
    listener.start()

    @app.task
    async def greet() -> None:
        shop.warning("hello")

    try:
        async with app, run_worker(app):
            await (await greet.enqueue()).result(timeout=5)
    finally:
        listener.stop()
        shop.handlers.clear()
    assert stream.getvalue() == "greet/1 hello\n"


async def test_our_own_lines_say_it_without_any_help(app: Drumbeat) -> None:
    stream = io.StringIO()
    root, ours = logging.getLogger(), logging.getLogger("drumbeat")
    before = root.handlers[:], root.level, ours.level
    logs.configure("warning", "text", stream)

    @app.task
    def greet() -> None:
        shop.warning("hello")

    try:
        async with app, run_worker(app):
            job = await greet.enqueue()
            await job.result(timeout=5)
        shop.warning("outside")
    finally:
        root.handlers[:], root.level, ours.level = before
    inside, outside = (line for line in stream.getvalue().splitlines() if "tests.shop" in line)
    assert inside.endswith(f"WARNING tests.shop: hello job={job.id} attempt=1 task=greet queue=default")
    assert outside.endswith("WARNING tests.shop: outside")
