"""What Redis has no transactions for. The contract is in `store.protocol.Transactional`; every operation says so."""

from typing import Any, NoReturn

from drumbeat.errors import NotTransactional


class RedisTransactional:
    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise NotTransactional("Redis")

    check_connection = add = add_sync = complete = complete_sync = transaction = _refuse
    record_step = record_step_sync = send_signal = send_signal_sync = _refuse
