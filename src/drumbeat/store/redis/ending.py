"""How outcomes and claims are sent, and what comes back: one script, whatever the outcomes are.

What a claim has told of a job is remembered until its outcome, so that the server need not look at the job again. It is a hint:
without it the server looks.

A claim that found nothing stands while somebody listens at the door: then whoever adds a job answers it (lua/_giving.lua).
"""

import secrets
from collections.abc import Sequence

from drumbeat.ids import InstanceId, JobId, packed
from drumbeat.model.job import Claim, Claimed, Exchanged, Malformed, Outcome, OutcomeKind, Verdict
from drumbeat.store.redis import rows
from drumbeat.store.redis.adding import follow_up
from drumbeat.store.redis.connections import Link
from drumbeat.store.redis.line import Value
from drumbeat.store.redis.rows import as_json

_ID = 16
_SUCCEEDED = OutcomeKind.SUCCEEDED
_REMEMBERED = 50_000
"""More than any worker holds: what is left over, others have ended."""


class Exchanging:
    def __init__(self, link: Link) -> None:
        self._link = link
        self._hints: dict[JobId, rows.Hint] = {}
        self.door = secrets.token_hex(8)
        """Where answers to claims that stand are heard, by all workers of this store: each knows its own."""
        self.listeners = 0
        """How many listen there; while nobody does, no claim stands."""

    async def exchange(self, instance: InstanceId, outcomes: Sequence[Outcome], claim: Claim | None) -> Exchanged:
        values: list[Value] = [instance, *_asked(claim, self.door if self.listeners else "")]
        places = self._told(values, instance.encode(), outcomes)
        now, next_due, unsure, ids, bodies, mores, stands = await self._link.run("jobs_exchange", *values)
        verdicts = [Verdict.DONE] * len(outcomes)
        for position, recorded in zip(unsure[::2], unsure[1::2], strict=True):
            verdicts[places[position - 1]] = Verdict.ALREADY if recorded else Verdict.STALE
        jobs, malformed = self._claimed(now, ids, bodies, mores)
        return Exchanged(
            verdicts=verdicts, jobs=jobs, now=now, next_due=next_due, stands=stands == 1, malformed=malformed
        )

    def given(self, text: bytes) -> tuple[InstanceId, Exchanged]:
        """What was heard at the door: whose claim got what (lua/_giving.lua: give)."""
        head, _, rest = text.partition(b"\n")
        instance, now, *sizes = head.split(b" ")
        ids: list[bytes] = []
        bodies: list[bytes] = []
        at = 0
        for size in map(int, sizes):
            start, end = at + _ID, at + _ID + size
            ids.append(rest[at:start])
            bodies.append(rest[start:end])
            at = end
        jobs, malformed = self._claimed(int(now), ids, bodies, ())
        if malformed:  # whoever adds a job sends what it has just written: this came from somebody else
            raise ValueError(malformed[0].reason)
        return InstanceId(instance.decode()), Exchanged(verdicts=[], jobs=jobs, now=int(now))

    def _claimed(
        self, now: int, ids: Sequence[bytes], bodies: Sequence[bytes], mores: Sequence[bytes | None]
    ) -> tuple[list[Claimed], list[Malformed]]:
        if len(self._hints) > _REMEMBERED:
            self._hints.clear()
        return rows.claimed(now, ids, bodies, mores, self._hints)

    def _told(self, values: list[Value], by: bytes, outcomes: Sequence[Outcome]) -> list[int]:
        """Add the outcomes to the values; gives the place of each, for the script has them in another order."""
        groups: dict[tuple[int, str], list[Value]] = {}
        placed: dict[tuple[int, str], list[int]] = {}
        others: list[Value] = []
        other_places: list[int] = []
        last: tuple[int, str] | None = None
        for place, each in enumerate(outcomes):
            if each.kind is not _SUCCEEDED:
                others += other(each)
                other_places.append(place)
                continue
            hint = self._hints.pop(each.id, None)
            raw, task = (packed(each.id), "") if hint is None else hint
            key = (each.token, task)
            if key != last:
                last = key
                group = groups.setdefault(key, [])
                group_places = placed.setdefault(key, [])
            group.append(raw)
            group.append(success(each, by))
            group_places.append(place)
        values.append(len(groups))
        for key, group in groups.items():
            values += (*key, len(group) // 2)
            values += group
        values.append(len(other_places))
        values += others
        return [place for group_places in placed.values() for place in group_places] + other_places


def _asked(claim: Claim | None, door: str) -> list[Value]:
    if claim is None:
        return [-1, "", 0, 0]
    values: list[Value] = [max(0, claim.limit), door, len(claim.queues)]
    for queue, share in claim.queues:
        values += (queue, max(0, share))
    # In order: which of those who wait comes first is the same on every engine.
    values += (len(claim.wants), *sorted(claim.wants))
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
