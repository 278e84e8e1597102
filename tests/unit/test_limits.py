"""Limits, order, groups and policies of queues as programs write them: what they become, and what is refused and where."""

from collections.abc import Callable
from typing import Any

import pytest

from drumbeat import Call, Drumbeat, Limit, NewJob
from drumbeat.core.limits import Bounds, LineDeclaration, LinePolicy
from drumbeat.errors import ConfigError, InvalidArguments
from drumbeat.tasks.line_policies import declare_lines
from drumbeat.worker.result import HandlerResult, ResultKind
from tests.unit.test_result import claimed, judged

MINUTE = 60_000_000
FIVE = Limit(concurrency=5, per_group=True)


@pytest.fixture
def app() -> Drumbeat:
    return Drumbeat("sqlite:////nowhere/never-opened.db")


async def noop(tenant: str = "a", number: int = 0) -> None: ...


def declared(app: Drumbeat, *queues: str) -> list[LineDeclaration]:
    registry = app._internals.registry
    return declare_lines(registry, registry.declared_policies, queues or ("default",))


def place_of(job: NewJob[Any]) -> tuple[str, str]:
    return job.group, job.lane


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Limit(), "says what it limits"),
        (lambda: Limit(concurrency=0), "concurrency must be a whole number from 1"),
        (lambda: Limit(concurrency=True), "concurrency must be a whole number"),
        (lambda: Limit(concurrency=2.5), "concurrency must be a whole number"),  # type: ignore[arg-type]
        (lambda: Limit(rate=10), 'per="1m"'),
        (lambda: Limit(per="1m"), "rate=100"),
        (lambda: Limit(rate=0, per="1m"), "rate must be a whole number from 1 to 1000000"),
        (lambda: Limit(rate=1_000_001, per="1m"), "rate must be a whole number from 1 to 1000000"),
        (lambda: Limit(rate="10", per="1m"), "rate must be a whole number"),  # type: ignore[arg-type]
        (lambda: Limit(rate=10, per="999ms"), 'per must be from "1s" to "1d"'),
        (lambda: Limit(rate=10, per="25h"), 'per must be from "1s" to "1d"'),
        (lambda: Limit(rate=10, per="soon"), "per must be a timedelta"),
        (lambda: Limit(concurrency=5, per_group="tenant"), "per_group must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_cannot_be_is_refused_where_it_is_made(make: Callable[[], Limit], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        make()
    assert says in str(refused.value)


def test_limits_of_a_task_are_merged_by_where_they_count(app: Drumbeat) -> None:
    limits = [FIVE, Limit(rate=100, per="1m", per_group=True), Limit(concurrency=20, rate=1_000_000, per="1d")]
    app.task(limits=iter(limits))(noop)
    [line] = declared(app)
    each, whole = Bounds(5, 100, MINUTE), Bounds(20, 1_000_000, 24 * 60 * MINUTE)
    assert line == LineDeclaration(queue="default", line="noop", policy=LinePolicy(whole=whole, each=each))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"limits": [FIVE, Limit(concurrency=3, per_group=True)]}, "two of concurrency for each group: 5 and 3"),
        ({"limits": [Limit(rate=1, per="1s"), Limit(rate=2, per="1m")]}, "two of rate: 1 and 2"),
        ({"limits": FIVE}, "limits must be a list"),
        ({"limits": []}, "leave it out for no limits"),
        ({"limits": [5]}, "limits must be a list"),
        ({"limits": 5}, "limits must be a list"),
        ({"order": "fifo"}, "order must be True or 'hold'"),
        ({"order": True, "limits": [FIVE]}, "order= and Limit(concurrency=5, per_group=True) contradict"),
        ({"order": True, "priority": 5}, "order= and priority= contradict"),
        ({"order": "skip", "batch": 10}, "order= and batch= contradict"),
        ({"group": ""}, "group '' is not valid: use text of 1 to 200"),
        ({"group": "x" * 201}, "(it has 201)"),
        ({"group": "a\nb"}, "printable"),
        ({"group": 7}, "group 7 is not valid"),
        ({"fair": True}, "a task has no option 'fair'"),
    ],
)
def test_options_of_a_task_that_cannot_be_are_refused_at_the_decorator(
    app: Drumbeat, options: dict[str, Any], says: str
) -> None:
    async def send(calls: list[Call[int]]) -> None: ...

    with pytest.raises(ConfigError) as refused:
        app.task(**options)(send)
    assert says in str(refused.value)


