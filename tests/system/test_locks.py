"""Locks between real processes, which are killed and stopped. With DRUMBEAT_FULL=1 rates and crowds have their full size."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from drumbeat import Drumbeat
from tests.apps import journal
from tests.system.workers import ROOT
from tests.waiting import Stalls, until, until_sync

FULL = bool(os.environ.get("DRUMBEAT_FULL"))
QUICK = {"DRUMBEAT_LOCK_LEASE": "2", "DRUMBEAT_LOCK_RENEW": "0.5"}
RENEWED_EVERY_S = 5.0


class Lockers:
    """Processes of tests/apps/lockers.py on one store, and what they wrote down."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.journal = folder / "journal"
        self._started: list[subprocess.Popen[str]] = []

    def start(self, settings: Mapping[str, str] = QUICK) -> "subprocess.Popen[str]":
        log = (self.folder / f"locker-{len(self._started)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.apps.lockers"],
            cwd=ROOT,
            env=os.environ | settings | {"DRUMBEAT_URL": self.url, journal.FILE: str(self.journal)},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            text=True,
        )
        log.close()
        self._started.append(process)
        self.wait_for("ready", len(self._started))
        return process

    def tell(self, process: "subprocess.Popen[str]", *words: object) -> None:
        assert process.stdin is not None
        process.stdin.write(" ".join(map(str, words)) + "\n")
        process.stdin.flush()

    def wait_for(self, event: str, count: int = 1) -> list[journal.Entry]:
        until_sync(
            lambda: len(journal.read(self.journal, event)) >= count,
            what=f"{count} x {event}\n{self.logs()}",
            deadline=60,
        )
        return journal.read(self.journal, event)

    def logs(self) -> str:
        return "\n".join(f"--- {log.name}\n{log.read_text()[-2000:]}" for log in self.folder.glob("locker-*.log"))

    def end(self) -> None:
        for process in self._started:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait(10)
            assert process.stdin is not None
            process.stdin.close()


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def engine(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def lockers(store_url: str, tmp_path: Path) -> Iterator[Lockers]:
    lockers = Lockers(store_url, tmp_path)
    yield lockers
    lockers.end()


async def test_twenty_waiters_keep_their_order_when_the_fifth_is_killed(lockers: Lockers) -> None:
    processes = [lockers.start() for _ in range(3)]
    fifth = lockers.start()
    async with Drumbeat(lockers.url) as app:
        async with app.lock("line"):
            for number in range(1, 21):
                lockers.tell(fifth if number == 5 else processes[number % 3], "enter", "line", number)

                async def are_waiting(number: int = number) -> bool:
                    return (await app.locks.show("line")).waiting == number

                await until(are_waiting, what=f"a line of {number}", deadline=30)
            fifth.kill()
        turns = [entry.facts for entry in lockers.wait_for("turn", 19)]
    assert [turn["number"] for turn in turns] == [number for number in range(1, 21) if number != 5]
    tokens = [turn["token"] for turn in turns]
    assert tokens == sorted(set(tokens))


async def test_a_holder_that_is_stopped_beyond_its_lease_loses_it_and_its_late_write_is_refused(
    lockers: Lockers, tmp_path: Path
) -> None:
    first, second = lockers.start(), lockers.start()
    lockers.tell(first, "hold", tmp_path / "resource.db")
    [holds] = lockers.wait_for("holds")
    lockers.tell(second, "hold", tmp_path / "resource.db")
    first.send_signal(signal.SIGSTOP)
    taken_over = lockers.wait_for("holds", 2)[1]
    first.send_signal(signal.SIGCONT)
    [ended] = lockers.wait_for("ends")
    [late] = lockers.wait_for("late")
    assert (ended.pid, ended.facts["lost"]) == (first.pid, True)
    assert (late.pid, late.facts["token"], late.facts["accepted"]) == (first.pid, holds.facts["token"], False)
    assert (taken_over.pid, taken_over.facts["accepted"]) == (second.pid, True)
    assert taken_over.facts["token"] > holds.facts["token"]


async def test_four_processes_keep_a_rate_and_use_it(lockers: Lockers) -> None:
    limit, per, seconds = (100, 10.0, 30.0) if FULL else (20, 1.0, 4.0)
    processes = [lockers.start() for _ in range(4)]
    for process in processes:
        lockers.tell(process, "calls", limit, per)
    with Stalls() as stalls:
        until_sync(lambda: _span(lockers) >= seconds, what="a run of that length", deadline=60)
    moments = sorted(entry.facts["at"] for entry in journal.read(lockers.journal, "call"))
    # SQLite reckons windows in boot time, and these moments in wall time, which is read a little later.
    too_close = [pair for pair in zip(moments, moments[limit:], strict=False) if pair[1] - pair[0] < per * 1e6 - 2_000]
    assert too_close == []
    enough = int(limit * (seconds - stalls.seconds) / per * 0.9)
    assert sum(moment <= moments[0] + seconds * 1e6 for moment in moments) >= enough
    assert len({entry.pid for entry in journal.read(lockers.journal, "call")}) == 4


async def test_a_crowd_in_line_costs_two_operations_for_each_handoff(lockers: Lockers) -> None:
    """One to leave and one to look, and one for each process every five seconds, however long the line is."""
    waiters, processes = (1_000, 4) if FULL else (80, 4)
    crowd = [lockers.start({}) for _ in range(processes)]
    async with Drumbeat(lockers.url) as app, app.lock("crowd"):
        for process in crowd:
            lockers.tell(process, "crowd", "crowd", waiters // processes)

        async def are_waiting() -> bool:
            return (await app.locks.show("crowd")).waiting == waiters

        await until(are_waiting, what=f"a line of {waiters}", deadline=60)
    ended = [entry.facts for entry in lockers.wait_for("crowd", processes)]
    calls = sum((Counter(facts["calls"]) for facts in ended), Counter[str]())
    renewals = sum(facts["seconds"] / RENEWED_EVERY_S + 1 for facts in ended)
    assert calls["locks.acquire"] == calls["locks.release"] == waiters
    assert calls["locks.ticket_status"] <= waiters + renewals


def _span(lockers: Lockers) -> float:
    moments = [entry.facts["at"] for entry in journal.read(lockers.journal, "call")]
    return (max(moments) - min(moments)) / 1e6 if moments else 0.0
