"""What a supervisor must know of a program that it does not import itself: asked of a process that lives for a moment.

A supervisor runs no code of the user's, so that nothing of it can harm whoever watches the workers. But the program's
settings may be in its code: so a child imports it, tells what is needed over a socket, and is gone.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from drumbeat.cli.failures import BadInput, NotDone
from drumbeat.errors import DrumbeatError
from drumbeat.processes.frames import receive, send_to_parent
from drumbeat.processes.spawn import spawn
from drumbeat.settings import Settings
from drumbeat.settings_loader import load

if TYPE_CHECKING:
    from drumbeat.app import Drumbeat


class ProgramInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A program as far as `drumbeat run` is concerned."""

    settings: Settings
    tasks: list[str]
    rooms: list[str]
    queues: dict[str, int]
    """Those that are taken, with their weights."""
    task_queues: frozenset[str]
    """Those that tasks name."""


class _ProbeReply(msgspec.Struct, frozen=True, kw_only=True):
    problem: str | None = None
    flags: dict[str, Any] = {}
    tasks: list[str] = []
    rooms: list[str] = []
    task_queues: frozenset[str] = frozenset()


def describe_program(app: Drumbeat, settings: Settings) -> ProgramInfo:
    """Of an app that is here."""
    tasks = app._internals.registered_tasks
    return ProgramInfo(
        settings=settings,
        tasks=sorted(task.name for task in tasks),
        rooms=sorted(room.name for room in app._internals.registered_rooms),
        queues=settings.queue_weights(app._internals.registry.queues()),
        task_queues=app._internals.registry.queues(),
    )


def probe_program(ref: str, flags: Mapping[str, Any]) -> ProgramInfo:
    """Of an app that is not to be imported here.

    Raises:
        Refused: it cannot be imported, or its settings are wrong; in one line.
    """
    child = spawn("drumbeat.cli.probe:run_probe", {"ref": ref, "flags": dict(flags)}, label=f"drumbeat-probe {ref}")
    with child.link:
        frame = receive(child.link)
    code = child.process.wait()
    if frame is None:
        raise NotDone(f"a process that imported {ref} ended without a word (exit code {code})")
    told = msgspec.json.decode(frame, type=_ProbeReply)
    if told.problem is not None:
        raise BadInput(told.problem)
    settings = load(told.flags, {})
    return ProgramInfo(
        settings=settings,
        tasks=told.tasks,
        rooms=told.rooms,
        queues=settings.queues,
        task_queues=told.task_queues,
    )


def run_probe(link: socket.socket, *, prepare: Callable[[], None], ref: str, flags: dict[str, Any]) -> int:
    """The first function of the child."""
    from drumbeat import appref

    try:
        app = appref.load(ref)
        found = describe_program(app, app.configure(flags))
    except DrumbeatError as error:
        told = _ProbeReply(problem=str(error))
    else:
        # The weights of all queues, so that nobody else must know which ones the tasks name.
        flags = appref.to_flags(found.settings) | {"queues": found.queues}
        told = _ProbeReply(flags=flags, tasks=found.tasks, rooms=found.rooms, task_queues=found.task_queues)
    send_to_parent(link, msgspec.json.encode(told))
    return 0
