"""Boot time: the clock of leases on one machine. All processes share it, and changes of the wall clock do not affect it."""

import ctypes
import struct
from collections.abc import Callable
from functools import cache
from pathlib import Path

from drumbeat.clock import Clock

_LINUX = "/proc/sys/kernel/random/boot_id"
_SYSCTLS = ("kern.bootsessionuuid", "kern.boot_id")
"""On macOS and on FreeBSD."""
_BOOT_TIME = "kern.boottime"
"""On the other BSDs: the last resort, because setting the wall clock changes it."""


@cache
def boot_id() -> str:
    """Differs after each start of the machine; empty if the system does not tell."""
    return find_boot_id(_read_file, _read_sysctl)


def find_boot_id(read: Callable[[str], str], sysctl: Callable[[str], bytes]) -> str:
    """As `boot_id`, by these two functions, each of which returns an empty value for an unknown name."""
    if found := read(_LINUX).strip():
        return found
    for name in _SYSCTLS:
        if found := sysctl(name).rstrip(b"\0").decode("ascii", "replace").strip():
            return found
    since = sysctl(_BOOT_TIME)
    return f"{_BOOT_TIME} {struct.unpack_from('@q', since)[0]}" if len(since) >= 8 else ""


def _read_file(path: str) -> str:
    try:
        return Path(path).read_text("ascii")
    except OSError:
        return ""


def _read_sysctl(name: str) -> bytes:
    try:
        sysctlbyname = ctypes.CDLL(None, use_errno=True).sysctlbyname
    except (AttributeError, OSError):  # Linux has none
        return b""
    answer, size = ctypes.create_string_buffer(256), ctypes.c_size_t(256)
    if sysctlbyname(name.encode(), answer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return b""
    return answer.raw[: size.value]


def boot_us(clock: Clock) -> int:
    """Microseconds since the machine was started."""
    return int(clock.monotonic() * 1_000_000)
