"""From the options of a command to the app: opens the store, runs one call on one event loop, and closes the store again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from drumbeat.cli.failures import BadInput
from drumbeat.cli.options import CliTarget
from drumbeat.clock import SYSTEM
from drumbeat.durations import from_us
from drumbeat.errors import InvalidArguments, UnknownTask

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

T = TypeVar("T")


def call_app(target: CliTarget, question: Callable[[Drumbeat], Awaitable[T]], *, needs_app: bool = False) -> T:
    """Open the store of the target, call `question`, and close the store."""
    app = load_app(target, needs_app=needs_app)

    async def run() -> T:
        async with app:
            return await question(app)

    try:
        return asyncio.run(run())
    except (InvalidArguments, UnknownTask) as error:
        if app.settings.app is None and (isinstance(error, UnknownTask) or error.argument in ("queue", "task")):
            # Without the program, only names from the store are known.
            raise BadInput(f"{error} (--app module:attr adds those of a program)") from error
        raise


def call_and_show(target: CliTarget, question: Callable[[Drumbeat], Awaitable[T]], show: Callable[[T], None]) -> None:
    """Call `question` and show its answer; with --watch again every second."""
    if not target.watch:
        show(call_app(target, question))
        return

    async def watched(app: Drumbeat) -> None:
        from drumbeat.cli.watch import watch

        await watch(app, target, question, show)

    call_app(target, watched)


def load_app(target: CliTarget, *, needs_app: bool = False) -> Drumbeat:
    """The user's app if one is named, else one without tasks; flags of the command override its settings."""
    from drumbeat import appref
    from drumbeat.app import Drumbeat
    from drumbeat.redaction import mask_url
    from drumbeat.settings_loader import load

    ref = load(target.flags, {}).app
    if ref is None and needs_app:
        raise BadInput("which app? Add --app module:attr, or set DRUMBEAT_APP")
    app = Drumbeat() if ref is None else appref.load(ref)
    target.store_url = mask_url(app.configure(target.flags).url)
    return app


def utc_now() -> datetime:
    return from_us(SYSTEM.now_us())
