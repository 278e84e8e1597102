"""Database connections around handlers, as Django has them around requests.

A worker's threads live long. Without this, a connection that was lost stays: every later job of its thread fails. So
connections that are broken, or older than CONN_MAX_AGE, are closed before and after each run, in the thread whose connections
they are: that of a `def` handler; for an `async def` handler the one that runs what it awaits of the ORM.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from asgiref.sync import sync_to_async
from django.db import connections, reset_queries

from drumbeat.app import Drumbeat


def surround_handlers(app: Drumbeat) -> None:
    """Let each run of a handler of this app begin and end with connections that can be used."""
    app.around(handlers="def")(fresh_connections)
    app.around(handlers="async")(fresh_connections_async)


def fresh_connections() -> Iterator[None]:
    close_stale()
    try:
        yield
    finally:
        close_stale()


async def fresh_connections_async() -> AsyncIterator[None]:
    await sync_to_async(close_stale)()
    try:
        yield
    finally:
        await sync_to_async(close_stale)()


def close_stale() -> None:
    """Close this thread's connections that are broken or too old. One in a transaction is left alone: it is a test's."""
    reset_queries()
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()
