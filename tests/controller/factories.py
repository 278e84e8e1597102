"""Short words for what tests of the controller do again and again. No assertions here."""

from typing import Any

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.controller.firer import Firer
from drumbeat.core.instance import HeartbeatReply, Leader
from drumbeat.core.job import Job
from drumbeat.core.job_query import JobFilter
from drumbeat.core.schedule import CatchUp, NewSchedule, Overlap, RuleKind
from drumbeat.errors import StoreUnavailable
from drumbeat.events import Events
from drumbeat.ids import InstanceId
from drumbeat.service import OutageBackoff
from drumbeat.store.job_reads import find_jobs
from drumbeat.store.protocol import Store

ME, YOU = InstanceId("me"), InstanceId("you")
SECOND, DAY = 1_000_000, 86_400_000_000


class AlwaysLeader(Elector):
    """Believes that it leads, whatever it hears."""

    is_leader = True


def make_elector(clock: Clock, *, leading: bool = False, **options: Any) -> Elector:
    return (AlwaysLeader if leading else Elector)(clock, 10.0, lambda leader: None, **options)


class NullOutageListener:
    """A teller that tells nothing."""

    is_away = False

    def on_failure(self, part: object, error: StoreUnavailable) -> None: ...
    def on_answer(self, part: object) -> None: ...


def make_backoff(clock: Clock) -> OutageBackoff:
    return OutageBackoff(clock, NullOutageListener())


def make_firer(store: Store, clock: Clock, *, leading: bool = True, events: Events | None = None) -> Firer:
    return Firer(
        store,
        make_elector(clock, leading=leading),
        clock,
        make_backoff(clock),
        events or Events(),
        heartbeat=1.0,
        identity=lambda: ME,
    )


def make_reply(now: int = 0, *, leader: InstanceId | None = None, next_fire: int | None = None) -> HeartbeatReply:
    led_by = None if leader is None else Leader(instance=leader, term=1)
    return HeartbeatReply(
        alive=True,
        beat=1,
        now=now,
        running=0,
        cancel_requests=[],
        blocked_on=[],
        peers=[],
        leader=led_by,
        next_fire_at=next_fire,
    )


def make_schedule(name: str = "nightly", rule: str = "0 3 * * *", **changes: Any) -> NewSchedule:
    facts: dict[str, Any] = {
        "task": "greet",
        "kind": RuleKind.CRON,
        "queue": "default",
        "args": "{}",
        "signature": "s1",
        "overlap": Overlap.ALLOW,
        "catch_up": CatchUp.ALL,
        "catch_up_limit": 1_000,
    }
    return NewSchedule(name=name, rule=rule, **(facts | changes))


def make_daily_schedule(moment: int, name: str = "daily") -> NewSchedule:
    """Every day from this time on."""
    return make_schedule(name, str(DAY), kind=RuleKind.GRID, start=moment)


async def put_schedule(store: Store, schedule: NewSchedule, next_at: int | None) -> None:
    await store.schedules.put(schedule, revision=None, cursor=None, next_at=next_at, by="test")


async def list_jobs(store: Store) -> list[Job]:
    return await find_jobs(store, JobFilter(limit=100_000))
