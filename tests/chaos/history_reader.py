"""The journal and the store at the end, as the History that the checkers of tests/proof take."""

from collections.abc import Sequence

import msgspec

from drumbeat.core.job_query import JobFilter
from drumbeat.ids import JobId
from drumbeat.store.protocol import Store
from tests.chaos.journal import Entry
from tests.chaos.program import FORWARDED, INTERRUPTIBLE, LIMITS, PERIOD, POISONOUS, SCHEDULE, TIMEOUTS
from tests.proof import history as proof
from tests.proof.call_observer import LISTS
from tests.proof.final_state import read_fire, read_job, read_signals

PAGE = 1_000
CLOCK_SLACK_US = 50_000
"""Workers estimate the store's clock, by which they say when a run has ended."""


def build_history(entries: Sequence[Entry], disturbances: list[proof.Disturbance], *, grace: float) -> proof.History:
    history = proof.History(
        disturbances=disturbances, timeouts=TIMEOUTS, poisonous=POISONOUS, grace=grace, forwarded=FORWARDED
    )
    history.interruptible = INTERRUPTIBLE
    history.limits = LIMITS
    history.clock_slack_us = CLOCK_SLACK_US
    history.policies[SCHEDULE] = proof.SchedulePolicy(period=PERIOD, overlap="allow")
    asks: dict[str, proof.Enqueued] = {}
    answers: dict[str, str] = {}
    holds: dict[int, Entry] = {}
    leaves: dict[int, Entry] = {}
    batches: dict[str, int] = {}
    lives: dict[str, proof.NodeLife] = {}
    calls: dict[tuple[str, int, int], Entry] = {}
    signals: dict[str, proof.SignalCall] = {}
    steps = [(entry.at, float(entry.facts["seconds"])) for entry in entries if entry.event == "stepped"]
    for entry in entries:
        facts = entry.facts
        match entry.event:
            case "asks":
                batch = None if facts["batch"] is None else batches.setdefault(facts["batch"], len(batches))
                due = find_due(entry.at, facts["delay"], steps) if facts["delay"] else 0.0
                for id in facts["ids"]:
                    asks[id] = proof.Enqueued(
                        id=id, at=entry.at, acknowledged=False, due=due, batch=batch, unique_key=facts["key"]
                    )
            case "acknowledged":
                answers.update(zip(facts["ids"], facts["existing"], strict=True))
            case "started":
                history.started.append(
                    proof.Started(
                        run=facts["run"],
                        job=facts["job"],
                        token=facts["token"],
                        node=entry.node,
                        at=entry.at,
                        process=(process := f"{entry.node}:{entry.pid}"),
                    )
                )
                if process not in lives:
                    lives[process] = proof.NodeLife(node=process, start=entry.at, concurrency=facts["slots"])
            case "ended":
                history.ended.append(proof.Ended(run=facts["run"], at=entry.at, result=facts["result"]))
            case "depends":
                history.depends.append(msgspec.convert(facts, proof.Depends))
            case "part":
                history.steps.append(msgspec.convert(facts | {"at": entry.at}, proof.StepEvent))
            case "signals":
                signals[facts["value"]] = proof.SignalCall(job=facts["job"], value=facts["value"], at=entry.at)
            case "signal stored":
                call = signals[facts["value"]]
                signals[call.value] = msgspec.structs.replace(call, answered_at=entry.at)
            case "cancelled":
                history.cancels.append(proof.CancelAnswered(job=facts["job"], at=entry.at, answer=facts["answer"]))
            case "entered":
                holds[facts["hold"]] = entry
            case "left":
                leaves[facts["hold"]] = entry
            case "fenced":
                history.writes.append(
                    proof.ResourceWrite(
                        resource=facts["resource"], token=facts["token"], at=entry.at, accepted=facts["accepted"]
                    )
                )
            case "delivered":
                history.deliveries.append(
                    proof.Delivered(job=facts["job"], at=entry.at, taken=facts["taken"], answered=facts["answered"])
                )
            case "heard":
                history.heard.append(
                    proof.Heard(message=facts["message"], node=f"{entry.node}:{entry.pid}", at=entry.at)
                )
            case "broadcast":
                history.broadcasts.append(proof.Broadcast(message=facts["message"], at=entry.at, told=facts["told"]))
            case "rate" if not steps:
                history.rates.append(
                    proof.RateGrant(name="rate", limit=facts["limit"], per=facts["per"], at=facts["at"])
                )
            case "draining" if (life := lives.get(f"{entry.node}:{entry.pid}")) is not None:
                life.stop_asked_at = entry.at
            case "claims":
                history.claims_performed.append(
                    proof.ClaimPerformed(node=f"{entry.node}:{entry.pid}", start=entry.at, end=entry.at)
                )
            case "call":
                calls[entry.node, entry.pid, facts["number"]] = entry
            case "leader":
                history.leaders.append(proof.LeaderSeen(term=facts["term"], leader=facts["leader"]))
    for id, ask in asks.items():
        answer = answers.get(id)
        history.enqueued.append(
            proof.Enqueued(
                id=id,
                at=ask.at,
                acknowledged=answer is not None,
                due=ask.due,
                batch=ask.batch,
                unique_key=ask.unique_key,
                existing=answer if answer not in (None, id) else None,
            )
        )
    read_calls(list(calls.values()), history)
    history.signals = list(signals.values())
    history.lives = list(lives.values())
    history.locks = [read_hold(entered, leaves.get(hold)) for hold, entered in holds.items()]
    history.ended_at = entries[-1].at if entries else 0.0
    return history


