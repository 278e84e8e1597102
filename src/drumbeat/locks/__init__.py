"""Locks: within one process (`local_lock`) and over a whole cluster (`app.lock`)."""

from drumbeat.locks.lease_keeper import LeaseKeeper as LeaseKeeper
from drumbeat.locks.local import local_lock as local_lock
from drumbeat.locks.lock import GlobalLock as GlobalLock
from drumbeat.locks.lock import SyncLock as SyncLock
from drumbeat.locks.lock_client import HeldLock as HeldLock
from drumbeat.locks.lock_client import LockClient as LockClient
from drumbeat.locks.lock_client import LockOptions as LockOptions
from drumbeat.locks.lock_client import parse_options as parse_options
