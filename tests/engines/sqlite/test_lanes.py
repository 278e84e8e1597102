"""What only SQLite does with lanes: new limits are told to them in transactions of their own."""

from typing import Any

import pytest

from drumbeat.core.limits import Bounds
from drumbeat.store.sqlite.limits import SqliteLimits
from drumbeat.store.urls import open_store
from tests.contract.lanes import add_jobs, declare, finish, take
from tests.contract.making import HOUR, worker


@pytest.mark.parametrize("heals", ["the next declaration", "the sweep"])
async def test_lanes_that_a_process_died_before_telling_are_told_by_another(
    path: Any, monkeypatch: pytest.MonkeyPatch, heals: str
) -> None:
    async def die(limits: SqliteLimits) -> None:
        raise ConnectionAbortedError

    async with await open_store(f"sqlite:///{path}") as store:
        instance = await worker(store)
        await declare(store, each=Bounds(rate=1, per=HOUR))
        await add_jobs(store, "a", 2)
        await finish(store, instance, *await take(store, instance))
        with monkeypatch.context() as dying:
            dying.setattr(SqliteLimits, "_tell_all", die)
            with pytest.raises(ConnectionAbortedError):
                await declare(store, each=Bounds(rate=100, per=HOUR), version=2)
        assert await take(store, instance) == [], "the lane opens in an hour, as it was told"
        if heals == "the sweep":
            await store.limits.sweep(0, 1_000)
        else:
            await declare(store, each=Bounds(rate=100, per=HOUR), version=2)
        assert len(await take(store, instance)) == 1
