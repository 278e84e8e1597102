"""What the engines say alike about themselves: sizes and ages in words, and when a fact is a reason to worry. No I/O."""

from drumbeat import durations
from drumbeat.model.finding import Finding, Level

SECOND = 1_000_000
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def fact(name: str, value: str) -> Finding:
    """A fact that is as it should be."""
    return Finding(name=name, level=Level.OK, value=value)


def schema(version: int, known: int) -> Finding:
    """Which version the store is of, beside the one that this code makes."""
    if version == known:
        return fact("schema", f"version {version}")
    advice = "another Drumbeat has upgraded it: bring this program to the same release"
    if version < known:
        advice = "run `drumbeat migrate`"
    return Finding(name="schema", level=Level.NOTE, value=f"version {version}, this code has {known}", advice=advice)


def clock(before: int, store: int, after: int) -> Finding:
    """How far the store's clock is from this host's: it was asked between `before` and `after` (µs, this host's)."""
    # It answered at some moment in between: only what lies outside is known to be off.
    offset = store - after if store > after else min(0, store - before)
    value = f"{offset / SECOND:+.3f} s from this host's" if offset else "the same as this host's"
    if abs(offset) < SECOND:
        return fact("clock", value)
    return Finding(
        name="clock",
        level=Level.NOTE if abs(offset) < 60 * SECOND else Level.WARN,
        value=value,
        advice="jobs are due by the store's clock, so none is early or late; but times in logs and ids made here are off:"
        " synchronise both clocks (NTP)",
    )


def filled(name: str, used: int, most: int, value: str, advice: str) -> Finding:
    """Something that has room for `most`: a warning from nine tenths on. `most` 0: no limit is known."""
    is_full = most > 0 and used * 10 >= most * 9
    return Finding(name=name, level=Level.WARN if is_full else Level.OK, value=value, advice=advice if is_full else "")


def size(count: int) -> str:
    """So many bytes, in words."""
    power = min(max(count.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    amount = count / 1024**power
    return f"{amount:.1f} {_UNITS[power]}" if power and amount < 100 else f"{amount:.0f} {_UNITS[power]}"


def age(seconds: float) -> str:
    """So long, in words."""
    return durations.text(max(0, int(seconds)) * SECOND)
