"""Every outcome of every kind of running job, and every late outcome."""

import sqlite3
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import redis.asyncio

from drumbeat.core.job import OutcomeKind
from drumbeat.ids import JobId, pack_id
from tests.contract.cases import all_of
from tests.vandals import PREFIX

CRASH_LIMIT = 3
BLOCKED_ON = "task:strange"


class OutcomeCase(NamedTuple):
    kind: OutcomeKind
    has_started_at: bool
    has_finished_at: bool
    has_error: bool
    cancel_requested: bool
    crashes: int
    was_blocked: bool
    runs_early: bool
    """run_at is in the future, though it runs: a clock was set back."""


OUTCOME_CASES = [
    OutcomeCase(*values)
    for values in all_of(
        OutcomeKind,
        *[(False, True)] * 4,
        (0, CRASH_LIMIT - 2, CRASH_LIMIT - 1),
        *[(False, True)] * 2,
    )
]


class LateCase(NamedTuple):
    kind: OutcomeKind
    recorded: OutcomeKind | None
    """None: the claim was released before it started, which leaves nothing on record."""
    same_instance: bool
    same_token: bool


LATE_CASES = [LateCase(*values) for values in all_of(OutcomeKind, (*OutcomeKind, None), *[(False, True)] * 2)]


async def set_run_at(url: str, ids: Sequence[JobId], run_at: int) -> None:
    """Write run_at of running jobs behind the store's back: by its operations, no job runs before it is due."""
    match urlsplit(url).scheme:
        case "sqlite":
            db = sqlite3.connect(url.removeprefix("sqlite:///"))
            db.executemany("UPDATE drumbeat_job SET run_at = ? WHERE id = ?", [(run_at, id) for id in ids])
            db.commit()
            db.close()
        case "postgresql":
            connection = await asyncpg.connect(url)
            await connection.execute("UPDATE drumbeat.job SET run_at = $1 WHERE id = ANY ($2::uuid[])", run_at, ids)
            await connection.close()
        case _:
            client = redis.asyncio.from_url(url)
            raw = [pack_id(id) for id in ids]
            texts: list[Any] = await client.hmget(f"{PREFIX}live_state", raw)
            changed: dict[Any, Any] = {
                id: b"%d,%s" % (run_at, text.partition(b",")[2]) for id, text in zip(raw, texts, strict=True)
            }
            await client.hset(f"{PREFIX}live_state", mapping=changed)
            await client.aclose()
