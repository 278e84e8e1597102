"""Sends outcomes and claims, in one script whatever the outcomes are.

What a claim returned of a job is remembered until its outcome, so that the server need not read the job again. It is a hint:
without it the server reads.

An empty claim is parked while its reply channel has a subscriber; the script that adds a job answers it (lua/_handoff.lua).
"""

import secrets
from collections.abc import Sequence

from drumbeat.core.claim import ClaimedJob, ClaimRequest, ClaimResult, MalformedJob, Outcome, WriteStatus
from drumbeat.core.job import OutcomeKind
from drumbeat.ids import InstanceId, JobId, pack_id
from drumbeat.store.redis import rows
from drumbeat.store.redis.connection import Value
from drumbeat.store.redis.insert import follow_up_arguments
from drumbeat.store.redis.pool import RedisPool
from drumbeat.store.redis.rows import encode_json

_ID_BYTES = 16
_SUCCEEDED = OutcomeKind.SUCCEEDED
_MAX_HINTS = 50_000
"""More than any worker holds; the rest was ended by others."""


class CompletionClient:
    def __init__(self, pool: RedisPool) -> None:
        self._pool = pool
        self._hints: dict[JobId, rows.Hint] = {}
        self.reply_channel = secrets.token_hex(8)
        """Channel for replies to parked claims, shared by the workers of this store; each recognises its own."""
        self.listeners = 0
        """Number of subscribers; claims are parked only while there are any."""

    async def report_and_claim(
        self, instance: InstanceId, outcomes: Sequence[Outcome], claim: ClaimRequest | None
    ) -> ClaimResult:
        values: list[Value] = [instance, *_claim_arguments(claim, self.reply_channel if self.listeners else "")]
        places = self._append_outcomes(values, instance.encode(), outcomes)
        answer = await self._pool.run("report_and_claim", *values)
        now, next_due, unsure, ids, bodies, mores, is_parked, is_releasing, has_limited = answer
        verdicts = [WriteStatus.APPLIED] * len(outcomes)
        for position, recorded in zip(unsure[::2], unsure[1::2], strict=True):
            verdicts[places[position - 1]] = WriteStatus.DUPLICATE if recorded else WriteStatus.STALE
        jobs, malformed = self._decode_jobs(now, ids, bodies, mores)
        return ClaimResult(
            statuses=verdicts,
            jobs=jobs,
            now=now,
            next_due_at=next_due,
            parked_claim=is_parked == 1,
            is_releasing=is_releasing == 1,
            has_limited=has_limited == 1,
            malformed=malformed,
        )

    def parse_handoff(self, text: bytes) -> tuple[InstanceId, ClaimResult]:
        """Decode a message of the reply channel: whose claim got which jobs (lua/_handoff.lua: hand_off)."""
        head, _, rest = text.partition(b"\n")
        instance, now, *sizes = head.split(b" ")
        ids: list[bytes] = []
        bodies: list[bytes] = []
        mores: list[bytes | None] = []
        at = 0
        for each in sizes:
            size, _, more = each.partition(b"+")
            start, end = at + _ID_BYTES, at + _ID_BYTES + int(size)
            ids.append(rest[at:start])
            bodies.append(rest[start:end])
            at = end + int(more or 0)
            mores.append(rest[end:at] if more else None)
        if at != len(rest):
            raise ValueError(f"{len(rest)} bytes of jobs, not {at}")
        jobs, malformed = self._decode_jobs(int(now), ids, bodies, mores)
        if malformed:  # a claim finds it again, once the worker has given it back
            raise ValueError(malformed[0].reason)
        return InstanceId(instance.decode()), ClaimResult(statuses=[], jobs=jobs, now=int(now))

    def _decode_jobs(
        self, now: int, ids: Sequence[bytes], bodies: Sequence[bytes], mores: Sequence[bytes | None]
    ) -> tuple[list[ClaimedJob], list[MalformedJob]]:
        if len(self._hints) > _MAX_HINTS:
            self._hints.clear()
        return rows.decode_claimed(now, ids, bodies, mores, self._hints)

    def _append_outcomes(self, values: list[Value], instance: bytes, outcomes: Sequence[Outcome]) -> list[int]:
        """Append the outcomes to the values; return the position of each, as the script orders them differently."""
        groups: dict[tuple[int, str, bool], list[Value]] = {}
        placed: dict[tuple[int, str, bool], list[int]] = {}
        lanes: dict[tuple[str, str], int] = {}
        others: list[Value] = []
        other_places: list[int] = []
        follow_ups: list[Value] = []
        follow_up_count = 0
        last: tuple[int, str, bool] | None = None
        for place, each in enumerate(outcomes):
            hint = self._hints.pop(each.id, None)
            if each.kind is not _SUCCEEDED:
                others += outcome_arguments(each)
                other_places.append(place)
                continue
            raw, task, lane = (pack_id(each.id), "", None) if hint is None else hint
            key = (each.token, task, lane is not None)
            if key != last:
                last = key
                group = groups.setdefault(key, [])
                group_places = placed.setdefault(key, [])
            group.append(raw)
            group.append(success_record(each, instance))
            if lane is not None:
                group.append(lanes.setdefault(lane, len(lanes) + 1))
            group_places.append(place)
            if each.follow_up is not None:
                follow_ups += (raw, *follow_up_arguments(each.follow_up))
                follow_up_count += 1
        values.append(follow_up_count)
        values += follow_ups
        values.append(len(lanes))
        for lane in lanes:
            values += lane
        values.append(len(groups))
        for (token, task, has_lanes), group in groups.items():
            values += (token, task, len(group) // (3 if has_lanes else 2), int(has_lanes))
            values += group
        values.append(len(other_places))
        values += others
        return [place for group_places in placed.values() for place in group_places] + other_places


def _claim_arguments(claim: ClaimRequest | None, reply_channel: str) -> list[Value]:
    if claim is None:
        return [-1, "", "", 0, 0]
    slots: Value = "" if claim.slots is None else max(0, claim.slots)
    values: list[Value] = [max(0, claim.limit), slots, reply_channel, len(claim.queues)]
    for queue, share in claim.queues:
        values += (queue, max(0, share))
    # In order, so that blocked jobs are claimed in the same order on every engine.
    values += (len(claim.unblocks), *sorted(claim.unblocks))
    return values


def success_record(outcome: Outcome, instance: bytes) -> bytes:
    """Return the end record of a successful run; the format is in lua/_transitions.lua."""
    started_at, finished_at = outcome.started_at, outcome.finished_at
    if outcome.result is None and outcome.result_error is None and started_at is not None and finished_at is not None:
        return b'[%d,"succeeded","succeeded",%d,"%b",%d]' % (finished_at, started_at, instance, outcome.token)
    run = (started_at, instance.decode(), outcome.token, outcome.result, outcome.result_error)
    return encode_json([finished_at, "succeeded", "succeeded", *run])


def outcome_arguments(outcome: Outcome) -> list[Value]:
    """Return the script values of any other outcome."""
    return [
        pack_id(outcome.id),
        outcome.token,
        outcome.kind.value,
        "" if outcome.started_at is None else outcome.started_at,
        "" if outcome.finished_at is None else outcome.finished_at,
        outcome.delay,
        outcome.blocked_on or "",
        b"" if outcome.error is None else encode_json(outcome.error),
        *follow_up_arguments(outcome.follow_up),
        *_arguments_of_kind(outcome),
    ]


def _arguments_of_kind(outcome: Outcome) -> list[Value]:
    if outcome.kind is OutcomeKind.RELEASED:
        return [0] if outcome.lane is None else [1, outcome.lane]
    if outcome.kind is not OutcomeKind.SUSPENDED:
        return []
    if (suspension := outcome.suspension) is None:
        return ["", "", "", ""]
    until = "" if suspension.until is None else suspension.until
    return [suspension.kind.value, suspension.name, suspension.signal or "", until]
