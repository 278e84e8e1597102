"""What a database keeps of dependencies, seen behind the store's back. Not published with the contract: it knows engines."""

import sqlite3
from urllib.parse import urlsplit

import asyncpg
import redis.asyncio

from tests.vandals import PREFIX

TABLES = ("edge", "release", "parent_result", "cancelled_child", "workflow")
KEYS = (
    *("parents", "kid:", "kids:", "edge:", "edges:", "places:", "releasing", "kept:", "cancelled_by"),
    *("workflow:", "workflow_jobs:", "workflows", "workflows_of:", "open_workflows:"),
)


async def find_leftovers(url: str) -> dict[str, int]:
    """Tables with rows, or keys; empty: there is nothing."""
    match urlsplit(url).scheme:
        case "sqlite":
            db = sqlite3.connect(url.removeprefix("sqlite:///"))
            counts = {name: db.execute(f"SELECT count(*) FROM drumbeat_{name}").fetchone()[0] for name in TABLES}
            db.close()
        case "postgresql":
            connection = await asyncpg.connect(url)
            counts = {name: await connection.fetchval(f"SELECT count(*) FROM drumbeat.{name}") for name in TABLES}
            await connection.close()
        case _:
            client = redis.asyncio.from_url(url)
            names = [key.decode(errors="replace").removeprefix(PREFIX) async for key in client.scan_iter()]
            await client.aclose()
            counts = {name: 1 for name in names if name in KEYS or f"{name.partition(':')[0]}:" in KEYS}
    return {name: count for name, count in counts.items() if count}
