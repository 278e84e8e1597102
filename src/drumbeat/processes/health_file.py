"""`--health FILE`: a file that is written anew every second while the process is live, for probes that run a command."""

import logging
import os
from contextlib import suppress

from drumbeat.errors import ConfigError
from drumbeat.processes.health import ProcessHealth, encode_report

log = logging.getLogger(__name__)


class HealthFile:
    """A `HealthOutlet`. Its age tells whether the process lives, its text whether it is ready; removed at the end."""

    interval = None

    def __init__(self, path: str) -> None:
        """
        Raises:
            ConfigError: it cannot be written.
        """
        self._path = path
        self._draft = f"{path}.new"
        self._has_failed = False
        try:
            self._write(ProcessHealth(reasons=("starting",)))
        except OSError as error:
            raise ConfigError(f"setting health: {path} cannot be written: {error.strerror}", "health") from error

    def tell(self, report: ProcessHealth) -> None:
        if not report.live:
            return  # a file that grows old is what tells it
        try:
            self._write(report)
        except OSError as error:
            if not self._has_failed:
                self._has_failed = True
                log.error("the health file cannot be written", extra={"path": self._path, "reason": str(error)})
        else:
            self._has_failed = False

    def close(self) -> None:
        for path in (self._path, self._draft):
            with suppress(OSError):
                os.unlink(path)

    def _write(self, report: ProcessHealth) -> None:
        with open(self._draft, "wb") as file:
            file.write(encode_report(report))
        os.replace(self._draft, self._path)
