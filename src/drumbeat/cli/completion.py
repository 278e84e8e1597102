"""Shell completion: states, terms of the glossary, and names from the store. Never an error, never a long wait.

`eval "$(_DRUMBEAT_COMPLETE=bash_source drumbeat)"` enables it (docs/cli.md). It prints nothing, creates no file and imports no
user code: it only queries the store, for at most 1.5 s.
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
"""Values, each with its help."""


def _make_completer(query: Callable[[Drumbeat, str], Awaitable[Suggestions]]) -> Complete:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Whatever fails, no traceback may disturb the command line.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            app = _open_existing_store(ctx)
            found = [] if app is None else asyncio.run(_ask(app, query, incomplete))
            fits = [(value, help) for value, help in found if value.startswith(incomplete)]
            return [CompletionItem(value, help=help) for value, help in fits[:MAX_SUGGESTIONS]]
        return []

    return complete


def _open_existing_store(ctx: click.Context) -> Drumbeat | None:
    """An app without tasks on the target's store; None: a SQLite file that opening would create."""
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import CliTarget
    from drumbeat.store.urls import parse

    target = ctx.find_object(CliTarget)
    app = Drumbeat()
    flags = {} if target is None else {name: value for name, value in target.flags.items() if name != "app"}
    url = parse(app.configure(flags).url)
    return None if url.engine == "sqlite" and not Path(url.path).exists() else app


async def _ask(app: Drumbeat, query: Callable[[Drumbeat, str], Awaitable[Suggestions]], prefix: str) -> Suggestions:
    async with asyncio.timeout(COMPLETION_TIMEOUT), app:
        return await query(app, prefix)


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(state)) for state in STATES if state.startswith(incomplete)]


def glossary_terms(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from drumbeat.glossary import TERMS

    names = (term.name for term in TERMS)
    return [CompletionItem(name) for name in names if name.startswith(incomplete.lower())]


async def _queues(app: Drumbeat, _prefix: str) -> Suggestions:
    return [(each.name, f"{each.ready:,} ready") for each in await app.queues.list()]


async def _tasks(app: Drumbeat, _prefix: str) -> Suggestions:
    return [(each.name, "") for each in await app.tasks.list()]


async def _schedules(app: Drumbeat, _prefix: str) -> Suggestions:
    return [(each.name, each.words) for each in await app.schedules.list()]


async def _instances(app: Drumbeat, _prefix: str) -> Suggestions:
    return [(each.id, f"{each.host} {each.pid}") for each in await app.instances.list(all=True)]


async def _locks(app: Drumbeat, _prefix: str) -> Suggestions:
    return [(each.name, f"{each.waiting} waiting") for each in await app.locks.list()]


async def _jobs(app: Drumbeat, prefix: str) -> Suggestions:
    """The newest jobs, or the newest whose id begins like this."""
    page = await app.jobs.page(limit=20, id=_id_prefix(prefix))
    return [(each.id, f"{each.task} {each.state}") for each in page.items]


async def _dead_letters(app: Drumbeat, prefix: str) -> Suggestions:
    page = await app.jobs.page(state="dead", limit=20, id=_id_prefix(prefix))
    return [(each.id, each.task) for each in page.items]


def _id_prefix(prefix: str) -> str | None:
    """The beginning of an id, if it is long enough to search for."""
    return prefix if len(prefix) >= 4 else None


queues = _make_completer(_queues)
tasks = _make_completer(_tasks)
schedules = _make_completer(_schedules)
instances = _make_completer(_instances)
locks = _make_completer(_locks)
jobs = _make_completer(_jobs)
dead_letters = _make_completer(_dead_letters)
