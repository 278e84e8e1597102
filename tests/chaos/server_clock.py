"""Topology `clock`: the wall clock of the server is stepped, forward and back, while the other processes keep theirs."""

from tests.chaos.stores import ChaosPostgres, ChaosRedis
from tests.servers import stepped_clock
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer
from tests.servers.stepped_clock import SteppedClock

STEP = "step server clock"


class SteppedRedis(ChaosRedis):
    fault_share = 0.5
    faults: tuple[str, ...] = (STEP, STEP, "cut", "restart")

    @classmethod
    def find_obstacle(cls) -> str | None:
        return stepped_clock.find_obstacle()

    def make_server(self) -> RedisServer:
        clock = self.server_clock = SteppedClock()
        self.stack.callback(clock.remove)
        server = super().make_server()
        server.environment |= clock.environment
        return server


class SteppedPostgres(ChaosPostgres):
    fault_share = 0.5
    faults: tuple[str, ...] = (STEP, STEP, "cut", "restart", "kill backend")

    @classmethod
    def find_obstacle(cls) -> str | None:
        return stepped_clock.find_obstacle()

    def make_server(self) -> PostgresServer:
        clock = self.server_clock = SteppedClock()
        self.stack.callback(clock.remove)
        server = super().make_server()
        server.environment |= clock.environment
        return server
