"""From the options of a command to an answer of the app: one event loop, one question, and everything closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from drumbeat.cli.failures import Refused
from drumbeat.cli.options import Target

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat

T = TypeVar("T")


def ask(target: Target, question: Callable[[Drumbeat], Awaitable[T]], *, needs_app: bool = False) -> T:
    """Open the app that the target names, ask it, and close it."""

    async def asked() -> T:
        async with found(target, needs_app=needs_app) as app:
            return await question(app)

    return asyncio.run(asked())
