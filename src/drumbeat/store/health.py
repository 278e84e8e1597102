"""Health checks that the engines share: sizes and ages in words, and from when on a value is a problem. No I/O."""

from drumbeat import durations
from drumbeat.core.health import HealthCheck, HealthLevel

SECOND_US = 1_000_000
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def healthy(name: str, value: str) -> HealthCheck:
    """A check that passed."""
    return HealthCheck(name=name, level=HealthLevel.OK, value=value)


def unhealthy(level: HealthLevel, name: str, value: str, advice: str = "") -> HealthCheck:
    """A check that found something."""
    return HealthCheck(name=name, level=level, value=value, advice=advice)


def check_schema(version: int, known: int) -> HealthCheck:
    """The version of the store, compared with the newest that this code knows."""
    if version == known:
        return healthy("schema", f"version {version}")
    advice = "another Drumbeat has upgraded it: bring this program to the same release"
    if version < known:
        advice = "run `drumbeat migrate`"
    return unhealthy(HealthLevel.NOTE, "schema", f"version {version}, this code has {known}", advice)


def check_clock(before: int, store: int, after: int) -> HealthCheck:
    """How far the store's clock is from this host's: it was read between `before` and `after` (µs, this host's)."""
    # It was read at some time in between: only what lies outside is known to be off.
    offset = store - after if store > after else min(0, store - before)
    value = f"{offset / SECOND_US:+.3f} s from this host's" if offset else "the same as this host's"
    if abs(offset) < SECOND_US:
        return healthy("clock", value)
    level = HealthLevel.NOTE if abs(offset) < 60 * SECOND_US else HealthLevel.WARN
    advice = (
        "jobs are due by the store's clock, so none is early or late; but times in logs and ids made here are off:"
        " synchronise both clocks (NTP)"
    )
    return unhealthy(level, "clock", value, advice)


def check_usage(name: str, used: int, limit: int, value: str, advice: str) -> HealthCheck:
    """Something with a capacity of `limit`: a warning from nine tenths on. `limit` 0: no limit is known."""
    is_full = limit > 0 and used * 10 >= limit * 9
    return unhealthy(HealthLevel.WARN, name, value, advice) if is_full else healthy(name, value)


def format_size(count: int) -> str:
    """A number of bytes, in words."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    amount = count / 1024**power
    return f"{amount:.1f} {_UNITS[power]}" if power and amount < 100 else f"{amount:.0f} {_UNITS[power]}"


def format_age(seconds: float) -> str:
    """A number of seconds, in words."""
    return durations.format_length(max(0, int(seconds)) * SECOND_US)
