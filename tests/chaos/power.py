"""Topology `power`: a cut of the power, of the machine of the PostgreSQL server, or of that of all processes for SQLite.

The data lies on an ext4 in a file. At the cut, everything that nobody has synced is lost, but nothing acknowledged (V1).
"""

import random
import shutil
from pathlib import Path

from tests.chaos.stores import ChaosPostgres, ChaosStore
from tests.servers import disks
from tests.servers.disk_postgres import DiskPostgres
from tests.servers.disks import LoopDisk
from tests.servers.postgres import PostgresServer

MEGABYTES = 2048
POWER = "power"


class PoweredSqlite(ChaosStore):
    fault_share = 0.5
    faults: tuple[str, ...] = (POWER, POWER, "lock file")
    isolation = ("--mount",)

    def __init__(self, folder: Path, dice: random.Random) -> None:
        super().__init__(folder, dice)
        self._kept = folder / "disk.kept"
        self._disk = LoopDisk(folder / "disk", MEGABYTES)
        self._path = self._disk.folder / "jobs.db"
        self.direct_url = self.url = f"sqlite:///{self._path}"

    @classmethod
    def find_obstacle(cls) -> str | None:
        return disks.find_loop_obstacle()

    async def open(self) -> None:
        self._disk.mount()
        self.stack.callback(self._close_disk)

    def _close_disk(self) -> None:
        """The folder of a failed run is kept whole."""
        shutil.copytree(self._disk.folder, self._kept, dirs_exist_ok=True)
        self._disk.unmount()

    def go_away(self, how: str) -> None:
        if how != POWER:
            super().go_away(how)
            return
        self.is_halting = True
        for process in self.processes:
            process.kill()
        self._disk.cut_power()
        self._disk.unmount()

    def come_back(self, how: str) -> None:
        if how != POWER:
            super().come_back(how)
            return
        self._disk.mount()
        self.is_halting = False


class PoweredPostgres(ChaosPostgres):
    fault_share = 0.5
    faults: tuple[str, ...] = ("power of the server", "power of the server", "cut", "kill backend")
    isolation = ("--mount",)

    @classmethod
    def find_obstacle(cls) -> str | None:
        return disks.find_loop_obstacle()

    def make_server(self) -> PostgresServer:
        return DiskPostgres(LoopDisk, MEGABYTES)

    def go_away(self, how: str) -> None:
        if how != "power of the server":
            super().go_away(how)
            return
        disk = self._disk
        disk.cut_power()
        self.server.stop("kill")
        disk.unmount()

    def come_back(self, how: str) -> None:
        if how != "power of the server":
            super().come_back(how)
            return
        self._disk.mount()
        self.server.start()

    @property
    def _disk(self) -> LoopDisk:
        assert isinstance(self.server, DiskPostgres) and isinstance(self.server.disk, LoopDisk)
        return self.server.disk
