"""Where measures take place: what a contender's processes need to find their store, fresh for each measure.

`Site` is that of SQLite, where a fresh folder is all. bench/postgres.py and bench/redis.py have those with a server.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from bench.contender import Contender


class Site:
    def __init__(self, parent: Path | None) -> None:
        self.parent = parent
        """Where folders are made. None: where the system has its temporary files."""

    def facts(self) -> dict[str, str]:
        """What else is to be said about the machine."""
        return {}

    @contextmanager
    def prepare(self, contender: Contender, folder: Path) -> Iterator[dict[str, str]]:
        """An empty store for one measure; gives what the processes' environment needs."""
        yield contender.environment(folder)

    def count_operations(
        self, environment: dict[str, str]
    ) -> AbstractContextManager[Callable[[], dict[str, int]]] | None:
        """Inside it, the number of statements that this store has been sent, by figure. None: nobody counts."""
        return None

    def memory(self, environment: dict[str, str]) -> int | None:
        """Bytes that the server holds, where all its data are in memory."""
        return None

    def server_cpu(self, environment: dict[str, str]) -> float | None:
        """Seconds of CPU that the server has used so far. None: there is no server."""
        return None

    def snapshot(self, environment: dict[str, str]) -> AbstractContextManager[None]:
        """Another session's open snapshot."""
        raise NotImplementedError
