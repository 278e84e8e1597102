"""What a person should know of a store or of the cluster on it, and what to do about it. Values only."""

from enum import StrEnum

import msgspec


class HealthLevel(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing to do
    WARN = "warn"  # will be a problem, or is a small one
    BAD = "bad"  # something does not work, or will be lost


class HealthCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    name: str
    """What it is about: "clock offset", "queue mail"."""
    level: HealthLevel
    value: str
    """What was found."""
    advice: str = ""
    """What to do about it; empty where there is nothing to do."""
