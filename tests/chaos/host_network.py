"""Topology `hosts`: the processes live on three hosts, network namespaces that are cut off from the store one at a time.

Unlike the faults of the proxy these lose packets, not connections: nobody is told, in one direction or in both. The fence,
which no fault concerns, is on another network. Processes of Drumbeat do not talk to each other but through the store.
"""

import random
from pathlib import Path

from tests.chaos.nemesis import CUTS
from tests.chaos.stores import ChaosPostgres, ChaosRedis, ChaosStore
from tests.servers import hosts
from tests.servers.hosts import Hosts

COUNT = 3


class OnHosts(ChaosStore):
    fault_share = 0.5
    faults: tuple[str, ...] = ("cut host", *CUTS, "cut", "restart")
    isolation = ("--net", "--mount")

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self._hosts = Hosts(COUNT)
        self._homes: dict[str, str] = {}
        self._cut_host: str | None = None

    @classmethod
    def find_obstacle(cls) -> str | None:
        return hosts.find_obstacle()

    async def open(self) -> None:
        self._hosts.build()
        self.fence_address = self._hosts.other_address
        await super().open()

    async def open_proxy(self, port: int) -> None:
        self.proxy_address = self._hosts.store_address
        await super().open_proxy(port)

    def place(self, name: str, command: list[str]) -> list[str]:
        host = self._homes[name] = self._hosts.names[len(self._homes) % COUNT]
        return self._hosts.wrap(host, command)

    def find_concerned(self, how: str) -> set[str] | None:
        if how not in CUTS:
            return None
        return {name for name, host in self._homes.items() if host == self._cut_host}

    def go_away(self, how: str) -> None:
        if how not in CUTS:
            super().go_away(how)
            return
        self._cut_host = host = self.dice.choice(self._hosts.names)
        {"cut host": self._hosts.cut, "deafen host": self._hosts.deafen, "mute host": self._hosts.mute}[how](host)

    def come_back(self, how: str) -> None:
        if how not in CUTS:
            super().come_back(how)
            return
        assert self._cut_host is not None
        self._hosts.heal(self._cut_host)


class RedisForHosts(OnHosts, ChaosRedis):
    pass


class PostgresForHosts(OnHosts, ChaosPostgres):
    pass
