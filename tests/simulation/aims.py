"""Aimed plans: faults that belong together, at the calls and times where a mistake in the protocol would show.

zombies      a worker is cut off for longer than `dead_after` while its jobs end; its reports then arrive late and again,
             under its new name, when it has claimed the same jobs anew
heartbeats   heartbeats fail now and then, for observers too, and one node is silent for as long as `dead_after`
leases       calls about locks are slow both ways, beyond their lease
claims       the answers to claims take up to two seconds, on both lanes
buffers      jobs are cancelled while a worker holds them without running them
returns      unique jobs go back to their queue, and others of their key come
failovers    a leader among steady nodes is killed or asked to stop, and a schedule goes on
holders      a process dies while it holds a lock, or stands in the queue of one
endings      a worker with running jobs is asked to stop, and more jobs come
reboots      the power is cut while locks are held, and the clock is behind afterwards
"""

import random
from collections.abc import Callable

from msgspec.structs import replace

from tests.simulation.faults import CallFault, CallFaultKind, NodeFault, NodeFaultKind
from tests.simulation.plan_format import Plan, PlannedJob

REPORT = "jobs.report_and_claim"


def aim(plan: Plan, dice: random.Random) -> Plan:
    """Half of the plans stay as they are."""
    if plan.seed % 8 == 7:  # what other seeds have shown stays
        chosen = dice.choice(LATER_AIMS)
    elif plan.seed % 16 == 3:
        chosen = aim_at_reboots
    elif dice.random() < 0.5:
        return plan
    else:
        chosen = dice.choice(AIMS)
    if dice.random() < 0.7:  # else the other faults stay
        plan = replace(plan, node_faults=(), call_faults=())
    plan = chosen(plan, dice)
    ends = [fault.end for fault in plan.call_faults] + [fault.at for fault in plan.node_faults]
    return replace(plan, faults_until=max([plan.faults_until, *ends]))


def aim_at_zombies(plan: Plan, dice: random.Random) -> Plan:
    start = dice.uniform(0.5, 2.0)
    back = start + plan.dead_after + dice.uniform(0.5, 2.5)
    jobs = tuple(
        PlannedJob(at=dice.uniform(0.0, start), kind="slow", seconds=dice.uniform(0.5, plan.dead_after))
        for _ in range(4)
    )
    faults = (
        _fault(dice, "outage", start, back, node=0),
        _fault(dice, dice.choice(("ghost request", "late request")), back, back + 5.0, node=0, call=REPORT, delay=3.0),
    )
    return replace(
        plan,
        workers=2,
        controller=dice.choice((1, 1, None)),
        node_faults=_keep_below(plan, 2),
        jobs=jobs + plan.jobs[4:],
        call_faults=plan.call_faults + faults,
    )


def aim_at_deaths(plan: Plan, dice: random.Random) -> Plan:
    start = dice.uniform(0.5, 2.0)
    back = start + plan.dead_after + dice.uniform(0.5, 4.0)
    faults = (
        _fault(dice, "outage", start, back, node=0, call="instances.heartbeat"),
        _fault(dice, "late answer", start, back, node=0, call=REPORT, delay=2 * plan.dead_after),
    )
    jobs = tuple(
        PlannedJob(
            at=dice.uniform(0.0, back),
            kind="slow",
            seconds=dice.uniform(0.5, 2.0),
            cancel_after=dice.uniform(0.0, back) if dice.random() < 0.3 else None,
        )
        if dice.random() < 0.6
        else replace(job, at=dice.uniform(0.0, back), delay=0.0)
        for job in plan.jobs
    )
    return replace(
        plan,
        workers=2,
        controller=dice.choice((1, None)),
        node_faults=_keep_below(plan, 2),
        jobs=jobs,
        call_faults=plan.call_faults + faults,
    )


def aim_at_heartbeats(plan: Plan, dice: random.Random) -> Plan:
    start, silent = dice.uniform(0.0, 2.0), dice.uniform(1.0, 3.0)
    end = silent + plan.dead_after + dice.uniform(1.0, 3.0)
    call = "instances.heartbeat"
    faults = (
        _fault(dice, "outage", silent, end, node=0, call=call),
        _fault(dice, dice.choice(("lost request", "lost answer")), start, end, call=call, rate=dice.choice((0.1, 0.3))),
    )
    return replace(plan, workers=max(2, plan.workers), call_faults=plan.call_faults + faults)


def aim_at_leases(plan: Plan, dice: random.Random) -> Plan:
    start, lease = dice.uniform(0.0, 2.0), 1.5
    jobs = tuple(
        replace(job, kind="locked", seconds=dice.uniform(1.0, 5.0), key="", failures=0) for job in plan.jobs[:6]
    )
    node = dice.choice((None, 0))
    fault = _fault(dice, "slow", start, start + 10.0, node=node, call="locks.", delay=lease * dice.uniform(0.7, 1.5))
    return replace(plan, lock_lease=lease, jobs=jobs, call_faults=(*plan.call_faults, fault))


