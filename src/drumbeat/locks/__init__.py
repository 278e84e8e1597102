"""Locks: within one process (`local_lock`) and over a whole cluster (`app.lock`)."""

from drumbeat.locks.lease_keeper import LeaseKeeper
from drumbeat.locks.local import local_lock
from drumbeat.locks.lock import GlobalLock, SyncLock
from drumbeat.locks.lock_client import HeldLock, LockClient, LockOptions, parse_options

__all__ = [
    "GlobalLock",
    "HeldLock",
    "LeaseKeeper",
    "LockClient",
    "LockOptions",
    "SyncLock",
    "local_lock",
    "parse_options",
]
