"""Huey on SQLite, with fsync. It has no bulk call, and takes and deletes one job for each transaction."""

from bench.contender import Contender, Producer, to_datetime


class HueyProducer(Producer):
    def __init__(self) -> None:
        from bench.apps import huey_app

        self._app = huey_app

    def _single(self, number: int) -> None:
        self._app.stamp(number)

    def _schedule(self, number: int, due_ns: int) -> None:
        # An aware datetime: Huey cuts a naive one to whole seconds, and would then seem to start jobs early.
        self._app.stamp_wall.schedule(args=(number,), eta=to_datetime(due_ns))

    def close(self) -> None:
        self._app.huey.storage.close()

    def unfinished(self) -> int:
        # Huey deletes a job before it runs: for it, the handlers' stamps are what tells the end.
        return self._app.huey.pending_count() + self._app.huey.scheduled_count()


class HueySqlite(Contender):
    name = "huey"
    distribution = "huey"
    durability = "synchronous FULL (fsync=True)"
    tuning = (
        "`huey_consumer -w 1 -d 0.005 -m 0.02`, results=False: more threads drained fewer here, and the short "
        "delays are for pickup; no bulk call; its scheduler looks once a second at best"
    )
    drain_jobs = 4_000

    def load(self) -> None:
        import huey  # noqa: F401

    def worker_arguments(self) -> list[str]:
        options = ["-q", "--no-periodic", "-w", "1", "-d", "0.005", "-m", "0.02"]
        return ["-m", "huey.bin.huey_consumer", "bench.apps.huey_app.huey", *options]

    def open_producer(self) -> Producer:
        return HueyProducer()
