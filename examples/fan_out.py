"""10,000 pages are counted side by side, and one job adds up what they found, though a worker is killed in the middle.

    python fan_out.py            10,000 pages
    python fan_out.py 100000     as many as one workflow takes

Two worker processes share the work; one of them is killed with kill -9 when a part is done. The jobs are in drumbeat.db in this
folder, or wherever DRUMBEAT_URL says.
"""

import asyncio
import subprocess
import sys
import time

from drumbeat import Drumbeat, Results

# Short intervals, because a worker really dies here.
app = Drumbeat(name="fan-out", heartbeat=0.2, dead_after=1, poll=0.2)


@app.task
async def count_words(page: int) -> int:
    return len(text_of(page).split())


@app.task
async def add_up(counts: Results[int]) -> int:
    """Runs once, when every page has been counted. The results are read in pages of 1,000."""
    total = 0
    async for count in counts:
        total += count
    return total


def text_of(page: int) -> str:
    return "word " * (page % 100)


async def story(pages: int) -> None:
    async with app:
        flow = app.workflow("word count", count_words.map(range(pages), then=add_up), labels={"book": "moby-dick"})
        began = time.monotonic()
        workflow = await flow.enqueue()
        print(f"{len(workflow.jobs)} jobs stored in {time.monotonic() - began:.1f} s")
        workers = [start_worker(), start_worker()]
        try:
            while (await workflow.get()).counts.get("succeeded", 0) < min(pages, 10_000) // 4:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            workers[0].kill()
            total = await workflow.result(timeout=120)
            print(f"{total} words, {time.monotonic() - began:.1f} s after the beginning; one worker was killed")
        finally:
            for worker in workers:
                worker.terminate()
                worker.wait()
    expected = sum(len(text_of(page).split()) for page in range(pages))
    print("as expected" if total == expected else f"expected {expected}")


def start_worker() -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-m", "drumbeat", "run", "fan_out:app", "--log-level", "error"])


if __name__ == "__main__":
    asyncio.run(story(pages=int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
