"""Topology `promotion`: a primary and a replica behind the run's proxy. The primary is killed, the replica takes its place,
and another replica joins.

PostgreSQL replicates synchronously: nothing that was acknowledged may be lost. Redis does not: `switch over` lets the replica
catch up before the primary is killed, and nothing may be lost; in `fail over` the replica stops listening while the primary
goes on, and what this one acknowledged alone may be lost, but nothing else.
"""

import asyncio
import threading
import time
from collections.abc import Sequence

from drumbeat.clock import SYSTEM
from tests.chaos.journal import Entry
from tests.chaos.rollback import Rollback, excuse_rollbacks
from tests.chaos.stores import ChaosPostgres, ChaosRedis
from tests.engines.redis.conftest import DURABLE
from tests.proof.history import History
from tests.servers.postgres import PostgresServer
from tests.servers.postgres_standby import SYNCHRONOUS, PostgresStandby
from tests.servers.redis import RedisServer
from tests.waiting import until_sync


class PromotedRedis(ChaosRedis):
    fault_share = 0.5
    faults: tuple[str, ...] = ("switch over", "switch over", "fail over", "fail over", "cut", "delay", "restart")

    async def open(self) -> None:
        self.rollbacks: list[Rollback] = []
        self.stack.callback(self._end_servers)
        self.server = self._start_server()
        self._replica = await asyncio.to_thread(self._start_replica)
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def _start_server(self) -> RedisServer:
        return RedisServer("valkey", DURABLE | {"repl-diskless-sync-delay": "0"}).__enter__()

    def _start_replica(self) -> RedisServer:
        replica = self._start_server()
        replica.ask("REPLICAOF", "127.0.0.1", self.server.port)
        self._catch_up(replica)
        return replica

    def _end_servers(self) -> None:
        for server in (self.server, self._replica):
            server.__exit__(None, None, None)

    def _catch_up(self, replica: RedisServer) -> None:
        """Until it has what the primary had done at the call."""
        offset = self.server.ask("INFO", "replication")["master_repl_offset"]

        def has_caught_up() -> bool:
            seen = replica.ask("INFO", "replication")
            return bool(seen.get("master_link_status") == "up" and seen["slave_repl_offset"] >= offset)

        until_sync(has_caught_up, deadline=30, what="the replica to catch up")

    def go_away(self, how: str) -> None:
        if how not in ("switch over", "fail over"):
            super().go_away(how)
            return
        if how == "switch over":
            self.server.ask("CLIENT", "PAUSE", 30_000, "WRITE")
        start, first_token = time.monotonic(), SYSTEM.now_us()
        self._catch_up(self._replica)
        self._replica.ask("REPLICAOF", "NO", "ONE")
        if how == "fail over":
            threading.Event().wait(self.dice.uniform(0.05, 1.0))
        self.server.kill()
        if how == "fail over":
            self.rollbacks.append(
                Rollback(start=start, end=time.monotonic(), first_token=first_token, last_token=SYSTEM.now_us())
            )

    def come_back(self, how: str) -> None:
        if how not in ("switch over", "fail over"):
            super().come_back(how)
            return
        self.server.__exit__(None, None, None)
        self.server = self._replica
        self.direct_url = self.server.url
        self.point_proxy(self.server.port)
        self._replica = self._start_replica()

    def judge(self, entries: Sequence[Entry], history: History) -> list[str]:
        excuse_rollbacks(entries, history, self.rollbacks, patience=history.grace)
        return []


class PromotedPostgres(ChaosPostgres):
    fault_share = 0.5
    faults: tuple[str, ...] = ("promote", "promote", "promote", "cut", "delay", "restart", "kill backend")

    async def open(self) -> None:
        self.stack.callback(self._end_servers)
        self.server = PostgresServer(settings=SYNCHRONOUS, in_memory=True).__enter__()
        self._standby = await asyncio.to_thread(self._start_standby)
        self.direct_url = self.server.url
        await self.open_proxy(self.server.port)

    def _start_standby(self) -> PostgresStandby:
        standby = PostgresStandby(self.server, SYNCHRONOUS, in_memory=True).__enter__()
        self._wait_for_standby()
        return standby

    def _end_servers(self) -> None:
        for server in (self._standby, self.server):
            server.__exit__(None, None, None)

    def _wait_for_standby(self) -> None:
        until_sync(self._has_standby, deadline=30, what="the standby")

    def _has_standby(self) -> bool:
        states = asyncio.run(
            self.server.execute("SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'")
        )
        return [row["sync_state"] for row in states] == ["sync"]

    def go_away(self, how: str) -> None:
        if how == "promote":
            self._wait_for_standby()  # a second loss before the first is mended is beyond what one standby can do
            self.server.stop("kill")
        else:
            super().go_away(how)

    def come_back(self, how: str) -> None:
        if how != "promote":
            super().come_back(how)
            return
        self._standby.promote()
        self.server.__exit__(None, None, None)
        self.server = self._standby
        self.direct_url = self.server.url
        self.point_proxy(self.server.port)
        self._standby = self._start_standby()
