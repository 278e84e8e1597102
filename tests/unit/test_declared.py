"""What the code declares: checked at the decorator, completed when a worker starts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from drumbeat import Drumbeat
from drumbeat.core.schedule import CatchUp, NewSchedule, Origin, Overlap, RuleKind
from drumbeat.errors import ConfigError
from drumbeat.tasks import AsyncTask, SyncTask, Task


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:///nowhere.db", name="billing", version="7", crash_limit=5)


def only(app: Drumbeat) -> NewSchedule:
    [definition] = app._internals.declared_schedules()
    return definition


def test_a_function_becomes_a_task_and_a_schedule_of_the_same_name(app: Drumbeat) -> None:
    @app.cron("0 3 * * *", tz="Europe/Berlin", retries=7, timeout="1m", queue="low")
    async def nightly() -> None: ...

    assert isinstance(nightly, AsyncTask)
    assert (nightly.options.retries, nightly.options.timeout_us, nightly.options.queue) == (7, 60_000_000, "low")
    assert only(app) == NewSchedule(
        name="nightly",
        task="nightly",
        kind=RuleKind.CRON,
        rule="0 3 * * *",
        tz="Europe/Berlin",
        queue="low",
        args="{}",
        signature=nightly.signature.hash,
        crash_limit=5,
        origin=Origin.CODE,
        app="billing",
        version="7",
    )


def test_every_word_arrives_in_the_definition(app: Drumbeat) -> None:
    start, end = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

    @app.every(
        "5m",
        grid=True,
        name="often",
        args={"customer": 42},
        catch_up="all",
        catch_up_limit=7,
        max_late="1h",
        overlap="queue",
        jitter=2.5,
        start=start,
        end=end,
    )
    def bill(customer: int, note: str = "") -> None: ...

    @bill.on_dead
    def mourn(job: Any, error: Any) -> None: ...

    assert isinstance(bill, SyncTask)
    made = only(app)
    assert (made.name, made.task, made.kind, made.rule) == ("often", "bill", RuleKind.GRID, "300000000")
    assert (made.args, made.on_dead) == ('{"customer":42}', "bill.on_dead")
    assert (made.catch_up, made.catch_up_limit, made.max_late) == (CatchUp.ALL, 7, 3_600_000_000)
    assert (made.overlap, made.jitter) == (Overlap.QUEUE, 2_500_000)
    assert (made.start, made.end) == (int(start.timestamp()) * 10**6, int(end.timestamp()) * 10**6)


def test_an_interval_is_counted_from_completion_unless_it_is_on_a_grid(app: Drumbeat) -> None:
    @app.every(3)
    async def sweep() -> None: ...

    assert (only(app).kind, only(app).rule) == (RuleKind.AFTER, "3000000")


def test_schedules_are_stacked_on_one_task_each_with_a_name_and_arguments(app: Drumbeat) -> None:
    @app.cron("0 3 * * *", name="at-night", args=("deep",), priority=9)
    @app.every("1h", name="hourly", args=("shallow",))
    async def clean(how: str) -> None: ...

    assert isinstance(clean, Task)
    first, second = app._internals.declared_schedules()
    assert (first.name, first.args, first.priority) == ("hourly", '{"how":"shallow"}', 5)
    assert (second.name, second.args, second.priority) == ("at-night", '{"how":"deep"}', 9)
    assert first.task == second.task == "clean"
    assert len(app._internals.registry) == 1


def test_on_a_task_the_options_are_for_the_jobs_of_that_schedule(app: Drumbeat) -> None:
    @app.task(retries=1, queue="low")
    async def report() -> None: ...

    assert app.cron("@daily", retries=9, timeout=5)(report) is report
    made = only(app)
    assert (made.retries, made.timeout, made.queue) == (9, 5_000_000, "low")
    assert report.options.retries == 1


def test_two_schedules_of_one_name_are_refused_naming_both_places(app: Drumbeat) -> None:
    @app.every(3)
    async def sweep() -> None: ...

    with pytest.raises(ConfigError, match=r"test_declared.py:\d+.*test_declared.py:\d+.*another name=") as caught:
        app.cron("@daily")(sweep)
    assert caught.value.setting == "name"


async def plain() -> None: ...


async def with_customer(customer: int) -> None: ...


@pytest.mark.parametrize(
    ("words", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "1--100000000 * * * *"}, "cron"),
        ({"cron": "*" * 10_000}, "cron"),
        ({"cron": ["0 3 * * *"]}, "cron"),
        ({"cron": None}, "cron"),
        ({"tz": "../../etc/passwd"}, "tz"),
        ({"tz": None}, "tz"),
        ({"catch_up": "some"}, "catch_up"),
        ({"catch_up": ["all"]}, "catch_up"),
        ({"catch_up_limit": 0}, "catch_up_limit"),
        ({"catch_up_limit": True}, "catch_up_limit"),
        ({"max_late": "soon"}, "max_late"),
        ({"max_late": 0}, "max_late"),
        ({"overlap": "maybe"}, "overlap"),
        ({"jitter": -1}, "jitter"),
        ({"start": "2026-01-01"}, "start"),
        ({"start": datetime(2026, 1, 1)}, "start"),
        ({"start": datetime(2026, 1, 2, tzinfo=UTC), "end": datetime(2026, 1, 1, tzinfo=UTC)}, "end"),
        ({"name": "a b"}, "name"),
        ({"name": ""}, "name"),
        ({"args": "abc"}, "args"),
        ({"args": {1: 2}}, "args"),
        ({"args": (1,)}, "args"),
        ({"args": {"customer": 1}}, "args"),
        ({"retries": -1}, "retries"),
        ({"queue": "a b"}, "queue"),
        ({"catchup": "all"}, "catchup"),
    ],
)
def test_what_cannot_be_is_refused_at_the_decorator_naming_the_field(
    app: Drumbeat, words: dict[str, Any], field: str
) -> None:
    given: dict[str, Any] = {"cron": "0 3 * * *", **words}
    with pytest.raises(ConfigError) as caught:
        app.cron(given.pop("cron"), **given)(plain)
    assert caught.value.setting == field
    assert field in str(caught.value)
    assert app._internals.declared_schedules() == []


@pytest.mark.parametrize("interval", [0, 0.01, -1, "often", None, float("nan"), True])
def test_an_interval_that_cannot_be_is_refused(app: Drumbeat, interval: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        app.every(interval)(plain)
    assert caught.value.setting in ("every", "cron")


def test_missing_arguments_are_refused_at_the_decorator(app: Drumbeat) -> None:
    with pytest.raises(ConfigError, match=r"args: .*customer") as caught:
        app.every(3)(with_customer)
    assert caught.value.setting == "args"


def test_options_of_the_function_are_refused_on_a_task(app: Drumbeat) -> None:
    task = app.task(plain)
    with pytest.raises(ConfigError, match="belongs to the task") as caught:
        app.every(3, pool="process")(task)
    assert caught.value.setting == "pool"


def test_a_task_of_another_app_is_refused(app: Drumbeat) -> None:
    task = Drumbeat().task(plain)
    for decorate in (app.every(3), app.on_start):
        with pytest.raises(ConfigError, match="'plain' belongs to another app"):
            decorate(task)


def test_a_queue_that_no_worker_takes_is_refused_when_a_worker_starts(app: Drumbeat) -> None:
    app.every(3, queue="loww")(app.task(plain))
    with pytest.raises(ConfigError, match="no worker would take it") as caught:
        app._internals.declared_schedules()
    assert caught.value.setting == "queue"


def test_annotations_that_are_defined_later_wait_until_a_worker_starts(app: Drumbeat) -> None:
    namespace: dict[str, Any] = {"app": app}
    exec("@app.every(3, args=(5,))\ndef use(later: 'Later') -> None: ...\n", namespace)
    namespace["Later"] = int
    assert only(app).args == '{"later":5}'


def test_start_up_calls_are_kept_in_their_order_with_their_words(app: Drumbeat) -> None:
    @app.on_start
    async def first() -> None: ...

    @app.on_start(role="worker", once=True, lock="warm", name="warm-up", args=(3,), retries=0, timeout=5)
    def second(size: int) -> None: ...

    one, two = app._internals.declarations.startup_calls.values()
    assert (one.name, one.task, one.role, one.once, one.lock) == ("first", first, "both", False, None)
    assert (two.name, two.task, two.role, two.once, two.lock) == ("warm-up", second, "worker", True, "warm")
    assert (two.args, two.kwargs) == ((3,), {})
    assert (second.options.retries, second.options.timeout_us) == (0, 5_000_000)
    assert second.name == "second"


@pytest.mark.parametrize(
    ("words", "field"),
    [({"role": "boss"}, "role"), ({"once": 1}, "once"), ({"lock": "a b"}, "lock"), ({"args": (1,)}, "args")],
)
def test_wrong_words_of_a_start_up_call_are_refused(app: Drumbeat, words: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        app.on_start(**words)(plain)
    assert caught.value.setting == field


def test_a_start_up_call_on_a_task_has_the_options_of_the_task(app: Drumbeat) -> None:
    task = app.task(plain)
    with pytest.raises(ConfigError, match="belongs to the task"):
        app.on_start(retries=3)(task)
    assert app.on_start(once=True)(task) is task
    with pytest.raises(ConfigError, match="two start-up tasks"):
        app.on_start(task)
