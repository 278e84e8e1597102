"""`app.override`: another store, clock and settings for a while."""

from pathlib import Path

import pytest

from drumbeat import Drumbeat
from drumbeat.clock import FakeClock
from drumbeat.errors import ConfigError


def build_app(path: Path) -> Drumbeat:
    app = Drumbeat(f"sqlite:///{path}/first.db", name="app", concurrency=3)

    @app.task(name="work")
    async def work(number: int) -> None: ...

    return app


async def test_it_restores_what_was_before_and_nests(tmp_path: Path) -> None:
    app = build_app(tmp_path)
    work = app._internals.registry["work"]
    async with app:
        await work.enqueue(1)
    async with app.override(f"sqlite:///{tmp_path}/second.db", concurrency=7):
        assert app.settings.concurrency == 7
        await work.enqueue(2)
        await work.enqueue(3)
        assert len(await app.jobs.list()) == 2
        await app.close()
        async with app.override(f"sqlite:///{tmp_path}/third.db"):
            assert (await app.jobs.list(), app.settings.concurrency) == ([], 7)
        assert len(await app.jobs.list()) == 2
    assert app.settings.concurrency == 3
    assert len(await app.jobs.list()) == 1
    await app.close()


def test_it_covers_the_sync_form(tmp_path: Path) -> None:
    app = build_app(tmp_path)
    work = app._internals.registry["work"]
    with app.override(f"sqlite:///{tmp_path}/second.db"):
        work.enqueue_sync(1)
        assert len(app.sync.jobs.list()) == 1
    assert app.sync.jobs.list() == []
    app.sync.close()


async def test_the_clock_reaches_everything_that_was_made_before(tmp_path: Path) -> None:
    app = build_app(tmp_path)
    lock = app.lock("sweep")
    clock = FakeClock()
    async with app.override(f"sqlite:///{tmp_path}/second.db", clock=clock):
        assert app._internals.clock is clock
        handle = await app._internals.registry["work"].enqueue(1)
        assert abs((await handle.job()).created_at.timestamp() * 1e6 - clock.now_us()) < 1
        async with lock as held:
            assert held.token >= clock.now_us()
    assert app._internals.clock is not clock


async def test_it_is_refused_while_a_connection_is_open(tmp_path: Path) -> None:
    app = build_app(tmp_path)
    async with app:
        with pytest.raises(ConfigError, match=r"a connection of this app is open.*app\.close\(\)"):
            async with app.override(f"sqlite:///{tmp_path}/second.db"):
                pass
    with pytest.raises(ConfigError, match="at the end of the block"), app.override(f"sqlite:///{tmp_path}/second.db"):
        await app.jobs.list()
    assert app.settings.url.endswith("first.db")
    await app.close()


def test_settings_are_checked(tmp_path: Path) -> None:
    app = build_app(tmp_path)
    with pytest.raises(ConfigError, match="colour"), app.override(colour="red"):  # type: ignore[call-arg]
        pass
    with pytest.raises(ConfigError, match="entered already"), app.override() as override, override:
        pass
