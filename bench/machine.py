"""What the figures were taken on. Names no path, no host and no user."""

import os
import platform
import sqlite3
import statistics
import tempfile
import time
from pathlib import Path


def describe(parent: Path | None) -> dict[str, str]:
    return {
        "CPU": f"{cpu_model()}, {os.cpu_count()} cores",
        "system": f"{platform.system()} {platform.release()}",
        "Python": platform.python_version(),
        "SQLite (of Python)": sqlite3.sqlite_version,
        "4 KiB write and fsync, median": f"{fsync_ms(parent):.2f} ms",
    }


def load() -> float:
    return os.getloadavg()[0]


def is_busy() -> bool:
    """Whether others use more than a quarter of the cores: then the figures show only that everything runs."""
    return load() > 0.25 * (os.cpu_count() or 1)


def cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def fsync_ms(parent: Path | None, times: int = 50) -> float:
    taken = []
    with tempfile.TemporaryFile(dir=parent) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(bytes(4096))
            file.flush()
            os.fsync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1_000
