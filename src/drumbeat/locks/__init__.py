"""Locks: within one process (`local_lock`) and over a whole cluster (`app.lock`)."""

from drumbeat.locks.local import local_lock

__all__ = ["local_lock"]
