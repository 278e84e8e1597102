"""How outcomes and claims are sent, and what comes back: one script, whatever the outcomes are."""

from collections.abc import Sequence

from drumbeat.ids import InstanceId, packed
from drumbeat.model.job import Claim, Exchanged, Outcome, OutcomeKind, Verdict
from drumbeat.store.redis import rows
from drumbeat.store.redis.adding import follow_up
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.line import Value
from drumbeat.store.redis.rows import as_json

_SUCCEEDED = OutcomeKind.SUCCEEDED


class Exchange:
    """One call of the script `jobs_exchange`."""

    __slots__ = ("_claim", "_good", "_instance", "_others", "_places")

    def __init__(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> None:
        self._instance = instance
        self._claim = claim
        good: list[Outcome] = []
        others: list[Outcome] = []
        places: list[int] = []
        for place, each in enumerate(outcomes):
            if each.kind is _SUCCEEDED:
                good.append(each)
            else:
                others.append(each)
                places.append(place)
        self._good = good
        self._others = others
        # Where each verdict belongs: the script has the successes first.
        self._places: Sequence[int] = range(len(outcomes))
        if others:
            apart = set(places)
            self._places = [place for place in range(len(outcomes)) if place not in apart] + places

    async def run(self, link: Link) -> Exchanged:
        now, next_due, unsure, ids, bodies, mores = await link.run("jobs_exchange", *self._values())
        verdicts = [Verdict.DONE] * len(self._places)
        for position, recorded in zip(unsure[::2], unsure[1::2], strict=True):
            verdicts[self._places[position - 1]] = Verdict.ALREADY if recorded else Verdict.STALE
        return Exchanged(verdicts=verdicts, jobs=rows.claimed(now, ids, bodies, mores), now=now, next_due=next_due)

    def _values(self) -> list[Value]:
        claim = self._claim
        values: list[Value] = [self._instance]
        if claim is None:
            values += (-1, 0, 0)
        else:
            values += (max(0, claim.limit), len(claim.queues))
            for queue, share in claim.queues:
                values += (queue, max(0, share))
            # In order: who waits for what comes first is the same on every engine.
            values += (len(claim.wants), *sorted(claim.wants))
        values.append(len(self._good))
        by = self._instance.encode()
        for each in self._good:
            values += (packed(each.id), each.token, success(each, by))
        values.append(len(self._others))
        for each in self._others:
            values += other(each)
        return values


def success(outcome: Outcome, by: bytes) -> bytes:
    """The record of a run that went well, as lua/_ending.lua describes it."""
    started_at, finished_at = outcome.started_at, outcome.finished_at
    if outcome.result is None and outcome.result_error is None and started_at is not None and finished_at is not None:
        return b'[%d,"succeeded","succeeded",%d,"%b",%d]' % (finished_at, started_at, by, outcome.token)
    return as_json(
        [
            finished_at,
            "succeeded",
            "succeeded",
            started_at,
            by.decode(),
            outcome.token,
            outcome.result,
            outcome.result_error,
        ]
    )


def other(outcome: Outcome) -> list[Value]:
    """The values of any other outcome."""
    return [
        packed(outcome.id),
        outcome.token,
        outcome.kind.value,
        "" if outcome.started_at is None else outcome.started_at,
        "" if outcome.finished_at is None else outcome.finished_at,
        outcome.delay,
        outcome.waits_for or "",
        b"" if outcome.error is None else as_json(outcome.error),
        *follow_up(outcome.follow_up),
    ]
