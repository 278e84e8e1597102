"""Tells systemd how this service is: sd_notify, without a library.

One datagram for each change, to the socket that systemd names in NOTIFY_SOCKET; a name that begins with @ is abstract. The
variables are taken out of the environment, so that processes started from here do not speak for the service.
"""

import os
import socket
from collections.abc import MutableMapping
from typing import Self

from drumbeat.processes.health import ProcessHealth

VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class ServiceNotifier:
    """A `HealthOutlet`."""

    def __init__(self, address: str, watchdog: float | None, variables: dict[str, str]) -> None:
        """`watchdog`: the seconds after which systemd restarts a service that it does not hear of; None: it does not."""
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self._variables = variables
        self.interval = None if watchdog is None else watchdog / 2
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._is_ready = self._is_stopping = False
        self._status = ""

    @classmethod
    def take(cls, environ: MutableMapping[str, str]) -> Self | None:
        """Of these variables, which are removed; None: systemd does not listen."""
        variables = {name: environ.pop(name) for name in VARIABLES if name in environ}
        address = variables.get("NOTIFY_SOCKET", "")
        if not address.startswith(("/", "@")):
            return None
        is_ours = variables.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        microseconds = variables.get("WATCHDOG_USEC", "")
        watchdog = int(microseconds) / 1e6 if is_ours and microseconds.isdecimal() and int(microseconds) else None
        return cls(address, watchdog, variables)

    def give_back(self, environ: MutableMapping[str, str]) -> None:
        """Before another program takes the place of this one in the same process."""
        environ.update(self._variables)
        self._socket.close()

    def tell(self, report: ProcessHealth) -> None:
        is_ready, is_stopping = self._is_ready or report.ready, self._is_stopping or report.stopping
        status = _describe(report)
        lines = [
            *(["READY=1"] if is_ready and not self._is_ready else []),
            *(["STOPPING=1"] if is_stopping and not self._is_stopping else []),
            *([f"STATUS={status}"] if status != self._status else []),
            *(["WATCHDOG=1"] if report.live and self.interval is not None else []),
        ]
        if not lines:
            return
        try:
            self._socket.sendto("\n".join(lines).encode(), socket.MSG_DONTWAIT, self._address)
        except OSError:
            return  # systemd is restarting, or its socket is full: told with the next report
        self._is_ready, self._is_stopping, self._status = is_ready, is_stopping, status

    def close(self) -> None:
        self.tell(ProcessHealth(stopping=True, reasons=("stopped",)))
        self._socket.close()


def _describe(report: ProcessHealth) -> str:
    """One line for `systemctl status`."""
    return "; ".join(report.reasons) if report.reasons else f"running {report.running} jobs"
