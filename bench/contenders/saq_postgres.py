"""SAQ on PostgreSQL: no bulk call, and a statement or more for each job."""

import sys

from bench.async_producer import SideBySide
from bench.contender import Producer
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender, SqlProducer


class SaqProducer(SideBySide, SqlProducer):
    unfinished_sql = """
        SELECT count(*) FROM (SELECT FROM saq_jobs
                               WHERE status NOT IN ('aborted', 'complete', 'failed')
                                 AND scheduled <= extract(epoch FROM now()) LIMIT 1) due
        """

    async def open(self) -> None:
        from bench.apps import saq_app

        await super().open()
        self._queue = saq_app.queue
        await self._queue.connect()

    async def shut(self) -> None:
        await self._queue.disconnect()
        await super().shut()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        # Whole seconds are all it has; up, because down would be early.
        await self._queue.enqueue(task, number=number, scheduled=-(-due_ns // 10**9) if due_ns else 0)


class SaqPostgres(PostgresContender):
    name = "saq"
    distribution = "saq"
    tuning = (
        "`saq` with concurrency 20 (no other was tried), its default pool of 4 to 20, async functions, timers schedule=0.1 "
        "(its default is 1 s, and times are whole seconds); no bulk call; a worker serves one queue; contention with "
        "concurrency 10"
    )
    drain_jobs = 1_500
    fill_rate = 300
    contended_jobs = 1_500
    measures = LOAD_MEASURES

    def load(self) -> None:
        import saq.queue.postgres  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[sys.executable, "-m", "bench.apps.saq_app"]]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        return [sys.executable, "-m", "saq", f"bench.apps.saq_app.{'few' if concurrency else 'many'}"]

    def open_producer(self) -> Producer:
        return SaqProducer()
