"""An engine that somebody has written, for the published contract: ours on SQLite, and one that forgets a rule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from drumbeat.clock import Clock
from drumbeat.store.protocol import Store
from drumbeat.store.urls import open_store as open_url


async def open_store(folder: Path, clock: Clock) -> Store:
    return await open_url(f"sqlite:///{folder / 'own.db'}", clock=clock)


async def open_forgetful(folder: Path, clock: Clock) -> Store:
    """Of several jobs that are added at once it keeps the first."""
    store = await open_store(folder, clock)
    jobs: Any = store.jobs
    add = jobs.add

    async def forget(new: Sequence[Any]) -> Any:
        return await add(new[:1])

    jobs.add = forget
    return store
