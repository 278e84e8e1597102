"""Let a loop work until nothing is ready on it."""

import asyncio

from drumbeat.clock import SYSTEM

QUIET_TURNS = 3
"""Turns with nothing ready, until a loop counts as quiet: a socket may be readable only at the next."""
BLIND_QUIET_TURNS = 50
"""The same for a loop that does not tell what is ready (uvloop)."""


def is_quiet() -> bool:
    return not getattr(asyncio.get_running_loop(), "_ready", ())


async def run_ready() -> None:
    """Return when nothing is ready."""
    quiet = 0
    wanted = QUIET_TURNS if hasattr(asyncio.get_running_loop(), "_ready") else BLIND_QUIET_TURNS
    while quiet < wanted:
        await SYSTEM.sleep(0)
        quiet = quiet + 1 if is_quiet() else 0