@pytest.mark.parametrize(("order", "stored"), [(True, "hold"), ("hold", "hold"), ("skip", "skip"), (False, None)])
def test_an_order_holds_the_line_unless_told_otherwise(app: Drumbeat, order: Any, stored: str | None) -> None:
    app.task(order=order, limits=[Limit(concurrency=1, per_group=True)])(noop)
    [line] = declared(app)
    assert line.policy.order == (stored or "")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"weights": {"a": 2}}, "write fair=True too"),
        ({"fair": "yes"}, "fair must be True or False"),
        ({"fair": True, "weights": {"a": 0}}, "the weight of a must be a whole number from 1 to 100"),
        ({"fair": True, "weights": {"a": 101}}, "from 1 to 100"),
        ({"fair": True, "weights": {"": 1}}, "weights: group '' is not valid"),
        ({"fair": True, "weights": ["a"]}, "weights must be a dict"),
        ({"limit": 5}, "a queue has no option 'limit'"),
        ({"order": True, "limits": [FIVE]}, "contradict"),
    ],
)
def test_options_of_a_queue_that_cannot_be_are_refused(app: Drumbeat, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        app.queue("mail", **options)
    assert says in str(refused.value)


def test_a_queue_is_declared_in_one_place(app: Drumbeat) -> None:
    app.queue("mail", fair=True)
    with pytest.raises(ConfigError) as refused:
        app.queue("mail", limits=[FIVE])
    places = [word for word in str(refused.value).replace(";", " ").split() if word.startswith(__file__)]
    assert len(set(places)) == 2


@pytest.mark.parametrize("queue_first", [True, False])
@pytest.mark.parametrize("options", [{"priority": 2}, {"batch": 5}])
def test_an_order_of_a_queue_and_what_a_task_of_it_says_are_refused_naming_both_places(
    app: Drumbeat, options: dict[str, Any], queue_first: bool
) -> None:
    async def send(calls: list[Call[int]]) -> None: ...

    def declare_queue() -> None:
        app.queue("mail", order=True)

    def declare_task() -> None:
        app.task(queue="mail", **options)(send)

    first, second = (declare_queue, declare_task) if queue_first else (declare_task, declare_queue)
    first()
    with pytest.raises(ConfigError) as refused:
        second()
    assert f"{__file__}:{send.__code__.co_firstlineno}" in str(refused.value)
    assert f"{__file__}:{declare_queue.__code__.co_firstlineno + 1}" in str(refused.value)


def test_a_task_with_a_policy_of_its_own_may_have_a_priority_in_an_ordered_queue(app: Drumbeat) -> None:
    app.queue("mail", order=True)
    task = app.task(queue="mail", priority=2, limits=[FIVE])(noop)
    assert task.using(priority=1).bind("a").priority == 1


def test_a_task_replaces_the_policy_of_its_queue_but_its_groups_take_turns(app: Drumbeat) -> None:
    app.queue("mail", limits=[Limit(concurrency=9), FIVE], fair=True, weights={"a": 3})
    app.task(name="own", queue="mail", limits=[Limit(concurrency=1)])(noop)
    app.task(name="other", queue="mail")(noop)
    app.task(name="elsewhere", limits=[FIVE])(noop)
    lines = {line.line: line.policy for line in declared(app, "mail")}
    assert lines == {
        "": LinePolicy(whole=Bounds(9), each=Bounds(5), fair=True, weights={"a": 3}),
        "own": LinePolicy(whole=Bounds(1), fair=True, weights={"a": 3}),
    }


def test_a_queue_without_options_takes_back_what_was_declared(app: Drumbeat) -> None:
    app.queue("default")
    task = app.task(noop)
    assert declared(app) == [LineDeclaration(queue="default", line="", policy=LinePolicy())]
    assert place_of(task.using(group="a").bind()) == ("a", "")


def test_a_job_is_in_the_lane_of_its_task_else_of_its_queue_else_in_none(app: Drumbeat) -> None:
    app.queue("mail", fair=True)
    own = app.task(name="own", queue="mail", limits=[FIVE])(noop)
    other = app.task(name="other", queue="mail")(noop)
    plain = app.task(name="plain")(noop)
    assert place_of(own.bind()) == ("", "own ")
    assert place_of(own.using(group="tenant 7").bind()) == ("tenant 7", "own tenant 7")
    assert place_of(other.using(group="a").bind()) == ("a", " a")
    assert place_of(other.bind()) == ("", " ")
    assert place_of(plain.using(group="a").bind()) == ("a", ""), "only a label"
    assert place_of(plain.using(queue="mail").bind()) == ("", " ")
    assert place_of(plain.bind()) == ("", "")


def test_a_group_is_a_text_or_computed_of_the_arguments_of_the_call(app: Drumbeat) -> None:
    seen: list[Any] = []

    def group_of(*args: Any, **kwargs: Any) -> str:
        seen.append((args, kwargs))
        return "computed"

    fixed = app.task(name="fixed", group="reports", limits=[FIVE])(noop)
    computed = app.task(name="computed", group=group_of, limits=[FIVE])(noop)
    assert place_of(fixed.bind()) == ("reports", "fixed reports")
    assert place_of(computed.bind("a", number=1)) == ("computed", "computed computed")
    assert seen == [(("a",), {"number": 1})]
    assert place_of(computed.using(group="mine").bind()) == ("mine", "computed mine")
    assert len(seen) == 1, "it is not asked where the group is given"


def test_a_group_of_a_batch_task_is_computed_of_its_value(app: Drumbeat) -> None:
    @app.task(batch=5, group=lambda value: f"g{value}", limits=[FIVE])
    async def send(calls: list[Call[int]]) -> None: ...

    assert [place_of(job) for job in (send.bind(1), send.bind(2))] == [("g1", "send g1"), ("g2", "send g2")]


def test_jobs_that_are_sent_to_a_broker_may_be_limited(app: Drumbeat) -> None:
    ship = app.forward("ship", to=Nowhere(), limits=[FIVE], group=lambda value: value["shop"])
    assert place_of(ship.bind({"shop": "a"})) == ("a", "ship a")


class Nowhere:
    batch = 10

    def connect(self, clock: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize("given", ["", "x" * 201, "a\tb", "\ud800", 7])
def test_a_group_that_is_no_name_is_refused_before_anything_is_stored(app: Drumbeat, given: Any) -> None:
    task = app.task(group=lambda tenant: given)(noop)
    for call in (lambda: task.using(group=given), lambda: task.bind("a")):
        with pytest.raises(InvalidArguments) as refused:
            call()
        assert refused.value.argument == "group"


def test_a_function_of_the_group_that_fails_is_named_with_its_error(app: Drumbeat) -> None:
    task = app.task(group=lambda tenant: tenant.id)(noop)
    with pytest.raises(InvalidArguments, match=r"noop: its group= cannot be computed .* AttributeError") as refused:
        task.bind("a")
    assert refused.value.argument == "group"


def test_jobs_in_order_take_no_priority(app: Drumbeat) -> None:
    app.queue("mail", order=True)
    own = app.task(name="own", order=True)(noop)
    queued = app.task(name="queued", queue="mail")(noop)
    for task, place in ((own, own.source_location), (queued, f"{__file__}:")):
        with pytest.raises(InvalidArguments) as refused:
            task.using(priority=1)
        assert "priority=1 contradicts order=" in str(refused.value) and place in str(refused.value)
        assert refused.value.argument == "priority"


def test_a_task_with_limits_is_not_moved_to_another_queue(app: Drumbeat) -> None:
    app.task(name="other", queue="mail")(noop)
    task = app.task(limits=[FIVE])(noop)
    with pytest.raises(InvalidArguments) as refused:
        task.using(queue="mail")
    assert refused.value.argument == "queue" and task.source_location in str(refused.value)
    assert task.using(queue="default").bind().lane == "noop "


@pytest.mark.parametrize(("lane", "follows"), [(" a", " a"), ("charge a", ""), ("", "")])
def test_a_follow_up_stays_in_the_line_of_its_queue(lane: str, follows: str) -> None:
    job = claimed(task="charge", lane=lane, group="a", on_dead="charge.on_dead")
    made = judged(job, HandlerResult(kind=ResultKind.SKIP_RETRY)).follow_up
    assert made is not None
    assert place_of(made) == ("a", follows), "its worker puts it where it belongs, if that is elsewhere"


def test_a_schedule_gives_its_jobs_the_group_and_lane_of_its_task(app: Drumbeat) -> None:
    app.cron("0 3 * * *", limits=[FIVE], group=lambda tenant: tenant, args=["a"])(noop)
    [definition] = app._internals.declared_schedules()
    assert (definition.group, definition.lane) == ("a", "noop a")


def test_a_schedule_may_not_move_jobs_that_run_in_order(app: Drumbeat) -> None:
    task = app.task(order=True)(noop)
    app.every("1h", priority=1)(task)
    with pytest.raises(ConfigError) as refused:
        app._internals.declared_schedules()
    assert "priority=1 contradicts order=" in str(refused.value) and task.source_location in str(refused.value)
