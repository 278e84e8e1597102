"""A PostgreSQL whose data lies on a disk of its own, which a test may fill or cut off."""

import subprocess
from pathlib import Path
from types import TracebackType

from tests.servers.disks import LoopDisk, SmallDisk
from tests.servers.postgres import PostgresServer, kit
from tests.waiting import until_sync


class DiskPostgres(PostgresServer):
    disk: SmallDisk | LoopDisk

    def __init__(self, disk: type[SmallDisk | LoopDisk], megabytes: int) -> None:
        super().__init__(in_memory=True)
        self._disk_kind = disk
        self._megabytes = megabytes

    def _fill_data(self) -> None:
        self.disk = self._disk_kind(Path(self._data), self._megabytes)
        self.disk.mount()
        subprocess.run(["cp", "-a", f"{kit(self._version) / 'data'}/.", self._data], check=True)
        subprocess.run(["sync", "-f", self._data], check=True)  # initdb was told not to

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop("immediate")
        self.disk.unmount()
        super().__exit__(kind, error, trace)

    def revive(self) -> None:
        """As a service manager: start it again if it has ended, and wait until it answers."""
        until_sync(self._is_up_again, deadline=60, what="PostgreSQL to recover")

    def _is_up_again(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            self._process = None
            self.start()
        return self._answers()
