"""Actions of the command line are written to the audit log before they are run (`drumbeat audit`)."""

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
    """`async with audited(...) as act: ...; act.touched = n`. As admin: a shell with access to the store may do anything."""
    return app.audit.act(who=current_user(), role="admin", via="cli", verb=verb, target=on, reason=target.reason)


def run_audited(
    target: CliTarget,
    verb: str,
    on: str,
    question: Callable[[Drumbeat], Awaitable[T]],
    *,
    count_touched: Callable[[T], int] = lambda answer: int(answer) if isinstance(answer, int) else 1,
    to_answer: Callable[[T], str | None] = lambda answer: None,
    needs_app: bool = False,
) -> T:
    """Run an audited action; `count_touched` (a result that is a number: that) and `to_answer` (JSON) read from its result
    what the audit log keeps."""

    async def run(app: Drumbeat) -> T:
        async with audited(app, target, verb, on) as acting:
            answer = await question(app)
            acting.touched, acting.answer = count_touched(answer), to_answer(answer)
        return answer

    return call_app(target, run, needs_app=needs_app)


def describe_ids(ids: tuple[str, ...] | list[str]) -> str:
    """Several ids as the target of an audit entry: the first ones, and the number of the others."""
    more = f" and {len(ids) - MAX_IDS_SHOWN:,} more" if len(ids) > MAX_IDS_SHOWN else ""
    return ", ".join(ids[:MAX_IDS_SHOWN]) + more


def describe_filter(given: Mapping[str, object]) -> str:
    """A filter as the target of an audit entry."""
    return " ".join(f"{name}={value}" for name, value in given.items() if value is not None) or "all"


def current_user() -> str:
    """`user@host`, for the audit log and for paused queues and schedules."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a container may run as a number without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
