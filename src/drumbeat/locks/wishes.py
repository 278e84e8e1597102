"""What may be asked of a lock, within a process or over the cluster: limits and lengths of time, read and checked."""

from drumbeat.durations import Duration, seconds
from drumbeat.errors import InvalidArguments
from drumbeat.names import shown

MOST = 10_000
"""The highest limit."""


def check_limit(limit: object) -> int:
    """How many may hold a lock."""
    if type(limit) is int and 1 <= limit <= MOST:
        return limit
    raise InvalidArguments(f"limit must be a whole number from 1 to {MOST}, not {shown(limit)}", "limit")


def check_per(per: Duration) -> float:
    """The length of a rate window, in seconds."""
    length = check_length(per, "per")
    if length < 0.001:
        raise InvalidArguments(f"per must be at least 1 ms, not {shown(per)}", "per")
    return length


def check_length(value: Duration, name: str) -> float:
    # `seconds` reckons in fractions, which takes longer than a whole local lock.
    if type(value) is float and 0 <= value <= 1e9:
        return value
    return seconds(value, name=name, error=InvalidArguments)
