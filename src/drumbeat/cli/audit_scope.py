"""Acts of the command line are on record: who, what, to how many, and why, before they are done (`drumbeat audit`)."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, TypeVar

from drumbeat.cli.connection import call_app

if TYPE_CHECKING:
    from drumbeat.admin.audit import ActInProgress
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import CliTarget

T = TypeVar("T")
MAX_IDS_SHOWN = 3


def audited(app: Drumbeat, target: CliTarget, verb: str, on: str) -> AbstractAsyncContextManager[ActInProgress]:
    """`async with recorded(...) as act: ...; act.touched = n`. Whoever may use a store from a shell may do anything with it."""
    return app.audit.act(who=current_user(), role="admin", via="cli", verb=verb, target=on, reason=target.reason)


def run_audited(
    target: CliTarget,
    verb: str,
    on: str,
    question: Callable[[Drumbeat], Awaitable[T]],
    *,
    count_touched: Callable[[T], int] = lambda answer: 1,
    to_answer: Callable[[T], str | None] = lambda answer: None,
    needs_app: bool = False,
) -> T:
    """Ask, on record; `touched` reads from the answer how many were changed, `kept` what is worth keeping of it, as JSON."""

    async def done(app: Drumbeat) -> T:
        async with audited(app, target, verb, on) as acting:
            answer = await question(app)
            acting.touched, acting.answer = count_touched(answer), to_answer(answer)
        return answer

    return call_app(target, done, needs_app=needs_app)


def describe_ids(ids: tuple[str, ...] | list[str]) -> str:
    """Several ids as the target of an act: the first ones, and how many there are."""
    more = f" and {len(ids) - MAX_IDS_SHOWN:,} more" if len(ids) > MAX_IDS_SHOWN else ""
    return ", ".join(ids[:MAX_IDS_SHOWN]) + more


def describe_filter(given: Mapping[str, object]) -> str:
    """A filter as the target of an act."""
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None) or "all"


def current_user() -> str:
    """Who acts, for those who find a queue paused or read the record."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        user = "somebody"
    return f"{user}@{socket.gethostname()}"
