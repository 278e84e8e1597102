"""Locks: within one process (`local_lock`) and over a whole cluster (`app.lock`)."""

from drumbeat.locks.keeper import Keeper
from drumbeat.locks.local import local_lock
from drumbeat.locks.lock import Entrance, GlobalLock, HeldLock, LockOptions, SyncLock, read_wish

__all__ = ["Entrance", "GlobalLock", "HeldLock", "Keeper", "LockOptions", "SyncLock", "local_lock", "read_wish"]
