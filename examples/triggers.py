"""A burst: many triggers for one instant, a tenth of them cancelled before, sent to a Redis stream by several processes.

    python triggers.py              20,000 triggers
    python triggers.py 1000000      a million: give it PostgreSQL, `export DRUMBEAT_URL=postgresql://... && drumbeat migrate`

The stream is on the Redis of $REDIS_URL, or on this machine's own. At the end what was sent is compared with what was due and
not cancelled: each once, by its id.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import redis.asyncio

from drumbeat import CancelAnswer, Drumbeat
from drumbeat.sinks import RedisStreamSink

BROKER = os.environ.get("REDIS_URL", "redis://localhost:6379")
STREAM = "reminders"
PROCESSES = 2
CHUNK = 5_000

app = Drumbeat(name="triggers")
remind = app.forward(
    "order.reminder", to=RedisStreamSink(stream=STREAM, url=BROKER), type=dict[str, int], queue="triggers"
)


async def story(count: int) -> None:
    async with app, redis.asyncio.from_url(BROKER) as broker:
        await broker.delete(STREAM)
        instant = datetime.now(UTC) + timedelta(seconds=6 + count / 4_000)
        ids = await plan(count, instant)
        cancelled = await cancel(ids)
        if datetime.now(UTC) >= instant:
            raise SystemExit("this machine is too slow: the instant has come before all was cancelled")
        due = {id for number, id in enumerate(ids) if number % 10}
        dispatchers = start_dispatchers()
        try:
            await asyncio.sleep((instant - datetime.now(UTC)).total_seconds())
            started = time.monotonic()
            while await broker.xlen(STREAM) < len(due):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            took = time.monotonic() - started
        finally:
            dispatchers.terminate()
            dispatchers.wait()
        sent = await read(broker)
        missing, twice, wrong = len(due - sent.keys()), sum(n > 1 for n in sent.values()), len(sent.keys() - due)
        print(f"{count} triggers, {cancelled} cancelled, {len(sent)} sent in {took:.1f} s")
        print(f"{missing} missing, {twice} twice, {wrong} that were not due")


async def plan(count: int, instant: datetime) -> list[str]:
    """Enqueue all for the same instant; returns the ids of the jobs."""
    ids: list[str] = []
    for start in range(0, count, CHUNK):
        chunk = range(start, min(count, start + CHUNK))
        calls = [remind.using(at=instant, key=f"order:{number}").bind({"order": number}) for number in chunk]
        ids += [job.id for job in await app.enqueue_many(calls)]
    return ids


async def cancel(ids: list[str]) -> int:
    """Cancel a tenth: half of it by key, half by id, many in one call."""
    half = len(ids) // 2
    answer = await app.cancel(task=remind, keys=[f"order:{number}" for number in range(0, half, 10)])
    cancelled = answer.cancelled
    others = [ids[number] for number in range(-(-half // 10) * 10, len(ids), 10)]
    for start in range(0, len(others), CHUNK):
        answers = await app.jobs.cancel(others[start : start + CHUNK])
        cancelled += answers.count(CancelAnswer.CANCELLED)
    return cancelled


def start_dispatchers() -> "subprocess.Popen[bytes]":
    options = ["--processes", str(PROCESSES), "--log-level", "error"]
    return subprocess.Popen([sys.executable, "-m", "drumbeat", "run", "triggers:app", *options])


async def read(broker: "redis.asyncio.Redis") -> Counter[str]:
    """How often each id occurs in the stream."""
    sent: Counter[str] = Counter()
    last = "-"
    while page := await broker.xrange(STREAM, last, count=10_000):
        sent.update(fields[b"id"].decode() for _, fields in page)
        last = f"({page[-1][0].decode()}"
    return sent


if __name__ == "__main__":
    asyncio.run(story(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
