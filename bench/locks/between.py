"""Between processes: how long a lock takes from one to the next, and what a crowd in its line costs the store."""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from itertools import pairwise
from typing import Any

from bench.apps import URL_NAME
from bench.locks.places import Count
from bench.measures import quantile
from bench.processes import ROOT, python_path
from drumbeat import Drumbeat

IN_LINE_NS = 10_000_000
"""Only turns of those who had been waiting for so long are handed over; else it is an entering."""
RENEWED_EVERY_S = 5.0


def handoff(url: str, rounds: int) -> dict[str, float]:
    """From just before one leaves to just after the other has entered, in milliseconds."""
    with playing(url, [("handoff", "ball", rounds, seed) for seed in range(2)]) as players:
        turns = sorted((*turn, number) for number, player in enumerate(players) for turn in answer(player))
    taken = [
        (after[2] - before[3]) / 1e6
        for before, after in pairwise(turns[20:])
        if before[4] != after[4] and after[1] + IN_LINE_NS < before[3]
    ]
    return {
        "handoffs": len(taken),
        "p50 ms": quantile(taken, 0.5),
        "p90 ms": quantile(taken, 0.9),
        "p99 ms": quantile(taken, 0.99),
    }


def crowd(url: str, count: Count | None, *, processes: int, waiters: int) -> dict[str, float]:
    """Operations for each handoff, while a line of `waiters` in that many processes is served to its end."""
    return asyncio.run(_crowd(url, count, processes, waiters))


async def _crowd(url: str, count: Count | None, processes: int, waiters: int) -> dict[str, float]:
    async with Drumbeat(url) as app, AsyncExitStack() as held:
        await held.enter_async_context(app.lock("crowd"))
        with playing(url, [("crowd", "crowd", waiters // processes)] * processes) as players:
            while (await app.locks.show("crowd")).waiting < waiters:
                if any(player.poll() is not None for player in players):
                    raise RuntimeError("a player ended before its turn")
                await asyncio.sleep(0.2)
            before = None if count is None else await asyncio.to_thread(count)
            began = time.monotonic()
            await held.aclose()
            answers = await asyncio.to_thread(lambda: [answer(player) for player in players])
        seconds = time.monotonic() - began
        sent = None if count is None or before is None else await asyncio.to_thread(count) - before
    calls: Counter[str] = sum((Counter(each["calls"]) for each in answers), Counter())
    renewals = processes * (seconds / RENEWED_EVERY_S + 1)
    figures = {
        "handoffs": waiters,
        "seconds": seconds,
        "handoffs/s": waiters / seconds,
        "releases for each": calls["release"] / waiters,
        "status reads for each": calls["ticket_status"] / waiters,
        "renewals, all processes": calls["renew"],
        "renewals, one for each process every 5 s": renewals,
    }
    if sent is not None:
        figures["sent for each, as the server counts"] = sent / waiters
    return figures


@contextmanager
def playing(url: str, told: Sequence[tuple[object, ...]]) -> "Iterator[list[subprocess.Popen[str]]]":
    """A process for each; none outlives the measure."""
    players = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.locks.player", *map(str, each)],
            cwd=ROOT,
            env=os.environ | {URL_NAME: url, "PYTHONPATH": python_path()},
            stdout=subprocess.PIPE,
            text=True,
        )
        for each in told
    ]
    try:
        yield players
    finally:
        for player in players:
            player.kill()
            player.wait()


def answer(player: "subprocess.Popen[str]") -> Sequence[Any] | Any:
    said, _ = player.communicate(timeout=300)
    if player.returncode != 0:
        raise RuntimeError(f"a player ended with {player.returncode}")
    return json.loads(said)
