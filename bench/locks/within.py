"""Within one process: `local_lock`, alone, handed over in a loop and between two; and `app.lock` beside redis-py's own.

Each figure is the median of many rounds; where two are compared, their rounds take turns. CPU is this process's own.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

from bench.measures import quantile
from drumbeat import Drumbeat, local_lock

ROUNDS, TIMES, CALLS = 30, 300, 4_000


def local() -> dict[str, float]:
    return asyncio.run(_local())


async def _local() -> dict[str, float]:
    await _alone()
    figures: dict[str, float] = {}
    for name, measure in {"uncontended": _alone, "handoff in a loop": _handed_over}.items():
        rounds = [await measure() for _ in range(ROUNDS)]
        figures[f"{name} µs"] = statistics.median(wall for wall, _ in rounds)
        figures[f"{name}, CPU µs"] = statistics.median(cpu for _, cpu in rounds)
    figures["handoff between loops µs"] = _between_loops()
    figures["a bare call between loops µs"] = _bare_call()
    return figures


async def _alone() -> tuple[float, float]:
    lock, watch = local_lock("alone"), _Watch()
    for _ in range(TIMES):
        async with lock:
            pass
    return watch.taken(TIMES)


async def _handed_over() -> tuple[float, float]:
    """A line of tasks, each of which leaves at once: one handoff for each."""
    lock = local_lock("line")

    async def turn() -> None:
        async with lock:
            pass

    async with asyncio.TaskGroup() as group:
        async with lock:
            for _ in range(TIMES):
                group.create_task(turn())
            await asyncio.sleep(0)  # now they are all in line
            watch = _Watch()
    return watch.taken(TIMES)


def _between_loops() -> float:
    """Two threads with a loop each, one lock: from before the one leaves to after the other has entered."""
    spans: list[tuple[int, float, float]] = []

    async def play(number: int) -> None:
        lock = local_lock("ball")
        for _ in range(TIMES):
            async with lock:
                got = time.perf_counter()
                await asyncio.sleep(0.0005)  # the other is in line by then
                spans.append((number, got, time.perf_counter()))

    threads = [threading.Thread(target=lambda number=number: asyncio.run(play(number))) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [b[1] - a[2] for a, b in pairwise(spans) if a[0] != b[0]]
    return statistics.median(taken) * 1e6


def _bare_call() -> float:
    """What a handoff between loops cannot do without: another loop is told, and its task goes on."""
    there, taken = asyncio.new_event_loop(), list[float]()
    thread = threading.Thread(target=there.run_forever)
    thread.start()

    async def hear(told: "asyncio.Future[float]") -> None:
        taken.append(-await told + time.perf_counter())

    for _ in range(TIMES):
        told: asyncio.Future[float] = there.create_future()
        heard = asyncio.run_coroutine_threadsafe(hear(told), there)
        time.sleep(0.0005)
        there.call_soon_threadsafe(told.set_result, time.perf_counter())
        heard.result()
    there.call_soon_threadsafe(there.stop)
    thread.join()
    there.close()
    return statistics.median(taken) * 1e6


def beside_redis_py(url: str) -> dict[str, float]:
    return asyncio.run(_beside(url))


async def _beside(url: str) -> dict[str, float]:
    from redis.asyncio import Redis

    async with Drumbeat(url) as app, Redis.from_url(url) as client:
        ours = app.lock("ours")

        async def enter_ours() -> None:
            async with ours:
                pass

        async def enter_theirs() -> None:
            async with client.lock("theirs", timeout=15):
                pass

        return await _call_by_call({"drumbeat": enter_ours, "redis-py": enter_theirs})


async def _call_by_call(calls: dict[str, Callable[[], Awaitable[Any]]]) -> dict[str, float]:
    """Two that take turns call by call, in changing order: what else the machine does meets both alike.

    Rounds of a hundred calls did not do on a busy machine: the median of their ratios said 0.95 where the ratio of their
    medians said 1.4. So both are here, and low quantiles, which are the nearest to a quiet machine.
    """
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for number in range(CALLS + TIMES):
        for name in list(calls) if number % 2 else reversed(calls):
            watch = _Watch()
            await calls[name]()
            if number >= TIMES:  # before, it is a warm-up
                taken[name].append(watch.taken(1))
    figures: dict[str, float] = {}
    (ours, theirs), kinds = taken.values(), {"wall": 0, "CPU": 1}
    for kind, at in kinds.items():
        for part in (0.1, 0.25, 0.5, 0.75):
            a, b = (quantile([call[at] for call in each], part) for each in (ours, theirs))
            figures |= {
                f"{kind}, p{part * 100:.0f}: {name} µs": value for name, value in zip(calls, (a, b), strict=True)
            }
            figures[f"{kind}, p{part * 100:.0f}: ratio"] = a / b
    figures["wall, mean: ratio"] = sum(call[0] for call in ours) / sum(call[0] for call in theirs)
    figures["wall, median of the ratios of pairs"] = statistics.median(
        a[0] / b[0] for a, b in zip(ours, theirs, strict=True)
    )
    return figures


async def alone(url: str) -> dict[str, float]:
    """Entering and leaving with nobody else there, on any engine."""
    async with Drumbeat(url) as app:
        lock = app.lock("ours")

        async def enter() -> None:
            async with lock:
                pass

        rounds = (await _taking_turns({"drumbeat": enter}))["drumbeat"]
        return {
            "enter and leave µs": statistics.median(wall for wall, _ in rounds),
            "CPU µs": statistics.median(cpu for _, cpu in rounds),
        }


class _Watch:
    def __init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def taken(self, times: int) -> tuple[float, float]:
        """Microseconds of wall time and of this process's CPU time, per operation."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        return wall / times * 1e6, cpu / times * 1e6


Rounds = dict[str, list[tuple[float, float]]]


async def _taking_turns(calls: dict[str, Callable[[], Awaitable[Any]]]) -> Rounds:
    """Microseconds of wall time and of this process's CPU time for one call, round by round."""
    taken: Rounds = {name: [] for name in calls}
    for number in range(ROUNDS + 1):
        for name, call in calls.items():
            watch = _Watch()
            for _ in range(TIMES // 3):
                await call()
            if number:  # the first is a warm-up
                taken[name].append(watch.taken(TIMES // 3))
    return taken
