"""What Redis has no transactions for. The contract is in `store.protocol.Inside`; every operation says so."""

from collections.abc import Sequence
from typing import Any, NoReturn

from drumbeat.core.claim import ClaimRef
from drumbeat.core.job import NewJob
from drumbeat.errors import NotTransactional
from drumbeat.ids import InstanceId


class RedisTransactional:
    def check(self) -> NoReturn:
        raise NotTransactional("Redis")

    async def add(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> NoReturn:
        self.check()

    def add_sync(self, conn: Any, jobs: Sequence[NewJob], *, notify: bool = True) -> NoReturn:
        self.check()

    async def complete(
        self,
        conn: Any,
        instance: InstanceId,
        claim: ClaimRef,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> NoReturn:
        self.check()

    def complete_sync(
        self,
        conn: Any,
        instance: InstanceId,
        claim: ClaimRef,
        *,
        started_at: int,
        result: str | None,
        result_error: str | None,
    ) -> NoReturn:
        self.check()

    def transaction(self) -> NoReturn:
        self.check()
