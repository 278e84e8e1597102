"""The decorator and its options, and what a call becomes before it is stored. Nothing here opens a store."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from asgiref.sync import async_to_sync

from drumbeat import Backoff, Call, Drumbeat, Job, JobError
from drumbeat.codec import Undecodable
from drumbeat.core.follow_up import DEAD_SIGNATURE, DeadLetterPayload
from drumbeat.core.job import Failure, JobState, Unique
from drumbeat.durations import to_us
from drumbeat.errors import ConfigError, InvalidArguments, JobFailed, JobTimedOut, UnknownTask, WrongContext
from drumbeat.handle import TIMED_OUT
from drumbeat.ids import is_job_id, new_job_id
from drumbeat.settings import Settings
from tests.dropped_calls import errors_of_dropped_calls

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:////nowhere/never-opened.db")


def test_a_task_is_named_after_its_function_unless_told_otherwise(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    @app.task(name="billing.refund")
    async def refund() -> None: ...

    assert (charge.name, refund.name) == ("charge", "billing.refund")


def test_a_second_task_of_the_same_name_is_refused_naming_both_places(app: Drumbeat) -> None:
    def charge() -> None: ...

    first = app.task(charge)

    def other() -> None: ...

    with pytest.raises(ConfigError) as refused:
        app.task(name="charge")(other)
    line = other.__code__.co_firstlineno
    assert first.source_location in str(refused.value)
    assert f"{__file__}:{line}" in str(refused.value)
    assert app._internals.registry["charge"] is first


def test_two_apps_may_have_tasks_of_the_same_name(app: Drumbeat) -> None:
    def charge() -> None: ...

    assert app.task(charge).name == Drumbeat().task(charge).name


def test_calling_a_task_calls_its_function(app: Drumbeat) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice as much."""
        return 2 * number

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."


def test_async_runs_on_the_loop_and_def_in_a_thread_or_a_process(app: Drumbeat) -> None:
    @app.task
    async def on_loop() -> None: ...

    @app.task
    def in_thread() -> None: ...

    @app.task(pool="process")
    def in_process() -> None: ...

    assert [on_loop.options.pool, in_thread.options.pool, in_process.options.pool] == ["loop", "thread", "process"]
    assert [on_loop.is_async, in_thread.is_async] == [True, False]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("name", "two words"),
        ("queue", ""),
        ("retries", -1),
        ("retries", True),
        ("retries", 2.5),
        ("backoff", 3),
        ("backoff", "5m"),
        ("backoff", []),
        ("backoff", [1, None]),
        ("expires", 0),
        ("expires", "soon"),
        ("retry_on", "ValueError"),
        ("on_success", 3),
        ("on_success", lambda job: None),
        ("on_dead", int),
        ("no_retry_on", (ValueError, 3)),
        ("timeout", 0),
        ("timeout", "soon"),
        ("priority", 10),
        ("pool", "cluster"),
        ("pool", "process"),
        ("batch", 0),
        ("on_crash", "ignore"),
        ("retires", 3),
    ],
)
def test_a_bad_option_is_refused_at_the_decorator_by_its_name(app: Drumbeat, option: str, value: object) -> None:
    async def charge(calls: list[Call[int]]) -> None: ...

    options: dict[str, Any] = {option: value}
    with pytest.raises(ConfigError) as refused:
        app.task(**options)(charge)
    assert option in str(refused.value) or refused.value.setting == option
    assert len(app._internals.registry) == 0


def generator() -> Any:
    yield


async def async_generator() -> Any:
    yield


@pytest.mark.parametrize("wrong", [generator, async_generator, int, "charge", lambda: None, None])
def test_only_a_function_with_a_name_can_be_a_task(app: Drumbeat, wrong: Any) -> None:
    with pytest.raises(ConfigError):
        app.task(wrong)


def test_a_parameter_that_cannot_be_stored_is_refused_at_the_decorator(app: Drumbeat) -> None:
    with pytest.raises(ConfigError, match="callback"):

        @app.task
        def notify(callback: Callable[[], None]) -> None: ...


