"""Statements that read JSON texts, one of which may be damaged: the server then refuses the whole statement.

They run as they are; only when the server says that a text is not JSON, they run again with a check of every such text against
a pattern of what we write, which takes longer. (PostgreSQL has a test for JSON only from 16 on.)
"""

import re
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import TypeVar

from drumbeat.errors import StoreError

StatementGuard = Callable[[str], str]
T = TypeVar("T")

_TEXT = r'"([^"\\[:cntrl:]]|\\["\\/bfnrt]|\\u00(0[1-9a-f]|[1-9a-f][0-9a-f]))*"'
_PATTERNS = {
    "error": (rf'^\{{"type":{_TEXT},"message":{_TEXT},"traceback":{_TEXT}\}}$', '{"type":"Undecodable","message":""}'),
    "queues": (rf"^\[({_TEXT}(,{_TEXT})*)?\]$", "[]"),
    "tasks": (rf"^\{{({_TEXT}:{_TEXT}(,{_TEXT}:{_TEXT})*)?\}}$", "{}"),
}
_CAST = re.compile(r"\b((?:\w+\.)?(error|queues|tasks))::json\b")
_INVALID_VALUE_STATES = frozenset({"22P02", "22P05", "22032", "22023", "22003"})


async def run_guarded(run: Callable[[StatementGuard], Awaitable[T]]) -> T:
    """`run` gets a function that it must apply to its statements before it sends them."""
    try:
        return await run(_leave_unchanged)
    except StoreError as error:
        if getattr(error.__cause__, "sqlstate", None) not in _INVALID_VALUE_STATES:
            raise
        return await run(guard_json_casts)


def _leave_unchanged(statement: str) -> str:
    return statement


@lru_cache(maxsize=64)
def guard_json_casts(statement: str) -> str:
    """The same, with a neutral text in the place of one that is not JSON as we write it."""
    return _CAST.sub(_guard_cast, statement)


def _guard_cast(cast: re.Match[str]) -> str:
    column, kind = cast.groups()
    pattern, other = _PATTERNS[kind]
    return f"(CASE WHEN {column} IS NULL OR {column} ~ '{pattern}' THEN {column} ELSE '{other}' END)::json"
