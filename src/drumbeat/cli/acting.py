"""Acts of the command line are on record: who, what, to how many, and why, before they are done (`drumbeat audit`)."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from drumbeat.cli.connection import ask

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import Target
    from drumbeat.nouns.audit import Acting

T = TypeVar("T")
MOST_IDS = 3


def recorded(app: Drumbeat, target: Target, verb: str, on: str) -> AbstractAsyncContextManager[Acting]:
    """`async with recorded(...) as act: ...; act.touched = n`. Whoever may use a store from a shell may do anything with it."""
    return app.audit.act(who=person(), role="admin", via="cli", verb=verb, target=on, why=target.why)


def act(
    target: Target,
    verb: str,
    on: str,
    question: Callable[[Drumbeat], Awaitable[T]],
    *,
    touched: Callable[[T], int] = lambda answer: 1,
    kept: Callable[[T], str | None] = lambda answer: None,
    needs_app: bool = False,
) -> T:
    """Ask, on record; `touched` reads from the answer how many were changed, `kept` what is worth keeping of it, as JSON."""

    async def done(app: Drumbeat) -> T:
        async with recorded(app, target, verb, on) as acting:
            answer = await question(app)
            acting.touched, acting.answer = touched(answer), kept(answer)
        return answer

    return ask(target, done, needs_app=needs_app)


def these(ids: tuple[str, ...] | list[str]) -> str:
    """Several ids as the target of an act: the first ones, and how many there are."""
    more = f" and {len(ids) - MOST_IDS:,} more" if len(ids) > MOST_IDS else ""
    return ", ".join(ids[:MOST_IDS]) + more


def common(given: Mapping[str, object]) -> str:
    """A filter as the target of an act."""
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None) or "all"


def person() -> str:
    """Who acts, for those who find a queue paused or read the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