def aim_at_claims(plan: Plan, dice: random.Random) -> Plan:
    start = dice.uniform(0.0, 2.0)
    fault = _fault(dice, "late answer", start, start + 10.0, call=REPORT, rate=dice.choice((0.3, 0.6)), delay=2.0)
    return replace(plan, batch=2, heartbeat=0.3, call_faults=(*plan.call_faults, fault))


def aim_at_buffers(plan: Plan, dice: random.Random) -> Plan:
    """A worker that has run only quick jobs takes more than it can start; then a slower one holds them up."""
    jobs = [PlannedJob(at=0.1, kind="quick"), PlannedJob(at=0.2, kind="quick")]
    burst = dice.uniform(0.5, 3.0)
    jobs += [PlannedJob(at=burst, kind="quick", seconds=dice.uniform(0.3, 1.2))]
    jobs += [PlannedJob(at=burst + 0.01, kind="quick", cancel_after=dice.uniform(0.0, 0.5)) for _ in range(5)]
    return replace(plan, workers=1, concurrency=1, heartbeat=0.3, jobs=tuple(jobs), node_faults=_keep_below(plan, 1))


def aim_at_returns(plan: Plan, dice: random.Random) -> Plan:
    jobs = tuple(
        PlannedJob(
            at=dice.uniform(0.0, 5.0),
            kind="unique",
            key="key-1",
            seconds=dice.choice((0.05, 0.5, 2.0)),
            failures=dice.randint(0, 2),
        )
        for _ in plan.jobs
    )
    return replace(plan, jobs=jobs)


def aim_at_failovers(plan: Plan, dice: random.Random) -> Plan:
    """Late enough that the other node is known to be steady, and with a lease that is longer than a failover may take. A fire
    time is due soon after, and no other before that lease ends: it would be skipped for the one that follows."""
    kind: NodeFaultKind = dice.choice(("kill", "stop"))
    fault = NodeFault(at=dice.uniform(8.8, 9.8), kind=kind, node=dice.randrange(2), seconds=8.0)
    return replace(
        plan, workers=2, every=5.0, dead_after=5.0, node_faults=(*_keep_below(plan, 2), fault), jobs=plan.jobs[:5]
    )


def aim_at_holders(plan: Plan, dice: random.Random) -> Plan:
    jobs = tuple(PlannedJob(at=dice.uniform(0.0, 1.0), kind="locked", seconds=dice.uniform(2.0, 6.0)) for _ in range(5))
    fault = NodeFault(at=dice.uniform(2.0, 8.0), kind="kill", node=dice.randrange(2), seconds=4.0)
    return replace(
        plan, workers=2, concurrency=2, lock_lease=1.5, jobs=jobs, node_faults=(*_keep_below(plan, 2), fault)
    )


def aim_at_endings(plan: Plan, dice: random.Random) -> Plan:
    at = dice.uniform(2.0, 4.0)
    jobs = [PlannedJob(at=dice.uniform(0.0, at), kind="slow", seconds=dice.uniform(0.5, 6.0)) for _ in range(4)] + [
        PlannedJob(at=at + dice.uniform(0.05, 3.0), kind="quick") for _ in range(4)
    ]
    faults = [NodeFault(at=at, kind="stop", node=node, seconds=dice.uniform(0.5, 5.0)) for node in range(2)]
    kept = tuple(faults[: dice.choice((1, 2))])
    jobs += [PlannedJob(at=dice.uniform(0.0, at), kind="quick") for _ in range(2)]
    return replace(plan, workers=2, concurrency=2, jobs=tuple(jobs), node_faults=(*_keep_below(plan, 2), *kept))


def aim_at_reboots(plan: Plan, dice: random.Random) -> Plan:
    jobs = tuple(PlannedJob(at=dice.uniform(0.0, 2.0), kind="locked", seconds=dice.uniform(1.0, 4.0)) for _ in range(5))
    faults = (
        NodeFault(at=dice.uniform(1.0, 5.0), kind="clock", node=0, seconds=-dice.uniform(5.0, 60.0)),
        NodeFault(at=dice.uniform(2.0, 6.0), kind="power", node=0, seconds=dice.uniform(0.1, 2.0)),
    )
    return replace(plan, jobs=jobs, node_faults=plan.node_faults + faults)


def _keep_below(plan: Plan, workers: int) -> tuple[NodeFault, ...]:
    return tuple(fault for fault in plan.node_faults if fault.node < workers)


def _fault(
    dice: random.Random,
    kind: CallFaultKind,
    start: float,
    end: float,
    *,
    node: int | None = None,
    call: str | None = None,
    rate: float | None = None,
    delay: float = 0.0,
) -> CallFault:
    if rate is None:
        rate = 1.0 if kind == "outage" else 0.8
    return CallFault(
        start=start, end=end, kind=kind, rate=rate, node=node, call=call, delay=delay, seed=dice.getrandbits(40)
    )


AIMS: tuple[Callable[[Plan, random.Random], Plan], ...] = (
    aim_at_zombies,
    aim_at_deaths,
    aim_at_heartbeats,
    aim_at_leases,
    aim_at_claims,
    aim_at_buffers,
    aim_at_returns,
)
LATER_AIMS: tuple[Callable[[Plan, random.Random], Plan], ...] = (aim_at_failovers, aim_at_holders, aim_at_endings)
