"""Shell completion: states, terms of the glossary, and names from the store. Never an error, never a long wait.

`eval "$(_DRUMBEAT_COMPLETE=bash_source drumbeat)"` enables it (docs/cli.md). It prints nothing, creates no file and imports no
user code: it only queries the store, for at most 1.5 s.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click
from click.shell_completion import CompletionItem

from drumbeat.core.job import JobState, PendingView

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat
    from drumbeat.core.job import Job

COMPLETION_TIMEOUT = 1.5
MAX_SUGGESTIONS = 200
MIN_ID_PREFIX = 4
STATES = (*JobState, *PendingView)

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
T = TypeVar("T")


def _make_completer(
    query: Callable[[Drumbeat, str | None], Awaitable[Iterable[T]]], suggest: Callable[[T], tuple[str, str]]
) -> Complete:
    """Completes with what `query` finds; it gets the beginning of an id, if that is long enough to search for. `suggest`
    makes of each a value and its help."""

    async def ask(app: Drumbeat, prefix: str) -> list[tuple[str, str]]:
        async with asyncio.timeout(COMPLETION_TIMEOUT), app:
            return [suggest(each) for each in await query(app, prefix if len(prefix) >= MIN_ID_PREFIX else None)]

    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Whatever fails, no traceback may disturb the command line.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            app = _open_existing_store(ctx)
            found = [] if app is None else asyncio.run(ask(app, incomplete))
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


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(state)) for state in STATES if state.startswith(incomplete)]


def glossary_terms(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from drumbeat.glossary import TERMS

    names = (term.name for term in TERMS)
    return [CompletionItem(name) for name in names if name.startswith(incomplete.lower())]


async def _newest_jobs(app: Drumbeat, prefix: str | None, state: str | None = None) -> Iterable[Job]:
    return (await app.jobs.page(state=state, limit=20, id=prefix)).items


queues = _make_completer(lambda app, _: app.queues.list(), lambda each: (each.name, f"{each.ready:,} ready"))
tasks = _make_completer(lambda app, _: app.tasks.list(), lambda each: (each.name, ""))
schedules = _make_completer(lambda app, _: app.schedules.list(), lambda each: (each.name, each.words))
instances = _make_completer(
    lambda app, _: app.instances.list(all=True), lambda each: (each.id, f"{each.host} {each.pid}")
)
locks = _make_completer(lambda app, _: app.locks.list(), lambda each: (each.name, f"{each.waiting} waiting"))
workflows = _make_completer(lambda app, _: app.workflows.list(limit=20), lambda each: (each.id, each.name))
jobs = _make_completer(_newest_jobs, lambda each: (each.id, f"{each.task} {each.state}"))
dead_letters = _make_completer(lambda app, prefix: _newest_jobs(app, prefix, "dead"), lambda each: (each.id, each.task))
