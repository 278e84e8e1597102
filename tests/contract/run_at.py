"""Changes run_at where no operation of a store does. Not published with the contract: it knows our engines."""

import sqlite3
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import redis.asyncio

from drumbeat.ids import JobId, pack_id
from tests.vandals import PREFIX


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
