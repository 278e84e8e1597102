"""Topologies `pooler` and `pooler-session`: PgBouncer between the proxy and PostgreSQL, in transaction or session mode."""

from tests.chaos.stores import NETWORK, ChaosPostgres
from tests.servers import pgbouncer
from tests.servers.pgbouncer import PgBouncer

RESTART = "restart pooler"


class PooledPostgres(ChaosPostgres):
    fault_share = 0.5
    faults: tuple[str, ...] = (*NETWORK, RESTART, RESTART, "restart", "kill backend")
    mode, size = "transaction", 10

    @classmethod
    def find_obstacle(cls) -> str | None:
        return None if pgbouncer.PROGRAM else "there is no pgbouncer (Debian: apt install pgbouncer)"

    async def open_proxy(self, port: int) -> None:
        self._pooler = self.stack.enter_context(PgBouncer(self.server, mode=self.mode, size=self.size))
        await super().open_proxy(self._pooler.port)
        assert self.proxy is not None
        self.url = self._pooler.url_of("postgres").replace(f":{self._pooler.port}/", f":{self.proxy.port}/")

    def go_away(self, how: str) -> None:
        if how == RESTART:
            self._pooler.kill()
        else:
            super().go_away(how)

    def come_back(self, how: str) -> None:
        if how == RESTART:
            self._pooler.start()
        else:
            super().come_back(how)


class SessionPooledPostgres(PooledPostgres):
    mode, size = "session", 80