def test_a_bound_call_has_what_the_task_says(app: Drumbeat) -> None:
    @app.task(queue="critical", priority=2, retries=7, timeout=30)
    async def charge(customer: int, note: str = "") -> None: ...

    job = charge.bind(42, note="x")
    assert is_job_id(job.id)
    assert (job.task, job.queue, job.priority) == ("charge", "critical", 2)
    assert msgspec.json.decode(job.args) == {"customer": 42, "note": "x"}
    assert job.signature == charge.signature.hash
    # The worker's own version of the task decides about these.
    assert (job.retries, job.timeout, job.run_at, job.delay, job.key) == (None, None, None, 0, None)


def test_each_bound_call_is_a_job_of_its_own(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    assert charge.bind().id < charge.bind().id


def test_using_overrules_the_task(app: Drumbeat) -> None:
    @app.task(queue="critical", priority=2)
    async def charge() -> None: ...

    @app.task(queue="low")
    async def other() -> None: ...

    job = charge.using(
        delay="10m", priority=0, queue="low", key="cust:42", unique=True, retries=0, timeout=timedelta(seconds=1.5)
    ).bind()
    assert (job.delay, job.run_at, job.priority, job.queue) == (600_000_000, None, 0, "low")
    assert (job.key, job.unique, job.retries, job.timeout) == ("cust:42", Unique.LIVE, 0, 1_500_000)
    assert charge.using(at=NOON).bind().run_at == to_us(NOON)
    assert charge.using(key="a", unique="pending").bind().unique is Unique.PENDING
    assert charge.using(key="a").bind().unique is Unique.NO


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        ({"delay": 1, "at": NOON}, "delay"),
        ({"unique": True}, "unique"),
        ({"unique": "always", "key": "a"}, "unique"),
        ({"delay": -1}, "delay"),
        ({"delay": "soon"}, "delay"),
        ({"at": datetime(2030, 1, 1)}, "at"),
        ({"at": 5}, "at"),
        ({"key": ""}, "key"),
        ({"key": "k" * 201}, "key"),
        ({"key": "a\nb"}, "key"),
        ({"priority": 10}, "priority"),
        ({"queue": "no such"}, "queue"),
        ({"retries": -1}, "retries"),
        ({"timeout": 0}, "timeout"),
        ({"dealy": 1}, "dealy"),
    ],
)
def test_a_bad_wish_is_refused_by_its_name(app: Drumbeat, options: dict[str, Any], argument: str) -> None:
    @app.task
    async def charge() -> None: ...

    with pytest.raises(InvalidArguments) as refused:
        charge.using(**options)
    assert refused.value.argument == argument


def test_a_queue_that_nothing_declares_is_refused_with_those_that_are(app: Drumbeat) -> None:
    @app.task(queue="critical")
    async def charge() -> None: ...

    @app.task(queue="low")
    async def other() -> None: ...

    with pytest.raises(InvalidArguments, match=r"'crtical'.*critical, low"):
        charge.using(queue="crtical").bind()


def test_a_queue_of_the_settings_is_declared() -> None:
    app = Drumbeat("sqlite:////nowhere/x.db", queues="reports=2")

    @app.task
    async def charge() -> None: ...

    assert charge.using(queue="reports").bind().queue == "reports"


def test_wrong_arguments_are_refused_at_the_call_naming_them(app: Drumbeat) -> None:
    @app.task
    async def charge(customer: int) -> None: ...

    call: Any = charge.bind
    with pytest.raises(InvalidArguments, match="customer"):
        call("42")
    with pytest.raises(InvalidArguments, match="customer"):
        call()
    with pytest.raises(InvalidArguments, match="custmer"):
        call(1, custmer=2)


async def test_enqueue_checks_arguments_before_it_is_awaited(app: Drumbeat) -> None:
    @app.task
    async def charge(customer: int) -> None: ...

    enqueue: Any = charge.enqueue
    with pytest.raises(InvalidArguments):
        enqueue("42")


