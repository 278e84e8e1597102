"""A plan: everything that a seed decides before its run. `draw(seed)` makes one; `shrink` (main.py) makes smaller ones of it.

Each part is drawn from a generator of its own, and each seed draws its own rates and few kinds of faults (a swarm): a mixture
of everything in every seed would rarely show what needs many of one kind. Half of the seeds are aimed (aims.py): chance
alone hardly ever brings about what they do.
"""

import random

from msgspec.structs import replace

from tests.simulation.aims import aim
from tests.simulation.faults import CallFault, CallFaultKind, NodeFault
from tests.simulation.plan_format import JobKind, Plan, PlannedJob

CALLS = (
    "jobs.report_and_claim",
    "jobs.add",
    "instances.heartbeat",
    "instances.declare_dead",
    "instances.register",
    "schedules.fire",
    "schedules.get_due",
    "locks.acquire",
    "locks.ticket_status",
    "locks.release",
    "jobs.list_running",
    "jobs.cancel",
)


def draw(seed: int, *, rich: bool = True) -> Plan:
    dice = random.Random(f"plan {seed}")
    faults_until = dice.uniform(4.0, 14.0)
    workers = dice.choice((1, 2, 2, 2, 3))
    kinds: list[JobKind] = ["quick", "flaky", "slow", "unique", "batch"]
    if rich:
        kinds += ["locked", "snoozer", "doomed", "broadcast", "timed"]
    chosen = dice.sample(kinds, dice.randint(1, 3))
    plan = Plan(
        seed=seed,
        workers=workers,
        jobs=tuple(_draw_job(random.Random(f"job {seed} {n}"), chosen, faults_until) for n in range(10)),
        node_faults=_draw_node_faults(random.Random(f"nodes {seed}"), workers, faults_until),
        call_faults=_draw_call_faults(random.Random(f"calls {seed}"), workers, faults_until),
        faults_until=faults_until,
        dead_after=dice.choice((2.0, 3.0, 5.0)),
        heartbeat=dice.choice((0.3, 0.5)),
        concurrency=dice.choice((1, 2, 4)),
        batch=dice.choice((500, 500, 2)),
        lock_lease=dice.choice((1.5, 4.0)),
        every=dice.choice((None, 1.0, 2.5)),
    )
    if not rich:
        return plan
    plan = aim(plan, random.Random(f"aim {seed}"))
    if seed % 4 == 1:
        return _add_graphs(plan, random.Random(f"graphs {seed}"))
    if seed % 8 == 6:
        return _add_sagas(plan, random.Random(f"sagas {seed}"))
    return _add_limited(plan, random.Random(f"limited {seed}")) if seed % 8 in (2, 4) else plan


def _add_graphs(plan: Plan, dice: random.Random) -> Plan:
    """Beside the other jobs, so that what other seeds have shown stays."""
    graphs = tuple(
        PlannedJob(
            at=dice.uniform(0.0, plan.faults_until),
            kind="graph",
            shape=dice.getrandbits(40),
            delay=dice.uniform(0.0, 4.0),
            seconds=dice.uniform(0.0, 4.0),
            cancel_after=dice.uniform(0.0, 2.0) if dice.random() < 0.25 else None,
        )
        for _ in range(dice.randint(2, 4))
    )
    return replace(plan, jobs=plan.jobs + graphs)


def _add_limited(plan: Plan, dice: random.Random) -> Plan:
    """Likewise: bursts of jobs of a few groups. In half of these seeds processes die often, and their room must come back."""
    kinds: list[JobKind] = dice.sample(("limited", "rated", "ordered"), dice.randint(1, 3))
    bursts = tuple(
        PlannedJob(
            at=dice.uniform(0.0, plan.faults_until),
            kind=dice.choice(kinds),
            delay=dice.choice((0.0, 0.0, 0.0, dice.uniform(0.0, 3.0))),
            seconds=dice.choice((0.0, 0.05, 0.5)),
            failures=dice.choice((0, 0, 0, 1)),
            key=f"group-{dice.randint(1, 2)}",
            cancel_after=dice.uniform(0.0, 3.0) if dice.random() < 0.15 else None,
        )
        for _ in range(dice.randint(6, 12))
    )
    plan = replace(plan, jobs=plan.jobs + bursts)
    if dice.random() < 0.5:
        kills = tuple(
            NodeFault(
                at=dice.uniform(0.5, plan.faults_until), kind="kill", node=dice.randrange(plan.workers), seconds=0.1
            )
            for _ in range(3)
        )
        plan = replace(plan, node_faults=plan.node_faults + kills)
    return plan


