"""Boot time: the clock of leases on one machine. No change of the wall clock touches it, and all processes share it."""

from functools import cache
from pathlib import Path

from drumbeat.clock import Clock


@cache
def boot_id() -> str:
    """Another after each start of the machine; empty where the system has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def boot_us(clock: Clock) -> int:
    """Microseconds since the machine was started."""
    return int(clock.monotonic() * 1_000_000)
