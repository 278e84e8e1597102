"""What a shell offers after TAB: states, and names that the store knows. Never an error, never a long wait.

`eval "$(_DRUMBEAT_COMPLETE=bash_source drumbeat)"` switches it on (docs/cli.md). While somebody types, nothing may be
printed, made or imported from the user's program: only the store is asked, for a second and a half at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from drumbeat.core.job import JobState, PendingView

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

COMPLETION_TIMEOUT = 1.5
MAX_SUGGESTIONS = 200
STATES = (*JobState, *PendingView)

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Suggestions = list[tuple[str, str]]
"""Values, each with a word of help."""


def _make_completer(look: Callable[[Drumbeat, str], Awaitable[Suggestions]]) -> Complete:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Whatever goes wrong, a person who types wants a line and no traceback.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            app = _open_existing_store(ctx)
            found = [] if app is None else asyncio.run(_ask(app, look, incomplete))
            fits = [(value, help) for value, help in found if value.startswith(incomplete)]
            return [CompletionItem(value, help=help) for value, help in fits[:MAX_SUGGESTIONS]]
        return []

    return complete


def _open_existing_store(ctx: click.Context) -> Drumbeat | None:
    """An app without tasks on the store that is meant; None: that is a file which opening would make."""
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import CliTarget
    from drumbeat.store.urls import parse

    target = ctx.find_object(CliTarget)
    app = Drumbeat()
    flags = {} if target is None else {name: value for name, value in target.flags.items() if name != "app"}
    url = parse(app.configure(flags).url)
    return None if url.engine == "sqlite" and not Path(url.path).exists() else app


async def _ask(app: Drumbeat, question: Callable[[Drumbeat, str], Awaitable[Suggestions]], begun: str) -> Suggestions:
    async with asyncio.timeout(COMPLETION_TIMEOUT), app:
        return await question(app, begun)


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(state)) for state in STATES if state.startswith(incomplete)]


async def _queues(app: Drumbeat, _begun: str) -> Suggestions:
    return [(each.name, f"{each.ready:,} ready") for each in await app.queues.list()]


async def _tasks(app: Drumbeat, _begun: str) -> Suggestions:
    return [(each.name, "") for each in await app.tasks.list()]


async def _schedules(app: Drumbeat, _begun: str) -> Suggestions:
    return [(each.name, each.words) for each in await app.schedules.list()]


async def _instances(app: Drumbeat, _begun: str) -> Suggestions:
    return [(each.id, f"{each.host} {each.pid}") for each in await app.instances.list(all=True)]


async def _locks(app: Drumbeat, _begun: str) -> Suggestions:
    return [(each.name, f"{each.waiting} waiting") for each in await app.locks.list()]


async def _jobs(app: Drumbeat, begun: str) -> Suggestions:
    """The newest, or the newest that begin so."""
    page = await app.jobs.page(limit=20, id=_id_prefix(begun))
    return [(each.id, f"{each.task} {each.state}") for each in page.items]


async def _dead_letters(app: Drumbeat, begun: str) -> Suggestions:
    page = await app.jobs.page(state="dead", limit=20, id=_id_prefix(begun))
    return [(each.id, each.task) for each in page.items]


def _id_prefix(begun: str) -> str | None:
    """How an id begins, where that is enough to search for."""
    return begun if len(begun) >= 4 else None


queues = _make_completer(_queues)
tasks = _make_completer(_tasks)
schedules = _make_completer(_schedules)
instances = _make_completer(_instances)
locks = _make_completer(_locks)
jobs = _make_completer(_jobs)
dead_letters = _make_completer(_dead_letters)
