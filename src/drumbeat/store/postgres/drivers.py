"""One call with one text on a connection of whichever driver a program uses. Imports no driver that is not loaded
already: the connection came from it."""

from typing import Any

from drumbeat.store.driver_kinds import DriverKind, detect_kind, session_connection, unwrap_cursor

KINDS = frozenset(
    {
        DriverKind.ASYNCPG,
        DriverKind.DJANGO,
        DriverKind.PSYCOPG,
        DriverKind.PSYCOPG_ASYNC,
        DriverKind.SQLALCHEMY,
        DriverKind.SQLALCHEMY_ASYNC,
    }
)


async def call(conn: Any, statement: str, text: str) -> Any:
    """The value of a statement with the parameter $1, in the connection's current transaction.

    Raises:
        InvalidArguments: it is not a connection to PostgreSQL that is supported.
    """
    match detect_kind(conn, KINDS, sync=False):
        case DriverKind.ASYNCPG:
            return await conn.fetchval(statement, text)
        case DriverKind.PSYCOPG_ASYNC:
            from psycopg.rows import tuple_row

            async with unwrap_cursor(conn).cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(statement.replace("$1", "%s"), (text,))
                return (await cursor.fetchone())[0]
        case DriverKind.SQLALCHEMY_ASYNC:
            session = session_connection(conn)
            connection = conn if session is None else await session
            return (await connection.execute(*_for_sqlalchemy(statement, text))).scalar_one()
        case _:
            return call_sync(conn, statement, text)


def call_sync(conn: Any, statement: str, text: str) -> Any:
    """The same for a sync driver, on this thread."""
    kind = detect_kind(conn, KINDS, sync=True)
    if kind is DriverKind.SQLALCHEMY:
        return (session_connection(conn) or conn).execute(*_for_sqlalchemy(statement, text)).scalar_one()
    if kind is DriverKind.DJANGO:
        with conn.cursor() as cursor:
            cursor.execute(statement.replace("$1", "%s"), (text,))
            return cursor.fetchone()[0]
    from psycopg.rows import tuple_row

    with unwrap_cursor(conn).cursor(row_factory=tuple_row) as cursor:
        cursor.execute(statement.replace("$1", "%s"), (text,))
        return cursor.fetchone()[0]


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of the server's error, also if it was wrapped: SQLAlchemy keeps its driver's error as `orig`, Django
    as the cause of its own."""
    for each in (error, getattr(error, "orig", None), error.__cause__):
        for name in ("sqlstate", "pgcode"):
            if isinstance(state := getattr(each, name, None), str):
                return state
    return None


def _for_sqlalchemy(statement: str, text: str) -> tuple[Any, dict[str, str]]:
    import sqlalchemy

    return sqlalchemy.text(statement.replace("$1", ":given")), {"given": text}
