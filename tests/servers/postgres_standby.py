"""A PostgreSQL standby that streams from a primary, and can be promoted: made from it by `pg_basebackup`."""

import os
import subprocess
from collections.abc import Mapping

from tests.servers.postgres import PASSWORD, PostgresServer, as_nobody

SYNCHRONOUS = {
    "synchronous_standby_names": "*",
    "wal_keep_size": "1GB",
    "wal_retrieve_retry_interval": "100ms",
    "wal_receiver_timeout": "5s",
}
"""Settings of a primary whose commits wait until a standby has them on disk, and of its standbys, which may become one."""


class PostgresStandby(PostgresServer):
    """Use it as a `PostgresServer`: read-only until `promote`."""

    def __init__(self, primary: PostgresServer, settings: Mapping[str, str], *, in_memory: bool = False) -> None:
        source = f"host=127.0.0.1 port={primary.port} user=postgres password={PASSWORD}"
        super().__init__(primary._version, {**settings, "primary_conninfo": source}, in_memory=in_memory)
        self._primary = primary

    def _fill_data(self) -> None:
        if os.getuid() == 0:
            self._folder.chmod(0o777)  # nobody makes the folder of the data
        copied = subprocess.run(
            [
                *(self._binary("pg_basebackup"), "-h", "127.0.0.1", "-p", str(self._primary.port), "-U", "postgres"),
                *("-D", self._data, "--wal-method=stream", "--checkpoint=fast", "--no-sync"),
            ],
            capture_output=True,
            text=True,
            cwd=self._folder,
            env=os.environ | {"PGPASSWORD": PASSWORD},
            check=False,
            **as_nobody(),
        )
        assert copied.returncode == 0, copied.stdout + copied.stderr
        (self._folder / "data" / "standby.signal").touch()

    def promote(self) -> None:
        """It takes writes when this returns."""
        promoted = subprocess.run(
            [self._binary("pg_ctl"), "promote", "-D", self._data, "-w", "-t", "30"],
            capture_output=True,
            text=True,
            cwd=self._folder,
            check=False,
            **as_nobody(),
        )
        assert promoted.returncode == 0, promoted.stdout + promoted.stderr + self.log
