"""honker on SQLite, by its own task workers: a Rust core, one claim and one ack transaction for each job."""

from bench.contender import STAMP, STAMP_WALL, Contender, Producer


def envelope(task: str, number: int) -> dict[str, object]:
    """The payload that honker's `@queue.task` wrapper writes; its bulk and delayed enqueue take payloads only."""
    return {"__honker_task__": {"task": task, "args": [number], "kwargs": {}}}


class HonkerProducer(Producer):
    bulk_chunk = 5_000

    def __init__(self) -> None:
        from bench.apps import honker_app

        self._app = honker_app

    def _bulk(self, numbers: range) -> None:
        with self._app.db.transaction() as transaction:
            for number in numbers:
                self._app.queue.enqueue(envelope(STAMP, number), tx=transaction)

    def _single(self, number: int) -> None:
        self._app.stamp(number)

    def _schedule(self, number: int, due_ns: int) -> None:
        self._app.queue.enqueue(envelope(STAMP_WALL, number), run_at=due_ns / 1e9)

    def unfinished(self) -> int:
        return self._app.db.query("SELECT count(*) AS live FROM _honker_live")[0]["live"]

    def close(self) -> None:
        self._app.db.close()


class HonkerSqlite(Contender):
    name = "honker"
    distribution = "honker"
    durability = "synchronous NORMAL (fixed in its core)"
    tuning = (
        "`python -m honker worker` with its default concurrency, the number of cores; async handlers, "
        "store_result=False, default 1 ms watcher; bulk is one transaction around 5,000 enqueues; "
        "run_at is cut to whole seconds, so a job may start early"
    )
    drain_jobs = 4_000

    def load(self) -> None:
        import honker  # noqa: F401

    def worker_arguments(self) -> list[str]:
        return ["-m", "honker", "worker", "bench.apps.honker_app:db"]

    def open_producer(self) -> Producer:
        return HonkerProducer()
