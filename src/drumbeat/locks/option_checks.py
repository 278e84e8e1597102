"""What may be asked of a lock, within a process or over the cluster: limits and lengths of time, read and checked."""

from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments
from drumbeat.names import short_repr

MAX_LIMIT = 10_000
"""The highest limit."""


def check_limit(limit: object) -> int:
    """How many may hold a lock."""
    if type(limit) is int and 1 <= limit <= MAX_LIMIT:
        return limit
    raise InvalidArguments(f"limit must be a whole number from 1 to {MAX_LIMIT}, not {short_repr(limit)}", "limit")


def check_per(per: Duration) -> float:
    """The length of a rate window, in seconds."""
    length = check_duration(per, "per")
    if length < 0.001:
        raise InvalidArguments(f"per must be at least 1 ms, not {short_repr(per)}", "per")
    return length


def check_duration(value: Duration, name: str) -> float:
    # `seconds` reckons in fractions, which takes longer than a whole local lock.
    if type(value) is float and 0 <= value <= 1e9:
        return value
    return seconds(value, name=name, error=InvalidArguments)