def read_calls(calls: Sequence[Entry], history: proof.History) -> None:
    """Of each call what was written last. They come in the order in which they began."""
    kinds = {kind.__name__: (kind, name) for kind, name in LISTS.items()}
    for call in calls:
        kind, name = kinds[call.facts["kind"]]
        getattr(history, name).append(msgspec.convert(call.facts["record"], kind))
    # The answers of two controllers may come in another order than their calls took effect in.
    history.cursor_moves.sort(key=lambda move: move.after or 0)


def find_due(asked: float, delay: float, steps: Sequence[tuple[float, float]]) -> float:
    """The earliest time at which the stepped wall clock can show when a job is due.

    A delay counts from the insertion, some time after the question. A step back in between changes nothing, so none is counted.
    """
    due = asked + delay
    for at, seconds in steps:
        if seconds > 0 and asked - 0.1 <= at <= due:
            due = max(at, due - seconds)
    return due


def read_hold(entered: Entry, left: Entry | None) -> proof.LockHeld:
    return proof.LockHeld(
        lock=entered.facts["lock"],
        token=entered.facts["token"],
        node=entered.node,
        asked_at=entered.facts["asked"],
        entered_at=entered.at,
        left_at=None if left is None else left.at,
        lost_at=left.at if left is not None and left.facts["lost"] else None,
    )


async def read_store(store: Store, history: proof.History) -> None:
    jobs: list[proof.JobRecord] = []
    before = None
    while True:
        page = await store.inspect.find_page(JobFilter(before=before, limit=PAGE))
        attempts = await store.inspect.get_attempts([JobId(job.id) for job in page.items])
        jobs += [read_job(job, attempts[JobId(job.id)]) for job in page.items]
        before = page.next
        if before is None:
            break
    history.jobs = jobs
    history.signals_read = await read_signals(store, jobs)
    fires: list[proof.FireRecord] = []
    last = None
    while found := (await store.schedules.list_fires([SCHEDULE], before=last, limit=PAGE))[SCHEDULE]:
        fires += [read_fire(fire) for fire in found]
        last = found[-1].at
    history.fires = fires
    if fires:
        first, end = min(fire.at for fire in fires), max(fire.last for fire in fires)
        history.expected_fires[SCHEDULE] = [float(at) for at in range(round(first), round(end) + 1)]
