"""A small shop whose jobs have had every fate: made once by a real worker, copied for each test."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from drumbeat.core.job_query import JobFilter
from drumbeat.store.urls import open_store
from tests.cli.command import call, start
from tests.waiting import until_sync

SHOP = """
from decimal import Decimal

from drumbeat import Drumbeat, SkipRetry

app = Drumbeat(queues={"critical": 6, "default": 3, "mail": 2})


@app.task(queue="critical")
async def charge(customer: int, amount: Decimal = Decimal(1), password: str = "") -> str:
    return f"{customer} paid {amount}"


@app.task(retries=0)
def refuse(order: int, note: str = "") -> None:
    raise ValueError(f"order {order} \\x1b[31m{note}")


@app.task
async def give_up(order: int) -> None:
    raise SkipRetry("never")


@refuse.on_dead
async def mourn(job, error) -> None: ...
"""


def have_all_ended(url: str) -> bool:
    """Whether only what is due in an hour is left; asked without a process, of which each look would start one."""

    async def look() -> bool:
        async with await open_store(url) as store:
            seen = await store.inspect.count_jobs(JobFilter())
        return (seen.ready, seen.running, seen.scheduled, seen.dead) == (0, 0, 1, 3)

    return asyncio.run(look())


@pytest.fixture(scope="session")
def used_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP)
    for words in (
        ["charge", "customer=42", "amount=9.90", "password=hush"],
        ["refuse", "order=1", "--key", "a", "--unique"],
        ["refuse", "order=2"],
        ["give_up", "order=3"],
        ["charge", "customer=7", "--delay", "1h", "--key", "later"],
    ):
        queued = call("enqueue", *words, "--app", "shop:app", folder=folder)
        assert queued.returncode == 0, queued.stderr
    with start("run", "shop:app", folder=folder) as worker:
        until_sync(lambda: have_all_ended(f"sqlite:///{folder / 'drumbeat.db'}"), deadline=30)
        os.kill(worker.pid, signal.SIGTERM)
        assert worker.wait(30) == 0
    return folder


@pytest.fixture
def shop(used_shop: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with shop.py and its drumbeat.db, which is also the current folder."""
    for file in used_shop.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path / file.name)
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith("DRUMBEAT_"):
            monkeypatch.delenv(name)
    return tmp_path