def _add_sagas(plan: Plan, dice: random.Random) -> Plan:
    """Likewise."""
    sagas = tuple(
        PlannedJob(
            at=dice.uniform(0.0, plan.faults_until),
            kind="saga",
            seconds=dice.choice((0.0, 0.0, 0.5)),
            failures=dice.choice((0, 0, 1, 2)),
            cancel_after=dice.uniform(0.0, 4.0) if dice.random() < 0.15 else None,
        )
        for _ in range(dice.randint(3, 6))
    )
    plan = replace(plan, jobs=plan.jobs + sagas)
    match dice.choice(("zombies", "suspensions", "answers", "any")):
        case "zombies":  # a record is on its way while the process that sent it dies, and its job runs elsewhere
            kills = tuple(
                NodeFault(at=dice.uniform(0.5, plan.faults_until), kind="kill", node=node, seconds=0.1)
                for node in range(plan.workers)
                for _ in range(2)
            )
            plan = replace(plan, node_faults=plan.node_faults + kills, dead_after=2.0)
            return _with_fault(plan, dice, "late request", "steps.record", 8.0)
        case "suspensions":  # a signal comes between the look for it and the end of the run
            again = tuple(replace(saga, at=dice.uniform(0.0, plan.faults_until)) for saga in sagas)
            plan = replace(plan, jobs=plan.jobs + again)
            return _with_fault(plan, dice, "late request", "jobs.report_and_claim", 2.0)
        case "answers":
            return _with_fault(plan, dice, "lost answer", "steps.", 0.1)
        case _:
            kinds: tuple[CallFaultKind, ...] = ("late request", "slow", "ghost request", "repeated", "lost request")
            return _with_fault(plan, dice, dice.choice(kinds), "steps.", dice.choice((0.1, 1.0, 6.0)))


def _with_fault(plan: Plan, dice: random.Random, kind: CallFaultKind, call: str, delay: float) -> Plan:
    """Of most such calls, nearly all the time."""
    fault = CallFault(
        start=dice.uniform(0.0, 1.0),
        end=plan.faults_until,
        kind=kind,
        rate=dice.choice((0.3, 0.8)),
        node=None,
        call=call,
        delay=delay,
        seed=dice.getrandbits(40),
    )
    return replace(plan, call_faults=(*plan.call_faults, fault))


def _draw_job(dice: random.Random, kinds: list[JobKind], until: float) -> PlannedJob:
    kind = dice.choice(kinds)
    return PlannedJob(
        at=dice.uniform(0.0, until),
        kind=kind,
        delay=dice.choice((0.0, 0.0, dice.uniform(0.0, 5.0))),
        seconds=_draw_seconds(dice, kind),
        failures=dice.randint(1, 3) if kind == "flaky" else 0,
        key=f"key-{dice.randint(1, 2)}" if kind == "unique" else "",
        cancel_after=dice.uniform(0.0, 3.0) if dice.random() < 0.15 else None,
    )


def _draw_seconds(dice: random.Random, kind: JobKind) -> float:
    if kind == "timed":
        return dice.uniform(8.0, 12.0)
    return dice.uniform(1.0, 6.0) if kind in ("slow", "locked") else dice.choice((0.0, 0.05, 0.5))


def _draw_node_faults(dice: random.Random, workers: int, until: float) -> tuple[NodeFault, ...]:
    kinds = dice.sample(("kill", "pause", "stop", "clock", "power"), dice.choice((0, 1, 1, 2)))
    return tuple(
        NodeFault(
            at=dice.uniform(0.2, until),
            kind=kind,  # type: ignore[arg-type]
            node=dice.randrange(workers),
            seconds=dice.uniform(-30.0, 30.0) if kind == "clock" else dice.choice((0.1, 1.0, dice.uniform(1.0, 12.0))),
        )
        for kind in kinds
        for _ in range(1 if kind == "power" else dice.randint(1, 3))
    )


def _draw_call_faults(dice: random.Random, workers: int, until: float) -> tuple[CallFault, ...]:
    kinds: tuple[CallFaultKind, ...] = (
        "lost request",
        "lost answer",
        "late request",
        "late answer",
        "slow",
        "ghost request",
        "outage",
        "repeated",
        "full",
    )
    faults = []
    for number in range(dice.choice((0, 1, 2, 4, 6))):
        kind = dice.choice(kinds)
        start = dice.uniform(0.0, until)
        faults.append(
            CallFault(
                start=start,
                end=min(until, start + dice.choice((0.3, 2.0, 6.0, 14.0))),
                kind=kind,
                rate=1.0 if kind in ("outage", "full") else dice.choice((0.05, 0.3, 0.8)),
                node=dice.choice((None, dice.randrange(workers))),
                call=dice.choice((None, None, dice.choice(CALLS), "jobs.report_and_claim")),
                delay=dice.choice((0.01, 1.0, 8.0)),
                seed=dice.getrandbits(40) + number,
            )
        )
    return tuple(faults)