def test_arguments_over_the_limit_of_the_settings_are_refused() -> None:
    app = Drumbeat("sqlite:////nowhere/x.db", payload_limit=2_000)

    @app.task
    async def store(text: str) -> None: ...

    assert store.bind("x" * 1_900)  # type: ignore[truthy-bool]
    with pytest.raises(InvalidArguments, match="text"):
        store.bind("x" * 2_000)


def test_enqueue_where_no_loop_runs_says_what_to_use(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    @app.room
    async def hear() -> None: ...

    with errors_of_dropped_calls() as told:
        charge.enqueue()  # type: ignore[unused-coroutine]
        charge.using(delay=1).enqueue()  # type: ignore[unused-coroutine]
        app.enqueue_many([])  # type: ignore[unused-coroutine]
        hear.broadcast()  # type: ignore[unused-coroutine]
    assert [type(error) for error in told] == [WrongContext] * 4
    assert [str(error).partition(": use ")[2] for error in told] == [
        "charge.enqueue_sync",
        "charge.using(...).enqueue_sync",
        "app.sync.enqueue_many",
        "hear.broadcast_sync",
    ]


def test_an_enqueue_may_be_made_where_no_loop_runs_and_awaited_on_one(tmp_path: Path) -> None:
    app = Drumbeat(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    async def charge(order: int) -> None: ...

    async def count() -> int:
        return len(await app.jobs.list())

    with errors_of_dropped_calls() as told:
        asyncio.run(charge.enqueue(1))
        asyncio.run(app.enqueue_many([charge.bind(2), charge.bind(3)]))
        async_to_sync(charge.enqueue)(4)
        unwanted = charge.enqueue(5)
        unwanted.close()
        del unwanted
    assert asyncio.run(count()) == 4
    assert told == []


def test_words_of_other_libraries_are_answered_with_ours(app: Drumbeat) -> None:
    @app.task
    async def charge(order: int) -> None: ...

    with pytest.raises(AttributeError, match=r"a task has no 'delay': here that is enqueue\("):
        charge.delay(1)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"a task has no 'colour'$"):
        _ = charge.colour  # type: ignore[attr-defined]
    assert not hasattr(charge, "apply_async")
    with pytest.raises(InvalidArguments, match="no option 'countdown'; here that is delay="):
        charge.using(countdown=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="a task has no option 'max_retries'; here that is retries="):
        app.task(max_retries=5)(charge.function)  # type: ignore[call-overload]
    with pytest.raises(InvalidArguments, match="no option 'ttl'; here that is expires="):
        charge.using(ttl=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match=r"a task has no option 'bind'; here that is current_job\(\) in the handler"):
        app.task(bind=True)(charge.function)  # type: ignore[call-overload]


async def test_enqueue_sync_on_a_loops_thread_says_what_to_use(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    with pytest.raises(WrongContext, match=r"use await charge\.enqueue"):
        charge.enqueue_sync()
    with pytest.raises(WrongContext, match=r"use await charge\.using\(\.\.\.\)\.enqueue"):
        charge.using(delay=1).enqueue_sync()
    with pytest.raises(WrongContext, match=r"use await app\.enqueue_many"):
        app.sync.enqueue_many([])
    with pytest.raises(WrongContext, match=r"app\.sync\.jobs\.list"):
        app.sync.jobs.list()


def test_crashes_are_retried_to_the_limit_or_not_at_all() -> None:
    app = Drumbeat("sqlite:////nowhere/x.db", crash_limit=5)

    @app.task
    async def sturdy() -> None: ...

    @app.task(on_crash="dead")
    async def fragile() -> None: ...

    assert (sturdy.bind().crash_limit, fragile.bind().crash_limit) == (5, 1)


def test_on_dead_is_a_task_of_its_own_and_named_in_every_job(app: Drumbeat) -> None:
    @app.task(queue="critical")
    async def charge() -> None: ...

    assert charge.bind().on_dead is None

    @charge.on_dead
    async def refund(job: Job, error: JobError) -> None: ...

    assert charge.bind().on_dead == "charge.on_dead"
    task = app._internals.registry["charge.on_dead"]
    assert (task.function, task.is_async, task.options.queue, task.signature.hash) == (
        refund,
        True,
        "critical",
        DEAD_SIGNATURE,
    )


def test_a_second_on_dead_is_refused(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    @charge.on_dead
    def first(job: Job, error: JobError) -> None: ...

    with pytest.raises(ConfigError, match=r"charge\.on_dead"):

        @charge.on_dead
        def second(job: Job, error: JobError) -> None: ...


def test_functions_that_could_not_be_called_are_refused(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    async def refund(job: Job) -> None: ...

    wrong: Any = refund
    with pytest.raises(ConfigError, match="job, error"):
        charge.on_dead(wrong)
    with pytest.raises(ConfigError, match="arguments, signature"):
        charge.upgrade(wrong)
    assert [task.name for task in app._internals.registry] == ["charge"]


@pytest.mark.parametrize(("type", "kind"), [("ValueError", JobFailed), (TIMED_OUT, JobTimedOut)])
def test_on_dead_reads_its_obituary_as_a_job_and_an_error(app: Drumbeat, type: str, kind: type[JobError]) -> None:
    @app.task
    async def charge() -> None: ...

    @charge.on_dead
    def refund(job: Job, error: JobError) -> None: ...

    job = Job(
        id=new_job_id(),
        task="charge",
        queue="default",
        state=JobState.DEAD,
        priority=5,
        key=None,
        args="{}",
        signature="x",
        created_at=NOON,
        due_at=NOON,
        run_at=NOON,
    )
    raw = msgspec.json.encode(DeadLetterPayload(job, Failure(type, "no money"))).decode()
    (read, error), named = app._internals.registry["charge.on_dead"].signature.decode(raw)
    assert (read, named) == (job, {})
    assert isinstance(error, kind)
    assert (error.id, error.message) == (job.id, "no money")


@pytest.mark.parametrize(("raw", "json"), [("{", False), ("{}", True), ('{"job": 1}', True)])
def test_a_broken_obituary_is_undecodable(app: Drumbeat, raw: str, json: bool) -> None:
    @app.task
    async def charge() -> None: ...

    @charge.on_dead
    def refund(job: Job, error: JobError) -> None: ...

    with pytest.raises(Undecodable) as refused:
        app._internals.registry["charge.on_dead"].signature.decode(raw)
    assert refused.value.json is json


def test_an_upgrade_is_kept_once(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    @charge.upgrade
    def first(arguments: dict[str, Any], signature: str) -> dict[str, Any]:
        return arguments

    assert charge.upgrader is first
    with pytest.raises(ConfigError, match="upgrade already"):
        charge.upgrade(first)


def test_a_batch_task_takes_one_value_for_each_job(app: Drumbeat) -> None:
    @app.task(batch=500)
    async def publish(calls: list[Call[int]]) -> list[str | Exception] | None: ...

    assert publish.options.batch == 500
    assert msgspec.json.decode(publish.bind(3).args) == {"value": 3}
    assert publish.returns is str
    wrong: Any = "three"
    with pytest.raises(InvalidArguments, match="value"):
        publish.bind(wrong)


def test_the_function_of_a_batch_task_takes_a_list_of_calls(app: Drumbeat) -> None:
    def publish(numbers: list[int]) -> None: ...

    with pytest.raises(ConfigError, match=r"list\[Call"):
        app.task(batch=5)(publish)  # type: ignore[arg-type]


def test_an_unknown_task_is_told_with_a_near_one(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    with pytest.raises(UnknownTask, match="did you mean 'charge'"):
        app._internals.registry["chrage"]


def test_options_have_the_defaults_of_the_design(app: Drumbeat) -> None:
    @app.task
    async def charge() -> None: ...

    assert (
        charge.options.queue,
        charge.options.resolve_retries(Settings()),
        charge.options.resolve_backoff(Settings()),
        charge.options.timeout_us,
        charge.options.priority,
    ) == (
        "default",
        3,
        Backoff(base=1, cap=30),
        None,
        5,
    )


def test_an_unknown_setting_is_refused_by_the_constructor() -> None:
    wrong: dict[str, Any] = {"concurency": 3}
    with pytest.raises(ConfigError, match="did you mean 'concurrency'"):
        Drumbeat(**wrong)
