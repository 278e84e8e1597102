"""What Redis has no transactions for. The contract is in `store.protocol.Inside`; every operation says so."""

from collections.abc import Sequence
from typing import Any, NoReturn

from drumbeat.core.claim import CompletedJob
from drumbeat.core.job import NewJob
from drumbeat.errors import NotTransactional


class RedisTransactional:
    def _refuse(self) -> NoReturn:
        raise NotTransactional("Redis")

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> NoReturn:
        self._refuse()

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> NoReturn:
        self._refuse()

    async def complete(self, conn: Any, completed: CompletedJob) -> NoReturn:
        self._refuse()

    def complete_sync(self, conn: Any, completed: CompletedJob) -> NoReturn:
        self._refuse()

    def transaction(self) -> NoReturn:
        self._refuse()
