"""Numbers of claims and locks after the machine has lost its power, and a part of the log with it."""

import shutil
from pathlib import Path

import pytest

from drumbeat.clock import FakeClock
from drumbeat.store.sqlite import SqliteStore, fsync_thread, locks, token_clock
from tests.contract.making import add, claim, new_job, worker
from tests.contract.test_locks import enter

HOUR_US = 3_600_000_000


class Machine:
    """Where a store is: each boot has an id, and what a power cut leaves of the file is what was copied before it."""

    def __init__(self, folder: Path) -> None:
        self.boots = 1
        self.syncs = 0
        self._folder = folder

    @property
    def path(self) -> Path:
        return self._folder / f"boot-{self.boots}.db"

    async def open(self, clock: FakeClock) -> SqliteStore:
        return await SqliteStore.open(self.path, url=f"sqlite:///{self.path}", clock=clock)

    def save(self) -> None:
        """What is written by now is what the next boot finds."""
        for end in ("", "-wal"):
            shutil.copy(f"{self.path}{end}", self._folder / f"boot-{self.boots + 1}.db{end}")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path)
    for module in (locks, token_clock):
        monkeypatch.setattr(module, "boot_id", lambda: f"boot {machine.boots}")
    real = fsync_thread.fsync_file

    def sync(file: int) -> None:
        real(file)
        machine.syncs += 1

    monkeypatch.setattr(fsync_thread, "fsync_file", sync)
    return machine


async def test_no_number_is_given_again_though_the_store_has_forgotten_it_and_the_clock_is_behind(
    machine: Machine,
) -> None:
    clock = FakeClock()
    async with await machine.open(clock) as store:
        await add(store, new_job(run_at=clock.now_us() - 2 * HOUR_US))
        machine.save()
        [claimed] = await claim(store, await worker(store))
        granted = await enter(store, "ledger")
    machine.boots += 1
    late = FakeClock(clock.now_us() - HOUR_US)
    async with await machine.open(late) as store:
        [again] = await claim(store, await worker(store))
        assert again.id == claimed.id and again.token > claimed.token
        assert (await enter(store, "ledger")).token > granted.token


async def test_a_reservation_is_on_disk_before_the_first_number_and_lasts_for_minutes(machine: Machine) -> None:
    clock = FakeClock()
    async with await machine.open(clock) as store:
        await enter(store, "ledger")
        syncs = machine.syncs
        assert syncs >= 1
        await clock.advance(token_clock.MIN_LEFT_US / 1e6 - 1)
        await enter(store, "ledger")
        assert machine.syncs == syncs
        await clock.advance(2)
        await enter(store, "ledger")
        assert machine.syncs == syncs + 1


async def test_within_one_boot_numbers_are_times(machine: Machine) -> None:
    clock = FakeClock()
    for _ in range(2):
        async with await machine.open(clock) as store:
            await add(store, new_job())
            [claimed] = await claim(store, await worker(store))
            assert claimed.token == clock.now_us()
        await clock.advance(1)
