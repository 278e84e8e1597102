"""Which claimed jobs belong under other limits than those that they were claimed under."""

from typing import Any

import msgspec
import pytest

from drumbeat import Drumbeat, Limit
from drumbeat.core.claim import ClaimedJob, Outcome
from drumbeat.core.job import OutcomeKind
from drumbeat.core.limits import Bounds, LineInfo, LinePolicy
from drumbeat.tasks.line_policies import LineView, declare_lines
from drumbeat.worker.lane_check import LaneCheck
from tests.unit.test_result import claimed

FIVE = [Limit(concurrency=5, per_group=True)]


@pytest.fixture
def app() -> Drumbeat:
    """With a task that has limits of its own, one under those of its queue, and one under none."""
    app = Drumbeat("sqlite:////nowhere/never-opened.db")
    app.queue("mail", fair=True)

    async def send(tenant: str = "a") -> None: ...

    app.task(name="own", queue="mail", limits=FIVE)(send)
    app.task(name="queued", queue="mail", group="reports")(send)
    app.task(name="computed", limits=FIVE, group=lambda tenant: f"tenant:{tenant}")(send)
    app.task(name="plain")(send)
    return app


def check(app: Drumbeat, *stored: LineInfo) -> LaneCheck:
    registry = app._internals.registry
    view = LineView(declare_lines(registry, registry.declared_policies, ("mail", "default")))
    if stored:
        view.update(stored)
    return LaneCheck(registry, view)


def job(task: str, queue: str, lane: str = "", **facts: Any) -> ClaimedJob:
    args = msgspec.json.encode({"tenant": "7"}).decode()
    return claimed(task=task, queue=queue, lane=lane, **({"args": args} | facts))


@pytest.mark.parametrize(
    ("claimed_job", "lane"),
    [
        (job("own", "mail"), "own "),
        (job("own", "mail", group="a"), "own a"),
        (job("own", "mail", " a", group="a"), "own a"),
        (job("queued", "mail"), " reports"),
        (job("queued", "mail", group="a"), " a"),
        (job("queued", "mail", "queued a", group="a"), " a"),
        (job("plain", "mail"), " "),
        (job("computed", "default"), "computed tenant:7"),
        (job("computed", "default", group="mine"), "computed mine"),
        (job("computed", "default", args="[1"), "computed "),
    ],
)
def test_a_job_that_is_not_in_its_lane_is_released_into_it(app: Drumbeat, claimed_job: ClaimedJob, lane: str) -> None:
    [outcome] = check(app).find_misplaced([claimed_job])
    assert outcome == Outcome(id=claimed_job.id, token=claimed_job.token, kind=OutcomeKind.RELEASED, lane=lane)


@pytest.mark.parametrize(
    "claimed_job",
    [
        job("own", "mail", "own a", group="a"),
        job("own", "elsewhere"),
        job("queued", "mail", " a", group="a"),
        job("plain", "default"),
        job("plain", "default", "plain a", group="a"),
        job("unknown", "mail"),
        job("unknown", "mail", "unknown a", group="a"),
        job("computed", "default", "computed other", group="other"),
    ],
)
def test_a_job_that_is_where_it_belongs_or_of_which_this_code_says_nothing_is_run(
    app: Drumbeat, claimed_job: ClaimedJob
) -> None:
    assert check(app).find_misplaced([claimed_job]) == []


def test_a_job_in_a_lane_stays_there_where_a_newer_version_declares_the_line_otherwise(app: Drumbeat) -> None:
    other = LineInfo(queue="mail", line="own", policy=LinePolicy(), declared=LinePolicy())
    old = check(app, other)
    assert old.find_misplaced([job("own", "mail", " a", group="a")]) == []
    [outcome] = old.find_misplaced([job("own", "mail", group="a")])
    assert outcome.lane == "own a", "what is in no lane at all is put into one"


def test_only_the_misplaced_of_many_are_named(app: Drumbeat) -> None:
    jobs = [job("own", "mail", "own a", group="a", id="1"), job("own", "mail", id="2"), job("plain", "default", id="3")]
    assert [outcome.id for outcome in check(app).find_misplaced(jobs)] == ["2"]


def test_jobs_of_limited_lanes_start_before_others(app: Drumbeat) -> None:
    changed = LineInfo(
        queue="mail", line="", policy=LinePolicy(each=Bounds(1), fair=True), declared=LinePolicy(fair=True)
    )
    for lanes, fair_is_limited in ((check(app), False), (check(app, changed), True)):
        found = [lanes.is_limited(each) for each in (job("plain", "default"), job("queued", "mail", " a"))]
        assert found == [False, fair_is_limited]
    assert check(app).is_limited(job("own", "mail", "own a"))
    assert check(app).is_limited(job("unknown", "mail", "unknown a")), "what is not known is limited"
