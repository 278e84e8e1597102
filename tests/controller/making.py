"""Short words for what tests of the controller do again and again. No assertions here."""

from typing import Any

from drumbeat.clock import Clock
from drumbeat.controller.elector import Elector
from drumbeat.controller.firing import Firer
from drumbeat.errors import StoreUnavailable
from drumbeat.events import Events
from drumbeat.ids import InstanceId
from drumbeat.model.instance import Leader, Pulse
from drumbeat.model.job import Job, JobFilter
from drumbeat.model.schedule import CatchUp, NewSchedule, Overlap, RuleKind
from drumbeat.service import Patience
from drumbeat.store.protocol import Store

ME, YOU = InstanceId("me"), InstanceId("you")
SECOND, DAY = 1_000_000, 86_400_000_000


class Leading(Elector):
    """Believes that it leads, whatever it hears."""

    leads = True  # type: ignore[assignment]


def elector(clock: Clock, *, leading: bool = False, **options: Any) -> Elector:
    return (Leading if leading else Elector)(clock, 10.0, lambda leader: None, **options)


class Silent:
    """A teller that tells nothing."""

    is_away = False

    def begins(self, part: object, error: StoreUnavailable) -> None: ...
    def ends(self, part: object) -> None: ...


def patience(clock: Clock) -> Patience:
    return Patience(clock, Silent())


def firer(store: Store, clock: Clock, *, leading: bool = True, events: Events | None = None) -> Firer:
    return Firer(
        store.schedules,
        elector(clock, leading=leading),
        clock,
        events or Events(),
        patience(clock),
        heartbeat=1.0,
        identity=lambda: ME,
    )


def pulse(now: int = 0, *, leader: InstanceId | None = None, next_fire: int | None = None) -> Pulse:
    led_by = None if leader is None else Leader(instance=leader, term=1)
    return Pulse(
        alive=True,
        beat=1,
        now=now,
        running=0,
        cancels=[],
        waiting=[],
        peers=[],
        leader=led_by,
        next_fire=next_fire,
    )


def definition(name: str = "nightly", rule: str = "0 3 * * *", **changes: Any) -> NewSchedule:
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


def daily(moment: int, name: str = "daily") -> NewSchedule:
    """Every day from this moment on."""
    return definition(name, str(DAY), kind=RuleKind.GRID, start=moment)


async def put(store: Store, schedule: NewSchedule, next_at: int | None) -> None:
    await store.schedules.put(schedule, revision=None, cursor=None, next_at=next_at, by="test")


async def jobs(store: Store) -> list[Job]:
    return await store.inspect.jobs(JobFilter(limit=100_000))
