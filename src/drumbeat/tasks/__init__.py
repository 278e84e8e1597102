"""Tasks: registered functions, their options, and the registry of an app."""

from drumbeat.tasks.batch import BatchDecorator, BatchTask, Call
from drumbeat.tasks.limits import Limit, QueueOptions
from drumbeat.tasks.options import EnqueueOptions, Options, Pool, TaskOptions
from drumbeat.tasks.registry import Registry
from drumbeat.tasks.room import AsyncRoom, Room, SyncRoom
from drumbeat.tasks.task import AsyncTask, BoundTask, SyncTask, Task, TaskDecorator

__all__ = [
    "AsyncRoom",
    "AsyncTask",
    "BatchDecorator",
    "BatchTask",
    "BoundTask",
    "Call",
    "EnqueueOptions",
    "Limit",
    "Options",
    "Pool",
    "QueueOptions",
    "Registry",
    "Room",
    "SyncRoom",
    "SyncTask",
    "Task",
    "TaskDecorator",
    "TaskOptions",
]
