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

from drumbeat.model.job import JobState, View

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

TIMEOUT_S = 1.5
MAX_OFFERED = 200
STATES = (*JobState, *View)

Complete = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]
Found = list[tuple[str, str]]
"""Values, each with a word of help."""


def _completing(look: Callable[[Drumbeat, str], Awaitable[Found]]) -> Complete:
    def complete(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        # Whatever goes wrong, a person who types wants a line and no traceback.
        with contextlib.suppress(Exception), contextlib.redirect_stderr(io.StringIO()):
            app = _known_store(ctx)
            found = [] if app is None else asyncio.run(_ask(app, look, incomplete))
            fits = [(value, help) for value, help in found if value.startswith(incomplete)]
            return [CompletionItem(value, help=help) for value, help in fits[:MAX_OFFERED]]
        return []

    return complete


def _known_store(ctx: click.Context) -> Drumbeat | None:
    """An app without tasks on the store that is meant; None: that is a file which opening would make."""
    from drumbeat.app import Drumbeat
    from drumbeat.cli.options import Target
    from drumbeat.store.urls import parse

    target = ctx.find_object(Target)
    app = Drumbeat()
    flags = {} if target is None else {name: value for name, value in target.flags.items() if name != "app"}
    url = parse(app.configure(flags).url)
    return None if url.engine == "sqlite" and not Path(url.path).exists() else app


async def _ask(app: Drumbeat, question: Callable[[Drumbeat, str], Awaitable[Found]], begun: str) -> Found:
    async with asyncio.timeout(TIMEOUT_S), app:
        return await question(app, begun)


def states(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(str(state)) for state in STATES if state.startswith(incomplete)]


async def _queues(app: Drumbeat, _begun: str) -> Found:
    return [(each.name, f"{each.ready:,} ready") for each in await app.queues.list()]


async def _tasks(app: Drumbeat, _begun: str) -> Found:
    return [(each.name, "") for each in await app.tasks.list()]


async def _schedules(app: Drumbeat, _begun: str) -> Found:
    return [(each.name, each.words) for each in await app.schedules.list()]


async def _instances(app: Drumbeat, _begun: str) -> Found:
    return [(each.id, f"{each.host} {each.pid}") for each in await app.instances.list(all=True)]


async def _locks(app: Drumbeat, _begun: str) -> Found:
    return [(each.name, f"{each.waiting} waiting") for each in await app.locks.list()]


async def _jobs(app: Drumbeat, begun: str) -> Found:
    """The newest, or the newest that begin so."""
    page = await app.jobs.page(limit=20, id=_start(begun))
    return [(each.id, f"{each.task} {each.state}") for each in page.items]


async def _letters(app: Drumbeat, begun: str) -> Found:
    page = await app.jobs.page(state="dead", limit=20, id=_start(begun))
    return [(each.id, each.task) for each in page.items]


def _start(begun: str) -> str | None:
    """How an id begins, where that is enough to search for."""
    return begun if len(begun) >= 4 else None


queues = _completing(_queues)
tasks = _completing(_tasks)
schedules = _completing(_schedules)
instances = _completing(_instances)
locks = _completing(_locks)
jobs = _completing(_jobs)
letters = _completing(_letters)
