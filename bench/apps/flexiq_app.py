"""FlexiQ's program."""

from flexiq import Queue

from bench.apps.folder import folder, ledger

queue = Queue(
    db_path=str(folder() / "flexiq.db"),
    workers=200,
    pool_size=4,
    async_concurrency=1_000,
    scheduler_batch_size=1_000,
    scheduler_poll_interval_ms=5,
)


@queue.task(name="stamp")
async def stamp(number):
    ledger.stamp(number)


@queue.task(name="stamp_wall")
async def stamp_wall(number):
    ledger.stamp_wall(number)
