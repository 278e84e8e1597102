"""Procrastinate on PostgreSQL: a fetch and a finish for each job, on a pool of connections."""

import sys

from bench.contender import BACKLOG, Producer, to_datetime
from bench.contenders.postgres import LOAD_MEASURES, PostgresContender, SqlProducer


class ProcrastinateProducer(SqlProducer):
    bulk_chunk = 1_000
    unfinished_sql = """
        SELECT count(*) FROM (SELECT FROM procrastinate_jobs
                               WHERE status IN ('todo', 'doing') AND coalesce(scheduled_at, now()) <= now() LIMIT 1) due
        """

    async def open(self) -> None:
        from bench.apps import procrastinate_app

        await super().open()
        self._app = procrastinate_app.app
        await self._app.open_async()

    async def shut(self) -> None:
        await self._app.close_async()
        await super().shut()

    async def add(self, task: str, number: int, *, due_ns: int | None = None) -> None:
        await self._configured(task, due_ns).defer_async(number=number)

    async def add_many(self, task: str, numbers: range, *, due_ns: int | None = None, keyed: bool = False) -> None:
        assert not keyed, "a batch has one queueing lock for all its jobs"
        await self._configured(task, due_ns).batch_defer_async(*({"number": number} for number in numbers))

    def _configured(self, task: str, due_ns: int | None):
        return self._app.configure_task(task, **({} if due_ns is None else {"schedule_at": to_datetime(due_ns)}))


class ProcrastinatePostgres(PostgresContender):
    name = "procrastinate"
    distribution = "procrastinate"
    tuning = (
        "`procrastinate worker --concurrency 20 --delete-jobs successful`, a pool of at most 20 (no other numbers were tried), "
        "async tasks, no line for each job; "
        "`--fetch-job-polling-interval 0.1`, because scheduled jobs are only found by polling (its default is 5 s); bulk is "
        "batch_defer in calls of 1,000; contention with `--concurrency 10`"
    )
    drain_jobs = 1_000
    fill_rate = 2_000
    contended_jobs = 1_200
    measures = LOAD_MEASURES | {BACKLOG}
    has_other_queue = True

    def load(self) -> None:
        import procrastinate  # noqa: F401

    def preparations(self) -> list[list[str]]:
        return [[*self._command(), "schema", "--apply"]]

    def worker_command(self, *, concurrency: int | None = None, other_queue: bool = False) -> list[str]:
        options = ["--concurrency", str(concurrency or 20), "--fetch-job-polling-interval", "0.1"]
        # The last of them: its command line wants the word of its own enumeration.
        return [*self._command(), "worker", *options, "--delete-jobs", "successful"]

    def open_producer(self) -> Producer:
        return ProcrastinateProducer()

    def _command(self) -> list[str]:
        return [sys.executable, "-m", "procrastinate", "--app=bench.apps.procrastinate_app.app", "--log-level=warning"]
